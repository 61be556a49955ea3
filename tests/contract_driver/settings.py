"""Settings of the contract driver in a job's `verl.overrides`, for example `+contract.rollout_seconds: 0.5`."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass

from rljob_runtime.contract import ExitCode, JobConfig
from rljob_runtime.outcomes import RefusedError

PREFIX = "contract."
SAVE_EVERY = "trainer.save_freq"
KEEP = "trainer.max_actor_ckpt_to_keep"
"""Keys of verl that the operator sets from spec.checkpoint."""


@dataclass(frozen=True)
class Settings:
    """Durations of the parts of a step, and a planned failure."""

    rollout_seconds: float = 0.5
    update_seconds: float = 0.2
    save_seconds: float = 0.0
    """Additional time that each rank takes to save."""
    state_kilobytes: int = 64
    """Size of the padding of each file of a rank."""
    fail_at_step: int = 0
    """Step in which the last rank raises PlannedError; 0 for none."""

    @classmethod
    def of(cls, job: JobConfig) -> Settings:
        """Read a job's settings. Raise RefusedError (exit code 64) for an unknown key or an invalid value."""
        defaults: dict[str, float] = dataclasses.asdict(cls())
        values: dict[str, float] = {}
        for key, value in job.overrides.items():
            plain = key.lstrip("+")
            if not plain.startswith(PREFIX):
                continue
            name = plain.removeprefix(PREFIX)
            if name not in defaults:
                similar = difflib.get_close_matches(name, defaults, n=1, cutoff=0)
                raise refused("UnknownOverride", f"{key}: unknown key; did you mean +{PREFIX}{similar[0]}?")
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise refused("InvalidOverride", f"{key}: {value!r} is invalid: expected a number of at least 0")
            values[name] = type(defaults[name])(value)
        return cls(**values)  # type: ignore[arg-type] # each value has the type of its default


def save_every(job: JobConfig) -> int:
    """Return the number of steps between checkpoints; 0 if the job saves none by itself."""
    value = job.overrides.get(SAVE_EVERY, 0)
    return max(0, value) if isinstance(value, int) else 0


def keep(job: JobConfig) -> int | None:
    """Return the number of checkpoints to keep; None for all."""
    value = job.overrides.get(KEEP)
    return value if isinstance(value, int) else None


def refused(reason: str, message: str) -> RefusedError:
    """Return the error for a configuration that cannot run."""
    return RefusedError(ExitCode.BAD_CONFIG, reason, message)
