"""What is asked of a node and what it answers: plain data that travels through Ray."""

from __future__ import annotations

from dataclasses import dataclass, field

from rljob_runtime.ascend_tools import Device


@dataclass(frozen=True)
class SharedFolder:
    """A folder that must be the same volume on every node; the head has left a token in it."""

    field: str
    """The manifest's field."""
    path: str
    token_name: str
    token: str


@dataclass(frozen=True)
class Request:
    """One node's task."""

    run: str
    """Name of the run, for what is left on the node."""
    devices: int
    """Of each node."""
    with_npus: bool
    paths: tuple[str, ...]
    """Files and folders that must be there."""
    folders: tuple[SharedFolder, ...]
    model: str | None
    bind_cpus_min: int | None
    """CPUs that a device must have at least; None: nothing is bound."""
    exclusive_cpus: int | None
    """If the cpuset has just so many CPUs, it is this pod's own; None: it is, whatever its size."""


@dataclass(frozen=True)
class ModelFiles:
    """The weights of the model as a node sees them."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Files that the index names, or all weights without one; -1: missing."""
    problems: tuple[str, ...] = ()
    """Files that are not whole."""


@dataclass(frozen=True)
class NodeFacts:
    """One node's answer. `None` stands for what does not apply or could not be read; an error says why."""

    node: str
    """Kubernetes node, or host name."""
    time: float
    """The node's clock, Unix seconds, at the begin of its task."""
    is_head: bool = False
    devices: tuple[Device, ...] | None = None
    devices_error: str = ""
    tools_missing: bool = False
    """The error is that npu-smi is not there at all."""
    versions: dict[str, str] = field(default_factory=dict)
    links: dict[int, str] = field(default_factory=dict)
    """Device -> UP or DOWN."""
    addresses: dict[int, str | None] = field(default_factory=dict)
    """Device -> address of its own network port; None: the tool says that it has none."""
    unasked: dict[int, str] = field(default_factory=dict)
    """Device -> why its network port's state or address could not be learnt."""
    links_error: str = ""
    busy_ports: tuple[int, ...] = ()
    interface: str | None = None
    interface_error: str = ""
    cpus: int = 0
    """CPUs of the cpuset."""
    shared_memory_bytes: int | None = None
    open_files: int | None = None
    """Soft limit of the processes that Ray starts."""
    free_bytes: int | None = None
    """Where Ray and the libraries keep their temporary files."""
    missing_paths: tuple[str, ...] = ()
    unshared: dict[str, str] = field(default_factory=dict)
    """Path of a shared folder -> what is wrong with it here."""
    model: ModelFiles | None = None
    plan: str | None = None
    """The CPU plan, as a line; None: nothing is bound here."""
    plan_notes: tuple[str, ...] = ()
