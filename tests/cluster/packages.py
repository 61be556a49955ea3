"""Debian packages that cluster and tests need: looked for by their programs, installed or only unpacked when missing.

What the cluster runs on is installed. A package whose installation would start a daemon, such as Prometheus, is
unpacked into the cache instead: nothing of it runs that a test did not start, and nothing is left in the system.
"""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.paths import cache_folder
from tests.cluster.programs import locked
from tests.cluster.shell import run

INSTALL_DEADLINE_SECONDS = 600
# Debian puts some of these where an ordinary user's PATH does not look.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Package:
    """A Debian package and a file by which to tell that it is installed."""

    name: str
    shown_by: str


CLUSTER_PACKAGES = (
    Package("runc", "runc"),
    Package("containernetworking-plugins", "/usr/lib/cni/bridge"),
    Package("nftables", "nft"),
    Package("iproute2", "ip"),
    Package("conntrack", "conntrack"),
    Package("openssl", "openssl"),
    Package("util-linux", "nsenter"),
)
IMAGE_PACKAGES = (Package("buildah", "buildah"), Package("debootstrap", "debootstrap"), Package("skopeo", "skopeo"))


def ensure_packages(packages: tuple[Package, ...]) -> None:
    """Install what is missing; package lists are fetched only when the first try fails."""
    missing = [package.name for package in packages if not _installed(package)]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise ClusterError(f"{', '.join(missing)} missing, and no apt-get here; install them by this system's means")
    print(f"apt    {' '.join(missing)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Images and cluster may want packages at the same moment.
    command = ["apt-get", "-o", "DPkg::Lock::Timeout=600", "install", "-y", "--no-install-recommends", *missing]
    try:
        run(command, environment=environment, timeout_seconds=INSTALL_DEADLINE_SECONDS)
    except ClusterError:
        run(["apt-get", "update"], environment=environment, timeout_seconds=INSTALL_DEADLINE_SECONDS)
        run(command, environment=environment, timeout_seconds=INSTALL_DEADLINE_SECONDS)


def unpacked_program(package: str, program: str) -> Path:
    """A program of a Debian package: the installed one, else from the package unpacked into the cache."""
    if installed := shutil.which(program, path=SYSTEM_PATH):
        return Path(installed)
    folder = cache_folder() / "debian" / package
    with locked(cache_folder() / "locks" / f"debian-{package}.lock"):
        if not folder.exists():
            _unpack(package, folder)
    found = folder / "usr" / "bin" / program
    if not found.exists():
        raise ClusterError(f"the Debian package {package} in {folder} has no /usr/bin/{program}; remove that folder")
    return found


def _unpack(package: str, folder: Path) -> None:
    """Fetch the package of this system's release and unpack it; complete whenever the folder exists."""
    if shutil.which("apt-get") is None:
        raise ClusterError(f"{package} is missing, and no apt-get here; install it by this system's means")
    print(f"apt    {package} (unpacked, not installed)", flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        place = Path(made)
        # A folder that apt's own user cannot write makes it warn, which says nothing to anybody.
        command = ["apt-get", "-o", "APT::Sandbox::User=root", "download", package]
        try:
            run(command, folder=place, timeout_seconds=INSTALL_DEADLINE_SECONDS)
        except ClusterError:
            run(["apt-get", "update"], timeout_seconds=INSTALL_DEADLINE_SECONDS)
            run(command, folder=place, timeout_seconds=INSTALL_DEADLINE_SECONDS)
        (archive,) = place.glob(f"{package}_*.deb")
        run(["dpkg-deb", "--extract", archive, place / "files"], timeout_seconds=INSTALL_DEADLINE_SECONDS)
        (place / "files").rename(folder)


def _installed(package: Package) -> bool:
    if package.shown_by.startswith("/"):
        return Path(package.shown_by).exists()
    return shutil.which(package.shown_by, path=SYSTEM_PATH) is not None
