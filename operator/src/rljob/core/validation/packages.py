"""`runtime.packages`: what is installed over the image, and where the wheels come from."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation import fields
from rljob.core.validation.pods import mounts, normal
from rljob.core.validation.violation import Check, Violation

FIELD = "spec.runtime.packages"
OF_THE_IMAGE = re.compile(
    r"torch|torch-npu|torchvision|triton|triton-ascend|vllm|vllm-ascend|ray|te|hccl|topi|(ascend-)?cann(-.*)?"
)
"""torch and torch_npu are compiled for each other and for the image's CANN (Ascend/pytorch, README.md, the table of
versions), torchvision, Triton, vLLM and vllm-ascend for these. The program `ray` is of the image's release. te, hccl
and topi are wheels in the toolkit of CANN, `ascend-toolkit/latest/lib64/te-*-py3-none-any.whl` (MindSpore's
installation guide)."""


def _packages_are_not_of_the_image(spec: RLJobSpec) -> Iterator[Violation]:
    """A second torch or CANN in front of the image's would not match what the image was compiled for."""
    seen: set[str] = set()
    packages = spec.runtime.packages
    for index, line in enumerate(packages.requirements if packages else ()):
        field, name = f"{FIELD}.requirements[{index}]", re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower()
        if OF_THE_IMAGE.fullmatch(name):
            yield Violation(field, f"{name} belongs to the image, whose other packages are compiled for it; remove it")
        elif name in seen:
            yield Violation(field, f"{name} is listed twice; keep one release of it")
        seen.add(name)


def _wheelhouse_is_mounted(spec: RLJobSpec) -> Iterator[Violation]:
    packages = spec.runtime.packages
    if packages is None or packages.wheelhouse is None:
        return
    place = normal(packages.wheelhouse) + "/"
    # The head mounts what the trainer's workers mount.
    for path, _ in fields.groups(spec):
        workers = f"{path}.template"
        if not any(place.startswith(mount + "/") for mount in mounts(spec, workers)):
            yield Violation(
                f"{FIELD}.wheelhouse",
                f"{packages.wheelhouse} is on no volume of {workers}; mount one there, such as a claim or an image "
                "with the wheels",
            )


def _conversions_use_the_image_alone(spec: RLJobSpec) -> Iterator[Violation]:
    """The Jobs that convert a checkpoint do not get the packages, without which its model may be unknown."""
    if spec.runtime.packages is None:
        return
    for field, section in (("spec.export", spec.export), ("spec.evaluation", spec.evaluation)):
        if section is not None:
            yield Violation(
                field,
                "converts a checkpoint with the packages of the image alone, without runtime.packages; if the model "
                "needs these, use an image that has them",
            )


CHECKS: tuple[Check, ...] = (_packages_are_not_of_the_image, _wheelhouse_is_mounted)
WARNINGS: tuple[Check, ...] = (_conversions_use_the_image_alone,)
