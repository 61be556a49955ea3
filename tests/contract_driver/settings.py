"""What a job may tell the contract driver, through `verl.overrides`: `+contract.step_seconds: 0.5`."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass

from rljob_runtime.contract import ExitCode, JobConfig
from rljob_runtime.outcomes import RefusedError

PREFIX = "contract."
SAVE_EVERY = "trainer.save_freq"
KEEP = "trainer.max_actor_ckpt_to_keep"
"""verl's keys, as the operator sets them from spec.checkpoint."""


@dataclass(frozen=True)
class Settings:
    """How long the parts of a step take, and what goes wrong in it."""

    rollout_seconds: float = 0.5
    update_seconds: float = 0.2
    save_seconds: float = 0.0
    """Added to each rank's save."""
    state_kilobytes: int = 64
    """Of each rank."""
    fail_at_step: int = 0
    """The step in which the last rank raises; 0: none."""

    @classmethod
    def of(cls, job: JobConfig) -> Settings:
        """Read a job's settings; raises RefusedError (exit 64) for a key or a value that is none."""
        defaults: dict[str, float] = dataclasses.asdict(cls())
        values: dict[str, float] = {}
        for key, value in job.overrides.items():
            plain = key.lstrip("+")
            if not plain.startswith(PREFIX):
                continue
            name = plain.removeprefix(PREFIX)
            if name not in defaults:
                near = difflib.get_close_matches(name, defaults, n=1, cutoff=0)
                raise refused("UnknownOverride", f"{key}: there is no such key; did you mean +{PREFIX}{near[0]}?")
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise refused("InvalidOverride", f"{key}: {value!r} does not fit: expected a number from 0")
            values[name] = type(defaults[name])(value)
        return cls(**values)  # type: ignore[arg-type] # each has the type of its default


def save_every(job: JobConfig) -> int:
    """Return after how many steps the job saves; 0: never by itself."""
    value = job.overrides.get(SAVE_EVERY, 0)
    return max(0, value) if isinstance(value, int) else 0


def keep(job: JobConfig) -> int | None:
    """Return how many checkpoints stay; None: all."""
    value = job.overrides.get(KEEP)
    return value if isinstance(value, int) else None


def refused(reason: str, message: str) -> RefusedError:
    """Return the refusal of a configuration that can never run."""
    return RefusedError(ExitCode.BAD_CONFIG, reason, message)
