"""Paths and addresses of the cluster.

The cache belongs to the user and is shared by all checkouts; its content can be created again. The state belongs to the
machine: there is one local cluster, whichever checkout calls. Importing this module does not touch the disk.
"""

import os
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"

# All pod networks of the cluster; node N has 10.244.<N>.0/24.
POD_NETWORK = "10.244.0.0/16"
SERVICE_NETWORK = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
DNS_SERVICE_ADDRESS = "10.96.0.10"
# The bridge of the first node, which every pod and node can reach.
HOST_ADDRESS = "10.244.1.1"
API_PORT = 6443
API_URL = f"https://{HOST_ADDRESS}:{API_PORT}"
# Not the usual 2379, because tests start control planes of their own beside this one.
ETCD_PORT = 12379
ETCD_PEER_PORT = 12380
COREDNS_HEALTH_PORT = 18053

# Every process of the cluster inherits this variable, whose value is the state folder. It distinguishes our orphans
# from processes of other programs.
MARK_VARIABLE = "RLJOB_CLUSTER_MARK"


def cache_folder() -> Path:
    """Return the cache of compiled programs and images."""
    named = os.environ.get("RLJOB_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "rljob"


@dataclass(frozen=True)
class State:
    """The folders of one cluster, on disk and in memory."""

    folder: Path
    run: Path

    @property
    def pki(self) -> Path:
        """Keys, certificates and client configurations."""
        return self.folder / "pki"

    @property
    def logs(self) -> Path:
        """One log for each component."""
        return self.folder / "logs"

    @property
    def pids(self) -> Path:
        """One pid file for each component."""
        return self.folder / "pids"

    @property
    def etcd(self) -> Path:
        """The data of etcd: all objects of the cluster."""
        return self.folder / "etcd"

    @property
    def volumes(self) -> Path:
        """The folders behind the volumes of the class `standard`."""
        return self.folder / "volumes"

    @property
    def lock(self) -> Path:
        """Lock that is held while the cluster is changed."""
        return self.folder / "lock"

    @property
    def admin_kubeconfig(self) -> Path:
        """Kubeconfig with all permissions."""
        return self.folder / "admin.kubeconfig"

    def node(self, name: str) -> Path:
        """Return the folder of a node: the roots of containerd and the kubelet."""
        return self.folder / "nodes" / name

    def node_run(self, name: str) -> Path:
        """Return the folder of a node's sockets."""
        return self.run / name


def state() -> State:
    """Return the state of this machine's cluster, or of the one in RLJOB_CLUSTER_STATE."""
    moved = os.environ.get("RLJOB_CLUSTER_STATE")
    if moved:
        folder = Path(moved).resolve()
        return State(folder=folder, run=folder / "run")
    return State(folder=Path("/var/lib/rljob-cluster"), run=Path("/run/rljob-cluster"))
