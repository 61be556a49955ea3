"""Settings of `make scale` from the environment: `SCALE_JOBS=200 SCALE_WORKERS=4 make scale`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

VARIABLES = {
    "jobs": "SCALE_JOBS",
    "workers": "SCALE_WORKERS",
    "step_seconds": "SCALE_STEP_SECONDS",
    "steady_seconds": "SCALE_STEADY_SECONDS",
    "restart_seconds": "SCALE_RESTART_SECONDS",
    "patience_seconds": "SCALE_PATIENCE_SECONDS",
    "jobs_per_second": "SCALE_JOBS_PER_SECOND",
}


@dataclass(frozen=True)
class Settings:
    """Settings of one run."""

    jobs: int = 1000
    workers: int = 4
    """Worker pods per job, in addition to its head."""
    step_seconds: int = 20
    """Duration of a virtual run's step: shorter than real ones, so that every poll may find a new step."""
    steady_seconds: int = 120
    """Duration of the steady state measurement."""
    restart_seconds: int = 75
    """How long writes are counted after a restart: longer than the longest interval between two polls of a head."""
    patience_seconds: int = 3600
    """Deadline of each wait."""
    jobs_per_second: int | None = None
    """Rate at which jobs are created; all at once if unset."""

    @property
    def pods(self) -> int:
        """Number of pods of all jobs."""
        return self.jobs * (1 + self.workers)


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings. Raises SystemExit that names the variable for an invalid value."""
    values: dict[str, int] = {}
    for field, variable in VARIABLES.items():
        text = environ.get(variable)
        if not text:
            continue
        if not text.isdecimal() or int(text) < 1:
            raise SystemExit(f"{variable} is {text!r}; it must be a positive integer")
        values[field] = int(text)
    return Settings(**values)
