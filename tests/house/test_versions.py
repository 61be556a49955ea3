"""`rljob --version` names the versions that the runtime images lock."""

import re
import tomllib
from pathlib import Path

import pytest

from rljob.launchers import VERSIONS
from rljob_runtime.contract import RUNTIME_VERSION
from scripts import ascend_image
from upstream.megatron_names import MEGATRON, MINDSPEED

ROOT = Path(__file__).resolve().parents[2]
LOCKS = {
    "verl": ("runtime-ascend-aarch64", "runtime-ascend-x86_64"),
    "Ray": ("runtime-ascend-aarch64", "runtime-ascend-x86_64", "runtime-contract", "runtime-cpu"),
    "vllm-ascend": ("runtime-ascend-aarch64", "runtime-ascend-x86_64", "seams-ascend"),
    "torch-npu": ("runtime-ascend-aarch64", "runtime-ascend-x86_64"),
    "vLLM": ("runtime-ascend-vllm",),
}


@pytest.mark.parametrize(("name", "lock"), [(name, lock) for name, locks in LOCKS.items() for lock in locks])
def test_a_version_is_that_of_the_lock(name: str, lock: str) -> None:
    text = (ROOT / f"requirements/{lock}.txt").read_text()
    assert re.findall(rf"^{name.lower()}==(\S+)", text, re.MULTILINE) == [VERSIONS[name]]


def test_the_rest_is_that_of_the_ascend_image() -> None:
    own = {"CANN": ascend_image.CANN, "Megatron-LM": MEGATRON.branch, "MindSpeed": MINDSPEED.branch}
    assert {name: VERSIONS[name] for name in own} == own
    assert set(VERSIONS) == {*own, *LOCKS}


def test_the_runtime_reports_the_version_of_its_distribution() -> None:
    project = tomllib.loads((ROOT / "runtime/pyproject.toml").read_text())["project"]
    assert project["version"] == RUNTIME_VERSION
