"""What several tests need: a job and a spool in a scratch folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from rljob_runtime.contract import CONTRACT_VERSION, JobConfig, Platform
from rljob_runtime.spool import Spool

MakeJob = Callable[..., JobConfig]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool")


@pytest.fixture
def make_job() -> MakeJob:
    job = JobConfig(
        version=CONTRACT_VERSION,
        namespace="team-a",
        name="sums",
        uid="uid-1",
        cluster_name="sums-uid01-1",
        cluster_generation=1,
        platform=Platform.CPU,
        nodes=1,
        devices=2,
        dies_per_card=2,
        total_steps=40,
        overrides={},
    )
    return lambda **changes: dataclasses.replace(job, **changes)
