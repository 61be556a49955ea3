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
ASCEND = [
    "BASE_IMAGE=cann@sha256:1",
    *(f"@{platform}/TRITON_ASCEND_WHEEL={machine}.whl" for platform, machine in MACHINES.items()),
    *(f"@{platform}/TRITON_ASCEND_SHA256={machine}" for platform, machine in MACHINES.items()),
    *("TORCH_WHEEL=torch-x86_64.whl", "TORCH_SHA256=3"),
]


def given(words: list[str], image: OwnImage, platform: str) -> dict[str, str]:
    statements = arguments.parse(words)
    arguments.check(statements, [image])
    return arguments.of_build(statements, image, platform)


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
            words = [word for word in ASCEND if wheel not in word or f"@{platform}" not in word.partition("=")[0]]
            words = [word for word in words if not word.startswith(wheel)]
            try:
                step(distribution, "", "", machine)
            except SystemExit:
                with pytest.raises(ValueError, match=f"runtime:a3@{platform}/{wheel}=VALUE"):
                    given(words, A3, platform)
            else:
                assert wheel not in given(words, A3, platform)


def test_an_argument_that_names_its_build_takes_precedence() -> None:
    words = [
        *ASCEND,
        "runtime:a3/BASE_IMAGE=a3",
        "@linux/arm64/BASE_IMAGE=arm64",
        "runtime:a3@linux/amd64/BASE_IMAGE=x",
    ]
    assert given(words, A3, AMD64)["BASE_IMAGE"] == "x"
    assert given(words, A3, ARM64)["BASE_IMAGE"] == "a3"
    others = [word for word in words if not word.startswith("runtime:a3")]
    assert given(others, IMAGES["runtime:a2"], ARM64)["BASE_IMAGE"] == "arm64"
    assert given(others, IMAGES["runtime:a2"], AMD64)["BASE_IMAGE"] == "cann@sha256:1"


def test_every_declared_argument_that_is_stated_is_passed() -> None:
    words = [*ASCEND, "MINDSPEED_REPOSITORY=https://git.example.com/m.git", "runtime:a3/CANN_VERSION=9.1.1"]
    for platform in (AMD64, ARM64):
        found = given(words, A3, platform)
        assert found["MINDSPEED_REPOSITORY"] == "https://git.example.com/m.git"
        assert found["CANN_VERSION"] == "9.1.1"
        assert found.keys() <= arguments.declared(A3)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["TRITON_ASCEND_WHEL=a"], "images/runtime/ascend/Dockerfile declares no ARG TRITON_ASCEND_WHEL"),
        (["operator/TORCH_WHEEL=a"], "--image does not select operator; add --image operator"),
        (["runtime:a5/BASE_IMAGE=a"], "no image runtime:a5; there are operator, "),
        (["@linux/riscv64/BASE_IMAGE=a"], "no platform linux/riscv64; there are linux/amd64, linux/arm64"),
        (["runtime:a3/=a"], "'' is no name of an argument"),
        (["=a"], "'' is no name of an argument"),
        (["/BASE_IMAGE=a"], "an image or platform is missing"),
        (["runtime:a3@/BASE_IMAGE=a"], "an image or platform is missing"),
        (["BASE_IMAGE"], "no value; write "),
        (["BASE_IMAGE=a", "BASE_IMAGE=b"], "BASE_IMAGE is stated twice"),
        (["TRITON_ASCEND_WHEEL=a"], "a value of its own; write @linux/amd64/TRITON_ASCEND_WHEEL=VALUE"),
        (["BASE_IMAGE="], "runtime:a3 needs --build-arg runtime:a3/BASE_IMAGE=VALUE"),
    ],
)  # fmt: skip
def test_what_no_build_takes_is_refused(words: list[str], complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)) as refused:
        given(words, A3, AMD64)
    assert "=a" not in str(refused.value)


def test_a_platform_that_an_image_is_not_built_for_is_refused() -> None:
    with pytest.raises(ValueError, match="runtime:cpu is built for linux/amd64 only"):
        given(["BASE_IMAGE=a", "runtime:cpu@linux/arm64/BASE_IMAGE=b"], IMAGES["runtime:cpu"], AMD64)
