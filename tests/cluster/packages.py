"""Debian packages that the cluster needs: looked for by their programs, installed when missing."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import ClusterError
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


def _installed(package: Package) -> bool:
    if package.shown_by.startswith("/"):
        return Path(package.shown_by).exists()
    return shutil.which(package.shown_by, path=SYSTEM_PATH) is not None
