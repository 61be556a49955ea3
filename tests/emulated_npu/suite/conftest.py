"""What the tests on the emulated NPU share: models, and how a process is run. They run in the image ascend-emulated.

Each test asks a process of its own, because torch_npu, vLLM and Megatron keep their state for good.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SECONDS = 900.0
IN_IMAGE = bool(os.environ.get("RLJOB_IN_IMAGE"))
collect_ignore_glob = [] if IN_IMAGE else ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: minutes of CPU; `make acceptance` runs it, `make test` does not")


@pytest.fixture(scope="session")
def run() -> Any:
    """Return a function that runs a program of this folder and returns its output.

    A fixture, because modules of tests are no package in the image.
    """

    def started(program: str, *words: str, environment: Mapping[str, str] | None = None) -> str:
        command = [sys.executable, *program.split(), *words]
        done = subprocess.run(
            command,
            cwd=HERE,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-6000:]}"
        return done.stdout

    return started


@pytest.fixture(scope="session")
def models(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two models and their data."""
    folder = tmp_path_factory.mktemp("models")
    run("models.py", str(folder), environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    return folder


@pytest.fixture(scope="session")
def mindspeed() -> None:
    """Skip a test where MindSpeed is not mounted: no package index has it (../README.md)."""
    if not Path("/mindspeed/mindspeed").is_dir():
        pytest.skip("MindSpeed is not here; set RLJOB_MINDSPEED to a checkout or an archive of its pinned commit")


@pytest.fixture
def train(run: Any, models: Path, tmp_path: Path) -> Any:
    """Return a function that runs trainer_process.py and returns what each rank found."""

    def trained(model: str, processes: int = 1, **wish: Any) -> list[dict[str, Any]]:
        torchrun = f"-m torch.distributed.run --standalone --nproc-per-node {processes}"
        words = (str(models / model / "model"), str(tmp_path), json.dumps(wish))
        run(torchrun, "trainer_process.py", *words)
        return [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(processes)]

    return trained
