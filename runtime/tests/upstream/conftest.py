"""Mark the tests of upstream seams. Without verl they are skipped, unless RLJOB_IN_IMAGE is set, as in the image."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from rljob_runtime.verl_plugin import vllm_alias


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "image: checks the seams of verl, vLLM and Ray that we rely on; runs in the runtime image"
    )
    if importlib.util.find_spec("verl") is not None:
        vllm_alias.install()  # As the plug-in does in a process of a run: without it verl finds no vLLM on CPUs.


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    required = bool(os.environ.get("RLJOB_IN_IMAGE"))
    absent = importlib.util.find_spec("verl") is None
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.image)
        # Deprecation warnings of upstream are not test failures here.
        item.add_marker(pytest.mark.filterwarnings("default"))
        if absent and not required:
            item.add_marker(pytest.mark.skip(reason="verl is not installed here; the target `make test-image` runs it"))
