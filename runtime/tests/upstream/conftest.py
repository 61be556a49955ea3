"""Mark the tests of upstream seams. Without verl they are skipped, unless RLJOB_IN_IMAGE is set, as in the image."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path

import pytest

from rljob_runtime.verl_plugin import vllm_alias


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "image: checks the seams of verl, vLLM and Ray that we rely on; runs in the runtime image"
    )
    if importlib.util.find_spec("ray") is not None:
        # Before the suffix trees: with their C++ library loaded first, an exception within Ray aborts the process.
        importlib.import_module("ray")
    if importlib.util.find_spec("verl") is not None:
        vllm_alias.install()  # As the plug-in does in a process of a run: without it verl finds no vLLM on CPUs.


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
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.image)
        # Deprecation warnings of upstream are not test failures here.
        item.add_marker(pytest.mark.filterwarnings("default"))
        if absent and not IN_IMAGE:
            item.add_marker(pytest.mark.skip(reason="verl is not installed here; the target `make test-image` runs it"))
