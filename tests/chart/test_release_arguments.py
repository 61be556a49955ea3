"""Build arguments of a release: every build gets those that it needs, and none that the site states is ignored."""

from __future__ import annotations

import re
import runpy

import pytest

from scripts.release import arguments
from scripts.release.images import MACHINES, OWN, ROOT, OwnImage

AMD64, ARM64 = "linux/amd64", "linux/arm64"
IMAGES = {image.name: image for image in OWN}
A3 = IMAGES["runtime:a3"]
ASCEND: dict[str, dict[str, str]] = {
    "": {"BASE_IMAGE": "cann@sha256:1", "TORCH_WHEEL": "torch-x86_64.whl", "TORCH_SHA256": "3"},
    **{
        f"@{platform}": {"TRITON_ASCEND_WHEEL": f"{machine}.whl", "TRITON_ASCEND_SHA256": machine}
        for platform, machine in MACHINES.items()
    },
}


def given(stated: arguments.Stated, image: OwnImage, platform: str) -> dict[str, str]:
    arguments.check(stated)
    return arguments.of_build(stated, image, platform)


@pytest.mark.parametrize("name", ["runtime:a2", "runtime:a3"])
def test_an_ascend_image_gets_the_wheels_of_each_platform(name: str) -> None:
    own = dict(IMAGES[name].arguments) | {"BASE_IMAGE": "cann@sha256:1"}
    amd64, arm64 = (given(ASCEND, IMAGES[name], platform) for platform in (AMD64, ARM64))
    torch = {"TORCH_WHEEL": "torch-x86_64.whl", "TORCH_SHA256": "3"}
    assert amd64 == own | torch | {"TRITON_ASCEND_WHEEL": "x86_64.whl", "TRITON_ASCEND_SHA256": "x86_64"}
    # prepare.py would install a wheel of torch that is named here over the correct one of the lock.
    assert arm64 == own | {"TRITON_ASCEND_WHEEL": "aarch64.whl", "TRITON_ASCEND_SHA256": "aarch64"}


def test_what_the_build_demands_is_required() -> None:
    """Without a wheel, prepare.py fails on a platform exactly if the release requires the argument there."""
    step = runpy.run_path(str(ROOT / "images/runtime/ascend/prepare.py"))["install_wheel"]
    for distribution in ("torch", "triton-ascend"):
        wheel = f"{distribution.upper().replace('-', '_')}_WHEEL"
        for platform, machine in MACHINES.items():
            stated = {
                place: {name: value for name, value in table.items() if name != wheel or place == f"@{other}"}
                for place, table in ASCEND.items()
                for other in MACHINES
                if other != platform
            }
            try:
                step(distribution, "", "", machine)
            except SystemExit:
                with pytest.raises(ValueError, match=rf'runtime:a3 needs \["runtime:a3@{platform}"\] {wheel}'):
                    given(stated, A3, platform)
            else:
                assert wheel not in given(stated, A3, platform)


def test_an_argument_that_names_its_build_takes_precedence() -> None:
    stated = {
        **ASCEND,
        "runtime:a3": {"BASE_IMAGE": "a3", "CANN_VERSION": "9.1.1"},
        f"@{ARM64}": ASCEND[f"@{ARM64}"] | {"BASE_IMAGE": "arm64"},
        f"runtime:a3@{AMD64}": {"BASE_IMAGE": "x"},
    }
    assert given(stated, A3, AMD64)["BASE_IMAGE"] == "x"
    assert given(stated, A3, ARM64)["BASE_IMAGE"] == "a3"
    assert given(stated, A3, ARM64)["CANN_VERSION"] == "9.1.1"
    assert given(stated, IMAGES["runtime:a2"], ARM64)["BASE_IMAGE"] == "arm64"
    assert given(stated, IMAGES["runtime:a2"], AMD64)["BASE_IMAGE"] == "cann@sha256:1"


def test_an_image_gets_what_its_dockerfile_declares_and_nothing_else() -> None:
    stated = ASCEND | {"": ASCEND[""] | {"MINDSPEED_REPOSITORY": "https://git.example.com/m.git"}}
    assert given(stated, A3, ARM64)["MINDSPEED_REPOSITORY"] == "https://git.example.com/m.git"
    assert given(stated, IMAGES["operator"], ARM64) == {"BASE_IMAGE": "cann@sha256:1"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('TRITON_ASCEND_WHEL = "a"', "declares no ARG TRITON_ASCEND_WHEL; correct the name"),
        ('["operator"]\nTORCH_WHEEL = "a"', '["operator"] TORCH_WHEEL: images/operator/Dockerfile declares no ARG'),
        ('["runtime:a5"]\nBASE_IMAGE = "a"', '["runtime:a5"]: no such build; there are @linux/amd64'),
        ('["runtime:cpu@linux/arm64"]\nBASE_IMAGE = "a"', '["runtime:cpu@linux/arm64"]: no such build'),
        ('["@linux/riscv64"]\nBASE_IMAGE = "a"', '["@linux/riscv64"]: no such build'),
        ('TRITON_ASCEND_WHEEL = "a"', 'TRITON_ASCEND_WHEEL: each platform has a value of its own; write ["@PLATFORM"]'),
        ("BASE_IMAGE = 1", "BASE_IMAGE: write the value in quotation marks"),
        ("BASE_IMAGE", "Expected '='"),
        ('BASE_IMAGE = "a"\nBASE_IMAGE = "a"', "Cannot overwrite a value"),
        ('BASE_IMAGE = ""', 'runtime:a3 needs ["runtime:a3"] BASE_IMAGE; see images/runtime/ascend/Dockerfile'),
    ],
)  # fmt: skip
def test_what_no_build_takes_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)) as refused:
        given(arguments.parse(text), A3, AMD64)
    assert '"a"' not in str(refused.value)
