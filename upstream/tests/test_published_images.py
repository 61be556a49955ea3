"""What the image check says of the recorded contents of published images."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rljob_runtime.image_check.facts import Launcher
from rljob_runtime.image_check.report import headline
from upstream.published_images.__main__ import absent
from upstream.published_images.judged import judged
from upstream.published_images.table import ASCEND, IMAGES, VERL, PublishedImage

INJECTED = "untried with the injected verl 0.9.1"
OLD = ["transformers", "numpy", "vllm-ascend"]
"""Outside the ranges of upstream's metadata, in every image of verl."""
LACKING = (
    "tensordict>=0.10.0,<=0.10.0",
    "pyarrow>=19.0.0",
    *("accelerate", "codetiming", "datasets", "hydra-core", "omegaconf", "orjson", "peft", "torchdata"),
)


def image(tag: str) -> PublishedImage:
    return next(each for each in IMAGES if tag in each.tags)


@pytest.mark.parametrize(
    ("tag", "verl", "command", "subjects"),
    [
        ("latest-vllm-a3-ubuntu", INJECTED, "fits", OLD),
        ("v0.8.0-cann9.0.0-torch_npu2.9.0.post2-a3-ubuntu22.04-py3.11-vllm", INJECTED, "fits", OLD),
        (
            "verl-8.5.0-a3-ubuntu22.04-py3.11-v0.7.1",
            "refused",
            "fits",
            ["vllm", "transformers", "tensordict", "numpy", "vllm-ascend"],
        ),
        (
            "v0.23.0-a3",
            "refused",
            "degraded",
            [*(name.partition(">")[0] for name in LACKING), "ray"],
        ),
    ],
)
def test_the_verdicts(tag: str, verl: str, command: str, subjects: list[str]) -> None:
    found = judged(image(tag))
    assert (headline(found, Launcher.VERL), headline(found, Launcher.COMMAND)) == (verl, command)
    assert [reason.partition(": ")[0] for reason in found.reasons(Launcher.VERL)] == subjects


def test_an_image_that_lacks_packages_names_them_for_pip() -> None:
    found = judged(image("v0.23.0-a3"))
    assert found.install(Launcher.VERL) == LACKING
    assert found.install(Launcher.COMMAND) == ()


def test_an_image_with_an_old_vllm_is_not_to_be_mended_with_pip() -> None:
    found = judged(image("verl-8.5.0-a3-ubuntu22.04-py3.11-v0.7.1"))
    assert found.install(Launcher.VERL) == ()
    assert found.reasons(Launcher.VERL)[0].endswith("use an image with vllm >=0.18.0,<0.25")


def test_a_line_that_a_file_does_not_have_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def show(words: tuple[str, ...], **_: object) -> subprocess.CompletedProcess[str]:
        place = words[-1]
        lines = [fact.text for each in IMAGES for fact in each.facts if place == f"{fact.file.commit}:{fact.file.path}"]
        return subprocess.CompletedProcess(words, 0, "\n".join(line for line in lines if line != "numpy<2.0.0"), "")

    monkeypatch.setattr(subprocess, "run", show)
    found = absent({VERL: tmp_path, ASCEND: tmp_path})
    assert {(fact.name, fact.text) for fact in found} == {("numpy", "numpy<2.0.0")}
