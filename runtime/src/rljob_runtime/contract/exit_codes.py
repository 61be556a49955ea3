"""How a run ends: the launcher's exit codes, and the outcome that it prints as its last line and writes to the spool.

The operator decides on a retry by the exit code alone. Reason and message are for people.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rljob_runtime.contract import codec


class ExitCode(enum.IntEnum):
    """Exit codes of `python -m rljob_runtime launch`. Codes from 64 follow the model of sysexits.h."""

    DONE = 0
    FAILED = 1
    """Any failure of the run itself. The outcome's message contains the cause."""
    BAD_CONFIG = 64
    """The configuration can never work (unknown key, path missing on every node). Never retried."""
    ENVIRONMENT = 65
    """The environment is wrong (unexpected pod or job.json, a path missing on some nodes). Retried."""
    STOPPED = 66
    """Stopped on request after a checkpoint."""
    STALLED = 67
    """Ended because no step completed for too long. The stacks of its processes are stored with its records."""
    RULE_MATCHED = 68
    """A restart rule or stop rule of the manifest matched. Its name is in the outcome."""


@dataclass(frozen=True)
class Outcome:
    """The end of one attempt, printed by the launcher as its last line, in JSON."""

    exit_code: int
    reason: str
    """A CamelCase word for conditions and events."""
    message: str
    """The cause, at most 1,500 characters."""
    rule: str | None = None
    """Name of the stop rule, or of the restart rule with `onLogPattern`, that matched."""
    last_step: int = 0
    unruled_exit_code: int | None = None
    """For a restart rule: the exit code of the same end without it. Reason and message are also those of that end."""
    nodes: tuple[str, ...] = codec.added(())
    """Kubernetes nodes at fault, the worst first. Another attempt has better chances without them."""
    suspect: str | None = None
    """Kubernetes node that was lost. A single loss does not show whether the node is at fault."""

    def to_json(self) -> bytes:
        """Return canonical bytes."""
        return codec.dumps(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Outcome:
        """Read one, leniently. Raises ContractError."""
        return codec.loads(cls, data, strict=False)
