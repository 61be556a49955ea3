"""The generated page on the Ascend image: versions, compatibility, build arguments and the content of each layer.

The versions are read from where they are used: the locks, the Dockerfile and the pins of upstream/megatron_names.py.
Tests (tests/house/test_ascend_image.py) ensure that they are equal. Pure, except for reading files of the repository.
"""

from __future__ import annotations

import re
from pathlib import Path

from rljob_runtime.planning.ascend_names import MINDSPEED_REQUIRES, VLLM_ASCEND_DEVICE, VLLM_ASCEND_WHEEL
from scripts.reference import HEADER, table
from upstream.megatron_names import MEGATRON, MINDSPEED

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "images/runtime/ascend"
DOCKERFILE = FOLDER / "Dockerfile"
MACHINES = ("aarch64", "x86_64")
LOCKS = {machine: ROOT / f"requirements/runtime-ascend-{machine}.txt" for machine in MACHINES}
VLLM_LOCK = ROOT / "requirements/runtime-ascend-vllm.txt"
SUFFIX_LOCK = ROOT / "requirements/suffix.txt"

CANN = "9.1.0"
"""Of vllm-ascend 0.23.0: its documentation on the main branch, release compatibility matrix; docs/source/conf.py."""
TRITON_ASCEND = "3.2.2"
"""The version that vllm-ascend's wheel requires."""

