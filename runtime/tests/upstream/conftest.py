"""Mark the tests of upstream seams. Without verl they are skipped, unless RLJOB_IN_IMAGE is set, as in the image.

Those marked `long` take minutes: runs of a trainer or of an engine that end, are killed and resume, and upstream's way
and ours one after the other, which print figures for docs/benchmarks.md. `make test` leaves them out, `make acceptance`
runs them: `pytest -s -m long`.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from rljob_runtime import hydra_config
from rljob_runtime.verl_plugin.platform import cpu_defaults, vllm_alias


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "image: checks the seams of verl, vLLM and Ray that we rely on; runs in the runtime image"
    )
    config.addinivalue_line("markers", "long: takes minutes; runs in `make acceptance`")
    if importlib.util.find_spec("ray") is not None:
        # Before the suffix trees: with their C++ library loaded first, an exception within Ray aborts the process.
        importlib.import_module("ray")
        sys.path.append(str(HERE))
        importlib.import_module("patient_ray").install()
    if importlib.util.find_spec("verl") is not None:
        vllm_alias.install()  # As the plug-in does in a process of a run: without it verl finds no vLLM on CPUs.


HERE = Path(__file__).parent
TRAINING_SECONDS = 2400.0


@pytest.fixture(scope="module")
def megatron() -> Iterator[None]:
    """Let the tests of a module import Megatron-Core, and hide it from what follows.

    verl's engines come first, because verl registers others where it finds Megatron.
    """
    import verl.workers.engine

    assert verl.workers.engine
    with pytest.MonkeyPatch.context() as patch:
        if folder := os.environ.get("RLJOB_MEGATRON"):
            patch.syspath_prepend(folder)
        yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "megatron"]:
        del sys.modules[name]


class RealTraining(Protocol):
    """Train as real_training.py does. `modules` are folders from which the processes of the run import first."""

    def __call__(
        self, folder: Path, name: str, *modules: Path, environment: Mapping[str, str] | None = None, **wish: Any
    ) -> dict[str, Any]:
        """Return what the run reports, and its standard error under `stderr`."""

    def begin(
        self, folder: Path, name: str, *modules: Path, environment: Mapping[str, str] | None = None, **wish: Any
    ) -> subprocess.Popen[bytes]:
        """Return the process of a run that the caller ends; its group has all processes of the run.

        It writes what it says to NAME-ATTEMPT.stdout and .stderr in the folder.
        """


class Trainings:
    """Implements it."""

    def __call__(
        self, folder: Path, name: str, *modules: Path, environment: Mapping[str, str] | None = None, **wish: Any
    ) -> dict[str, Any]:
        process = self.begin(folder, name, *modules, environment=environment, **wish)
        try:
            code = process.wait(TRAINING_SECONDS)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        said, told = (file.read_text(errors="replace") for file in self._files(folder, name, wish))
        assert code == 0, told[-4000:]
        return {**json.loads(said.splitlines()[-1]), "stderr": told}

    def begin(
        self, folder: Path, name: str, *modules: Path, environment: Mapping[str, str] | None = None, **wish: Any
    ) -> subprocess.Popen[bytes]:
        path = os.pathsep.join((*map(str, modules), os.environ.get("PYTHONPATH", "")))
        variables = {**os.environ, **cpu_defaults.ENVIRONMENT, **(environment or {}), "PYTHONPATH": path}
        words = [sys.executable, str(HERE / "real_training.py"), str(folder), json.dumps({"name": name, **wish})]
        said, told = self._files(folder, name, wish)
        with said.open("wb") as out, told.open("wb") as err:
            return subprocess.Popen(words, env=variables, stdout=out, stderr=err, start_new_session=True)

    def _files(self, folder: Path, name: str, wish: Mapping[str, Any]) -> tuple[Path, Path]:
        kept = f"{name}-{wish.get('attempt', 1)}"
        return folder / f"{kept}.stdout", folder / f"{kept}.stderr"


@pytest.fixture(scope="session", autouse=True)
def _composed_once() -> Iterator[None]:
    """Let Hydra compose each choice of groups once, and give copies: it takes ten times as long as a copy.

    Hundreds of tests need the configuration, and what they ask about begins with the keys that are set in it.
    """
    compose, composed = hydra_config._compose_groups, dict[str, Any]()

    def once(groups: Mapping[str, Any]) -> Any:
        name = repr(sorted(groups.items()))
        if name not in composed:
            composed[name] = compose(groups)
        return copy.deepcopy(composed[name])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hydra_config, "_compose_groups", once)
        yield


@pytest.fixture(scope="session")
def real_training() -> RealTraining:
    """Return the runner of real_training.py. A fixture, because modules of tests are no package in the image."""
    return Trainings()


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
