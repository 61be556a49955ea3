"""Request to a node and its answer: plain data that Ray transfers."""

from __future__ import annotations

from dataclasses import dataclass, field

from rljob_runtime.contract import Role
from rljob_runtime.node.ascend_tools import Device


@dataclass(frozen=True)
class SharedFolder:
    """A folder that must be on the same volume on every node. The head has written a token into it."""

    field: str
    """Field of the manifest."""
    path: str
    token_name: str
    token: str


@dataclass(frozen=True)
class Request:
    """The task of one node."""

    run: str
    """Name of the run, for files that are left on the node."""
    devices: int
    """Devices per node."""
    with_npus: bool
    paths: tuple[str, ...]
    """Files and folders that must exist."""
    folders: tuple[SharedFolder, ...]
    model: str | None
    bind_cpus_min: int | None
    """Minimum number of CPUs per device; None disables binding."""
    exclusive_cpus: int | None
    """With exactly this many CPUs, the cpuset is exclusive to this pod; None: it is exclusive, whatever its size."""


@dataclass(frozen=True)
class ModelFiles:
    """Weight files of the model as found on a node."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Size of the files that the index names, or of all weight files without an index; -1 for a missing file."""
    problems: tuple[str, ...] = ()
    """Files that are incomplete."""


@dataclass(frozen=True)
class NodeFacts:
    """The answer of one node. `None` means not applicable or not readable; an error field then has the reason."""

    node: str
    """Name of the Kubernetes node, otherwise the host name."""
    time: float
    """Unix time of the node's clock at the start of its task."""
    is_head: bool = False
    role: Role | None = None
    """Of a worker, where the groups of the job have different ones."""
    devices: tuple[Device, ...] | None = None
    devices_error: str = ""
    tools_missing: bool = False
    """npu-smi is not installed; `devices_error` has the message."""
    versions: dict[str, str] = field(default_factory=dict)
    links: dict[int, str] = field(default_factory=dict)
    """Device -> UP or DOWN."""
    addresses: dict[int, str | None] = field(default_factory=dict)
    """Device -> address of its own network port; None if the tool reports that it has none."""
    unasked: dict[int, str] = field(default_factory=dict)
    """Device -> why the state or address of its network port is unknown."""
    links_error: str = ""
    busy_ports: tuple[int, ...] = ()
    interface: str | None = None
    interface_error: str = ""
    cpus: int = 0
    """CPUs in the cpuset."""
    shared_memory_bytes: int | None = None
    open_files: int | None = None
    """Soft limit for the processes that Ray starts."""
    free_bytes: int | None = None
    """Free space for temporary files of Ray and the libraries."""
    missing_paths: tuple[str, ...] = ()
    unshared: dict[str, str] = field(default_factory=dict)
    """Path of a shared folder -> its problem on this node."""
    model: ModelFiles | None = None
    plan: str | None = None
    """The CPU plan as one line; None if nothing is bound on this node."""
    plan_notes: tuple[str, ...] = ()