USE = """\
One image per generation of hardware (A2, A3) and architecture of the hosts (arm64, amd64): operators are compiled for
one generation, and an image for another one fails when it loads them. Nothing on this page has been run on an NPU yet
(`rljob conformance`: `image-check`, `trains`).
`python /opt/ascend/check.py` in the image reports what is wrong with it, at the end of the build and at any later time.
"""
COMPATIBLE = (
    ("**this image**", CANN, "25.2 to 26.1", "2.10.0 / 2.10.0.post4", "0.23.0 / 0.23.0", "0.9.1", "core_r0.16.0"),
    ("verl 0.8.0", "9.0.0", "25.0 to 26.1", "2.9.0 / 2.9.0.post2", "0.18.0 / 0.18.0", "0.8.0", "core_r0.16.0"),
    ("verl 0.7.1", "8.5.0", "25.0 to 25.5", "2.8.0 / 2.8.0.post2", "0.13.0 / 0.13.0", "0.7.1", "2.3.0_core_r0.12.1"),
    ("verl 0.7.0", "8.3.RC1", "", "2.7.1 / 2.7.1", "0.11.0 / 0.11.0", "0.7.0", "f2b0977e"),
    ("verl 0.6.1", "8.2.RC1", "", "2.5.1 / 2.5.1.post1", "0.9.1 / 0.9.1", "0.6.1", "core_v0.12.1"),
)
SOURCES = """\
Sources: CANN and driver: release notes of CANN 8.5.0, 9.0.1 and 9.1.0 (hiascend.com), compatibility tables; CANN,
torch, torch_npu, vLLM and vllm-ascend: vllm-ascend, docs/source/community/versioning_policy.md on its main branch, and
the requirements in the wheel of 0.23.0; verl, Megatron-LM and MindSpeed: verl's Ascend guides and Dockerfiles of each
release. The IPC path of verl's weight transfer needs driver 25.3.RC1 and CANN 8.3.RC1 or newer; otherwise the transfer
uses /dev/shm (verl, utils/device.py).
"""
NEWER = """\
vllm-ascend 0.23.0.post1 is not taken: it was released as source only, and the image installs a wheel where operators
are those of A2. It changes four modules (worker/model_runner_v1.py, patch/worker/patch_mamba_utils.py,
quantization/methods/w8a8_mxfp8.py, _310p/model_runner_310p.py) and pins memfabric_hybrid and memcache_hybrid to
1.2.0; none of the names that this project relies on moved. One fix concerns rollouts with `rollout.parallelism.data`
above 1: dummy runs of idle ranks no longer write into the KV cache through stale slot mappings (vllm-ascend#15362).
`make upstream` prints the newest release of every pin.
"""
ARGUMENTS = {
    "BASE_IMAGE": "public CANN image by digest, such as quay.io/ascend/cann:9.1.0-a3-ubuntu22.04-py3.11; required",
    "SOC_VERSION": "ascend910b1 for A2, ascend910_9391 for A3 (vllm-ascend, setup.py)",
    "CANN_VERSION": "for the label only",
    "TRITON_ASCEND_WHEEL": f"URL or file of triton-ascend {TRITON_ASCEND} for CPython 3.11, Huawei's index; required",
    "TRITON_ASCEND_SHA256": "its digest",
    "TORCH_WHEEL": (
        "amd64 only: URL or file of torch 2.10.0+cpu for CPython 3.11, from PyTorch's own index; required by torch-npu"
    ),
    "TORCH_SHA256": "its digest",
    "MEGATRON_REPOSITORY": "a mirror",
    "MEGATRON_COMMIT": f"branch {MEGATRON.branch}",
    "MINDSPEED_REPOSITORY": "a mirror",
    "MINDSPEED_COMMIT": f"branch {MINDSPEED.branch}",
    "VLLM_ASCEND_REPOSITORY": "a mirror",
    "VLLM_ASCEND_COMMIT": f"tag v0.23.0; compiled for A3, because the wheel on the index is for {VLLM_ASCEND_DEVICE}",
    "PREBUILD_OPERATORS": "0 leaves compiling MindSpeed's operators to the first job",
}
INPUTS = (
    ("base image", "its digest", "`BASE_IMAGE`: any registry"),
    (
        "Python packages",
        "version and hash (`requirements/`)",
        "the index: `PIP_INDEX_URL`, `UV_INDEX_URL` in the base image",
    ),
    ("triton-ascend; torch for amd64", "the digest that you pass", "`…_WHEEL`: a URL or a file"),
    ("Megatron-LM, MindSpeed, vllm-ascend", "their commits", "`…_REPOSITORY`: any clone"),
    (
        "catlass, a submodule of vllm-ascend, for A3",
        "the commit of vllm-ascend",
        "gitcode.com; no argument (vllm-ascend v0.23.0, .gitmodules)",
    ),
    (
        "archives that vllm-ascend's CMake downloads for A3: abseil, protobuf, json, libboundscheck",
        "**not pinned**: a URL with a release, without a hash",
        "gitcode.com, gitee.com; no argument (vllm-ascend v0.23.0, csrc/cmake/third_party)",
    ),
    (
        "packages of Ubuntu: compilers, jemalloc, numactl",
        "**not pinned**: the newest of the base image's release",
        "the package sources of the base image",
    ),
)
PINNED = """\
What the build downloads, what determines it, and where a mirror is named. An image for A3 cannot be built without a
way to gitcode.com and gitee.com; one for A2 takes vllm-ascend's wheel, and can.
"""
PYTHON = """\
The image has Python 3.11, while those of vllm-ascend and verl for CANN 9.1.0 have 3.12 (vllm-ascend v0.23.0,
Dockerfile.a3:18). The locks, the wheels of triton-ascend and vllm-ascend, and the image for CPUs, whose tests run the
same verl, vLLM and Ray, are for 3.11; a second set would double what is tested and gain no release. CANN's images
have 3.11 beside 3.12 in every release whose Dockerfiles are public (Ascend/cann-container-image c5a67b3a7, up to
9.1.0-beta.3). A tag of 9.1.0 with 3.11 has not been seen: if the registry has none, build the base image from that
repository, or take a [published image](published-images.md).
"""
LAYERS = (
    ("lock and sync", "uv with hashes, into /opt/venv", "the same commands, another lock"),
    (
        "strip",
        "files that no process loads",
        "strip.py of the CPU image, which keeps headers here because operators need them",
    ),
    ("user and folders", "any user; group 0 may write", "the same text"),
    ("`system`", "compilers, jemalloc, CANN's environment for every shell", "Ascend only"),
    ("`build`", "vllm-ascend for A3, Megatron-LM, MindSpeed, operators", "Ascend only"),
)
BUILT = """\
`make test` builds the stage `system` on a Debian without CANN: `python -m tests.cluster image build ascend-system`. The
other stages need more: `install` needs the wheel of triton-ascend, which is not on PyPI, and gigabytes of packages;
`build` needs CANN's compilers; the last stage, which ends with check.py, builds on these two.
"""
CONFLICTS = """\
The distributions of a lock do not contradict each other, except for the entries of `overrides.txt`, which state the
reason. MindSpeed is installed from source without its metadata, because that requires packages that verl excludes or
that are not needed at run time:
"""
CACHES = """\
- MindSpeed's operators are compiled into `TORCH_EXTENSIONS_DIR=/opt/ascend/extensions` while the image is built
  (images/runtime/ascend/operators.py). A new CANN requires a new image, so operators match their compiler.
- jemalloc is preloaded by `ENV LD_PRELOAD=/usr/local/lib/libjemalloc.so.2`, the same path for both architectures. The
  shell that starts Ray does not read `.bashrc`. A wrong path only prints a warning, so check.py inspects
  /proc/self/maps.
- CANN's `set_env.sh` is sourced for every shell through `BASH_ENV` and `/etc/profile.d`: KubeRay starts Ray with
  `bash -c`, and all workers inherit the environment from their raylet.
"""


