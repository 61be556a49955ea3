"""A run of `rljob conformance` against a kubectl that plays back what a real cluster answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from doubles.played_kubectl import PLAN, Cluster, Time

from rljob.cli import kubectl
from rljob.cli.conformance.clock import Clock
from rljob.cli.conformance.facts import ConformancePlan, Facts
from rljob.cli.conformance.image_pod import check_image
from rljob.cli.conformance.run import Run
from rljob.render.accelerators import BUILT_IN

RECORDED = Path(__file__).parent / "recorded"
"""Written by tests/e2e/recorded_kubectl.py from runs on the local cluster."""


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A kubectl with the answers of a recorded cluster; the parameter is its name, by default `healthy`."""
    # It must be on the PATH, and is not called.
    (tmp_path / "kubectl").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    recorded = json.loads((RECORDED / f"{getattr(request, 'param', 'healthy')}.json").read_text())
    monkeypatch.setattr("rljob.cli.conformance.gather.time.time", lambda: float(recorded["now"]))
    made = Cluster(recorded["answers"])
    monkeypatch.setattr("rljob.cli.bounded_process.run", made.run)
    return made


@pytest.fixture
def make_run() -> Callable[..., Run]:
    """Return a run that uses no time."""

    def make(plan: ConformancePlan = PLAN, clock: Clock | None = None) -> Run:
        time = Time()
        return Run(
            Facts(plan),
            BUILT_IN[plan.accelerator],
            kubectl.Place(),
            clock or Clock(time.now, time.sleep),
            # The healthy run was recorded with the contract driver, whose image has Ray and no verl.
            check_image=partial(check_image, launcher="Command"),
        )

    return make
