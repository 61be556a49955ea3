"""Debian packages that cluster and tests need, found by their programs, and installed or unpacked if missing.

What the cluster runs on is installed. A package whose installation would start a daemon, such as Prometheus, is
unpacked into the cache instead: only tests start its programs, and the system is not changed.
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
# Debian installs some of these where an ordinary user's PATH does not look.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Package:
    """A Debian package and a file that shows that it is installed."""

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
    """Install what is missing. Package lists are only fetched if the first try fails."""
    missing = [package.name for package in packages if not _installed(package)]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise ClusterError(
            f"{', '.join(missing)} missing, and there is no apt-get; install them with this system's package manager"
        )
    print(f"apt    {' '.join(missing)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Images and cluster may need packages at the same time.
    command = ["apt-get", "-o", "DPkg::Lock::Timeout=600", "install", "-y", "--no-install-recommends", *missing]
    try:
        run(command, environment=environment, timeout_seconds=INSTALL_DEADLINE_SECONDS)
    except ClusterError:
        run(["apt-get", "update"], environment=environment, timeout_seconds=INSTALL_DEADLINE_SECONDS)
        run(command, environment=environment, timeout_seconds=INSTALL_DEADLINE_SECONDS)


def unpacked_program(package: str, program: str) -> Path:
    """Return a program of a Debian package: the installed one, otherwise from the package unpacked into the cache."""
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
    """Fetch the package of this system's release and unpack it. The folder is complete whenever it exists."""
    if shutil.which("apt-get") is None:
        raise ClusterError(
            f"{package} is missing, and there is no apt-get; install it with this system's package manager"
        )
    print(f"apt    {package} (unpacked, not installed)", flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        place = Path(made)
        # apt would warn about a folder that its own user cannot write, which is irrelevant here.
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