def locked(path: Path) -> dict[str, str]:
    """Read a lock: name -> version."""
    return dict(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", path.read_text(), re.MULTILINE))


def defaults() -> dict[str, str]:
    """Return the arguments of the Dockerfile with their first default."""
    found: dict[str, str] = {}
    for name, value in re.findall(r"^ARG (\w+)(?:=(\S*))?$", DOCKERFILE.read_text(), re.MULTILINE):
        found.setdefault(name, value.strip('"'))
        found[name] = found[name] or value.strip('"')
    return found


def mindspeed_conflicts() -> list[str]:
    """Return the requirements in MindSpeed's metadata that the locks do not satisfy."""
    versions = locked(LOCKS["aarch64"])
    missing = []
    for text in MINDSPEED_REQUIRES.split():
        name = re.split("[<>=]", text)[0].lower().replace("_", "-")
        if name not in versions:
            missing.append(f"{text} (not installed)")
        elif bound := re.search(r"<=([\d.]+)", text):
            limit = tuple(int(part) for part in bound[1].split("."))
            if tuple(int(part) for part in versions[name].split(".")[:3]) > limit:
                missing.append(f"{text} (installed: {versions[name]})")
    return missing


def ascend_image_page() -> str:
    """Return docs/reference/ascend-image.md."""
    versions, other = locked(LOCKS["aarch64"]), locked(LOCKS["x86_64"])
    names = (
        "torch",
        "torch-npu",
        "vllm-ascend",
        "verl",
        "ray",
        "transformers",
        "tensordict",
        "transferqueue",
        "mbridge",
    )
    packages = [(name, versions[name], other[name]) for name in names]
    packages.append(("vllm", f"{locked(VLLM_LOCK)['vllm']}, from its sdist, for no device", "the same"))
    packages.append(("arctic-inference", f"{locked(SUFFIX_LOCK)['arctic-inference']}, its suffix trees", "the same"))
    packages.append(("triton-ascend", f"{TRITON_ASCEND}, a build argument", "the same"))
    packages.append(("CANN", f"{CANN}, the base image", "the same"))
    packages.append(("Megatron-LM", f"{MEGATRON.branch}, {MEGATRON.commit[:12]}", "the same"))
    packages.append(("MindSpeed", f"{MINDSPEED.branch}, {MINDSPEED.commit[:12]}", "the same"))
    given = defaults()
    arguments = [(f"`{name}`", given[name] and f"`{given[name][:40]}`", what) for name, what in ARGUMENTS.items()]
    head = ("set", "CANN", "driver (HDK)", "torch / torch_npu", "vLLM / vllm-ascend", "verl", "Megatron-LM, MindSpeed")
    parts = [
        HEADER,
        "# The Ascend runtime image\n",
        USE,
        "## Versions\n",
        f"{len(versions)} packages for arm64, {len(other)} for amd64, by hash. Python 3.11.\n",
        table(("package", "arm64", "amd64"), packages),
        "## Compatibility\n",
        table(head, COMPATIBLE),
        SOURCES,
        NEWER,
        "## Arguments of the build\n",
        f"The symbols of vllm-ascend that this project relies on were read from `{VLLM_ASCEND_WHEEL}`.\n",
        table(("argument", "default", "what"), arguments),
        "## Inputs\n",
        PINNED,
        table(("input", "determined by", "taken from"), INPUTS),
        "## Python\n",
        PYTHON,
        "## Layers\n",
        table(("layer", "what", "shared with the CPU image"), LAYERS),
        BUILT,
        "## Conflicts\n",
        CONFLICTS,
        "\n".join(f"- {line}" for line in mindspeed_conflicts()) + "\n",
        "## Caches, allocator, environment\n",
        CACHES,
    ]
    return "\n".join(parts)
