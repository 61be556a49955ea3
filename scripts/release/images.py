"""The images of a release, and those of other projects that an installation pulls; deploy/images.txt lists them.

`python -m scripts.release.images REGISTRY VERSION FILE` writes the list of a release.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCAL_REGISTRY = "rljob.local"
"""Where `make images` puts images (image.registry of the chart)."""
MACHINES = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
"""Platform -> what locks that are for one platform end with."""
BOTH = ("linux/amd64", "linux/arm64")
ASCEND = ("linux/arm64", "linux/amd64")


@dataclass(frozen=True)
class Required:
    """A build argument that the site states."""

    name: str
    platforms: tuple[str, ...] = ()
    """The only platforms whose builds take it; empty: all."""
    differs: bool = False
    """The site states one for each platform, because no value suits two."""


@dataclass(frozen=True)
class OwnImage:
    """An image that a release builds."""

    name: str
    """Repository and, for the runtime, tag; the operator's tag is the release's version."""
    dockerfile: str
    purpose: str
    locks: tuple[str, ...]
    """Locks in requirements/ whose packages the image contains."""
    tools: tuple[str, ...]
    """Locks that only its build installs."""
    platforms: tuple[str, ...] = BOTH
    arguments: tuple[tuple[str, str], ...] = ()
    """Build arguments that do not depend on the site."""
    required: tuple[Required, ...] = (Required("BASE_IMAGE"),)
    context: str = "."
    """Folder that the Dockerfile copies from."""
    go: bool = False
    """Whether it has a program in Go, whose go.mod and go.sum are in the context."""


ASCEND_LOCKS = ("runtime-ascend-aarch64", "runtime-ascend-x86_64", "runtime-ascend-vllm", "suffix")
ASCEND_ARGUMENTS = (
    Required("BASE_IMAGE"),
    Required("TRITON_ASCEND_WHEEL", differs=True),
    Required("TRITON_ASCEND_SHA256", differs=True),
    # On arm64 the lock has the wheel of torch that torch-npu requires (images/runtime/ascend/prepare.py).
    Required("TORCH_WHEEL", ("linux/amd64",)),
    Required("TORCH_SHA256", ("linux/amd64",)),
)
OWN = (
    OwnImage(
        "operator",
        "images/operator/Dockerfile",
        "operator; its runtime is injected into images without one",
        ("operator", "runtime-code", "runtime-verl"),
        ("build",),
    ),
    OwnImage(
        "runtime:cpu",
        "images/runtime/Dockerfile",
        "jobs of class cpu",
        ("runtime-cpu", "suffix"),
        ("uv",),
        ("linux/amd64",),
    ),
    OwnImage(
        "runtime:a2",
        "images/runtime/ascend/Dockerfile",
        "jobs on Atlas A2",
        ASCEND_LOCKS,
        ("uv",),
        ASCEND,
        (("SOC_VERSION", "ascend910b1"), ("CANN_VERSION", "9.1.0")),
        ASCEND_ARGUMENTS,
    ),
    OwnImage(
        "runtime:a3",
        "images/runtime/ascend/Dockerfile",
        "jobs on Atlas A3",
        ASCEND_LOCKS,
        ("uv",),
        ASCEND,
        (("SOC_VERSION", "ascend910_9391"), ("CANN_VERSION", "9.1.0")),
        ASCEND_ARGUMENTS,
    ),
    OwnImage(
        "fakenpu",
        "images/fakenpu/Dockerfile",
        "devices on nodes without NPUs, only for trials",
        (),
        (),
        context="tests/cluster/programs/fakenpu",
        go=True,
    ),
)
UPSTREAM = (
    ("kuberay", "github.com/ray-project/kuberay/ray-operator", "quay.io/kuberay/operator", "KubeRay, required"),
    ("kueue", "sigs.k8s.io/kueue", "registry.k8s.io/kueue/kueue", "Kueue, only for queues"),
)
"""Folder of the pinned module, its name, its image, and what it is for."""


def own_name(image: OwnImage, registry: str, version: str) -> str:
    """Return the full name of an image of a release. Tags of the runtime begin with the release's version."""
    repository, _, tag = image.name.partition(":")
    local = registry == LOCAL_REGISTRY
    whole = (tag or "dev") if local else f"{version}-{tag}" if tag else version
    return f"{registry}/{repository}:{whole}"


def bills(image: OwnImage) -> dict[str, tuple[str, ...]]:
    """Return the bills of an image's Python packages with their locks: one, or one per platform if its locks differ."""
    name = image.name.replace(":", "-")
    if not image.locks:
        return {}
    machines = [MACHINES[platform] for platform in image.platforms]
    differing = [machine for machine in machines if any(lock.endswith(machine) for lock in image.locks)]
    if not differing:
        return {name: image.locks}
    found = {}
    for machine in differing:
        others = tuple(other for other in machines if other != machine)
        found[f"{name}-{machine}"] = tuple(lock for lock in image.locks if not lock.endswith(others))
    return found


def upstream_images() -> list[tuple[str, str]]:
    """Return names and purposes of images of other projects, in the versions that the tests use."""
    found = []
    for folder, module, image, purpose in UPSTREAM:
        text = (ROOT / "tests/cluster/programs" / folder / "go.mod").read_text()
        version = re.search(rf"^(?:require )?\s*{re.escape(module)} (v\S+)", text, re.MULTILINE)
        if version is None:
            raise ValueError(f"tests/cluster/programs/{folder}/go.mod requires no {module}")
        found.append((f"{image}:{version.group(1)}", purpose))
    return found


def images_text(registry: str = LOCAL_REGISTRY, version: str = "") -> str:
    """Return the list of images, one a line with its purpose."""
    rows = [(own_name(image, registry, version), image.purpose) for image in OWN] + upstream_images()
    width = max(len(name) for name, _ in rows)
    head = "# Generated by `make generate` from scripts/release/images.py; do not edit.\n"
    return head + "".join(f"{name:<{width}}  # {purpose}\n" for name, purpose in rows)


def read_names(text: str) -> list[str]:
    """Return the names in such a list."""
    return [name for line in text.splitlines() if (name := line.partition("#")[0].strip())]


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(images_text(sys.argv[1], sys.argv[2]))
