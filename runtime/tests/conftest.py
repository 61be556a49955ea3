"""Fixtures shared by tests: a job, and a spool in a temporary folder."""

from __future__ import annotations

import dataclasses
import errno
import io
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from rljob_runtime.contract import CONTRACT_VERSION, JobConfig, Platform
from rljob_runtime.spool.spool import Spool

MakeJob = Callable[..., JobConfig]


class FullDisk(io.StringIO):
    """A log on a full disk."""

    def write(self, _: str) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def flush(self) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def full_volume(size: int) -> Iterator[None]:
    """Limit the size of files. As on a full volume, the last write is incomplete."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


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
