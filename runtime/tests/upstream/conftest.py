"""Mark the tests of upstream seams. Without verl they are skipped, unless RLJOB_IN_IMAGE is set, as in the image."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from rljob_runtime.verl_plugin import cpu_defaults, vllm_alias


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "image: checks the seams of verl, vLLM and Ray that we rely on; runs in the runtime image"
    )
    if importlib.util.find_spec("ray") is not None:
        # Before the suffix trees: with their C++ library loaded first, an exception within Ray aborts the process.
        importlib.import_module("ray")
    if importlib.util.find_spec("verl") is not None:
        vllm_alias.install()  # As the plug-in does in a process of a run: without it verl finds no vLLM on CPUs.


HERE = Path(__file__).parent
TRAINING_SECONDS = 290.0


class RealTraining(Protocol):
    """Train as real_training.py does."""

    def __call__(
        self, folder: Path, name: str, *modules: Path, environment: Mapping[str, str] | None = None, **wish: Any
    ) -> dict[str, Any]:
        """Return what the run reports, and its standard error under `stderr`.

        `modules` are folders from which the processes of the run import first.
        """


@pytest.fixture
def real_training() -> RealTraining:
    """Return the runner of real_training.py. A fixture, because modules of tests are no package in the image."""

    def train(
        folder: Path, name: str, *modules: Path, environment: Mapping[str, str] | None = None, **wish: Any
    ) -> dict[str, Any]:
        path = os.pathsep.join((*map(str, modules), os.environ.get("PYTHONPATH", "")))
        variables = {**os.environ, **cpu_defaults.ENVIRONMENT, **(environment or {}), "PYTHONPATH": path}
        words = [sys.executable, str(HERE / "real_training.py"), str(folder), json.dumps({"name": name, **wish})]
        done = subprocess.run(
            words, env=variables, capture_output=True, text=True, timeout=TRAINING_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return {**json.loads(done.stdout.splitlines()[-1]), "stderr": done.stderr}

    return train


IN_IMAGE = bool(os.environ.get("RLJOB_IN_IMAGE"))
collect_ignore = (
    []
    if IN_IMAGE
    else [
        "test_batch_balance.py",
        "test_draft_history.py",
        "test_draft_store.py",
        "test_drafts.py",
        "test_drafts_on_ascend.py",
        "test_profile.py",
    ]
)
"""Modules that import packages of the image at once."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    absent = importlib.util.find_spec("verl") is None
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.image)
        # Deprecation warnings of upstream are not test failures here.
        item.add_marker(pytest.mark.filterwarnings("default"))
        if absent and not IN_IMAGE:
            item.add_marker(pytest.mark.skip(reason="verl is not installed here; the target `make test-image` runs it"))
