"""What a run of `make scale` is asked for, from the environment: `SCALE_JOBS=200 SCALE_WORKERS=4 make scale`."""

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
    """One run."""

    jobs: int = 1000
    workers: int = 4
    """Worker pods of each job, beside its head."""
    step_seconds: int = 20
    """Length of a step of the virtual runs: shorter than any real one, so that every poll may find news."""
    steady_seconds: int = 120
    """How long the steady state is measured."""
    restart_seconds: int = 75
    """How long writes are counted after a restart: longer than the longest pause between two polls of a head."""
    patience_seconds: int = 3600
    """Deadline of each wait."""
    jobs_per_second: int | None = None
    """How fast the jobs come; all at once where nothing is said."""

    @property
    def pods(self) -> int:
        """Pods of all jobs."""
        return self.jobs * (1 + self.workers)


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings; a text that is no positive number is told with its variable."""
    values: dict[str, int] = {}
    for field, variable in VARIABLES.items():
        text = environ.get(variable)
        if not text:
            continue
        if not text.isdecimal() or int(text) < 1:
            raise SystemExit(f"{variable} is {text!r}; give a whole number from 1 on")
        values[field] = int(text)
    return Settings(**values)
