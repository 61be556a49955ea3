"""What `python -m rljob_runtime collect` prints as its last line: which logs were copied, and where to.

The launcher of a failed attempt and `rljob logs --collect` read it. It is kept in `collection.json` too.
"""

from __future__ import annotations

from dataclasses import dataclass

from rljob_runtime.contract import codec

COLLECT_SECONDS = 20.0
"""Maximum time that collecting adds to the end of a failed attempt, whose devices are idle in the meantime. Starting
another attempt takes minutes; copying the logs of one node, and diagnosing them, takes seconds."""


@dataclass(frozen=True)
class NodeLogs:
    """What was copied of one node."""

    node: str
    files: int
    bytes: int
    left_out: int = 0
    """Files that exceeded the limits."""
    notes: tuple[str, ...] = ()
    """What could not be collected, and why; at most eight."""


@dataclass(frozen=True)
class Collection:
    """The logs of all nodes of an attempt."""

    attempt: int
    folder: str
    """On the log volume, of this attempt; the nodes' logs are below `nodes`."""
    seconds: float
    nodes: tuple[NodeLogs, ...] = ()
    silent: tuple[str, ...] = ()
    """Addresses of nodes that did not answer in time."""
    stacks: int = 0
    """Processes whose Python stacks were saved."""
    diagnosis: str = ""
    """Result of ascend-fd in a sentence; empty if it is not installed or found nothing."""
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        """Files of all nodes."""
        return sum(node.files for node in self.nodes)

    def to_json(self) -> bytes:
        """Return canonical bytes."""
        return codec.dumps(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Collection:
        """Read one, leniently. Raises ContractError."""
        return codec.loads(cls, data, strict=False)
