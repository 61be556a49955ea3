"""How a run ends: exit codes of the launcher and the outcome that it prints as its last line and leaves in the spool.

The operator decides about a retry from the code alone; the reason and message are for people.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rljob_runtime.contract import codec


class ExitCode(enum.IntEnum):
    """Exit codes of `python -m rljob_runtime launch`; sysexits.h is the model for 64 and up."""

    DONE = 0
    FAILED = 1
    """Any failure of the run itself; the outcome's message holds its cause."""
    BAD_CONFIG = 64
    """The configuration can never work (unknown key, path absent on every node): never retried."""
    ENVIRONMENT = 65
    """This place is wrong (another pod or job.json than intended, a path absent on some nodes): retried."""
    STOPPED = 66
    """Stopped on request after a checkpoint."""
    STALLED = 67
    """Ended because no step came for too long; the stacks of its processes are beside its records."""
    RULE_MATCHED = 68
    """A rule of the manifest matched, for restarts or for the run's end; its name is in the outcome."""


@dataclass(frozen=True)
class Outcome:
    """The end of one attempt: one JSON line, the last that the launcher prints."""

    exit_code: int
    reason: str
    """A CamelCase word for conditions and events."""
    message: str
    """The cause, at most 1,500 characters."""
    rule: str | None = None
    """Name of the stop rule, or of the restart rule with `onLogPattern`, that matched."""
    last_step: int = 0
    unruled_exit_code: int | None = None
    """With a restart rule: the exit code that the same end has without it; reason and message are of that end too."""
    nodes: tuple[str, ...] = codec.added(())
    """Kubernetes nodes that are at fault, the worst first: another attempt does better without them."""
    suspect: str | None = None
    """Kubernetes node that was lost: whether it is at fault nobody knows, and once says little."""

    def to_json(self) -> bytes:
        """Give canonical bytes."""
        return codec.dumps(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Outcome:
        """Read one, leniently; raises ContractError."""
        return codec.loads(cls, data, strict=False)
