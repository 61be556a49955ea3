"""Published images for Ascend, and what their Dockerfiles install. Data.

Nothing was pulled: a version is pinned by a line of a Dockerfile or of the requirements that it installs, or it is what
an index gave for them on the day of the build. The latter come from

    uv pip compile --exclude-newer DAY --python-version X.Y --python-platform aarch64-manylinux_2_35

over the same requirements, with the pinned versions as overrides. `python -m upstream.published_images` compares the
lines with clones.
"""

from __future__ import annotations

from dataclasses import dataclass

VERL = "verl.git"
ASCEND = "vllm-ascend.git"
VERL_MAIN = "1dda039b9c6311889a9c9a26040677e1254814f9"
"""Of the main branch, 2026-08-22. Its docker/ascend has the Dockerfiles of all releases, and supported_tags.md."""
VERL_08 = "3e4edb6e3d6872ad8aa21af83e98ee6e1bea19a2"
"""Head of release/v0.8.0, which the Dockerfile clones."""
VERL_071 = "bec9ef74768dd201881cd4e54cd0385e87caae27"
"""Tag v0.7.1."""
ASCEND_023 = "5cb98caaadeff42b5b62b996e34bb2aaa29d20fd"
"""Tag v0.23.0."""
ASCEND_023_BRANCH = "50e87d630528418b54c8cfddca6c3f4f49d6563a"
"""releases/v0.23.0 on 2026-08-22, 12 commits after the tag."""
ASCEND_018_BRANCH = "35b0fdf7d57aee5bd93793e03506ae2d85959595"
"""releases/v0.18.0 on 2026-08-07, 45 commits after the tag; 40 of them on 2026-07-08."""
ASCEND_013_BRANCH = "f92eadfca968666893715f0a295f036c7bc9d207"
"""Head of releases/v0.13.0."""


@dataclass(frozen=True)
class File:
    """A file at a commit."""

    clone: str
    commit: str
    path: str


@dataclass(frozen=True)
class Fact:
    """A version, and the line that pins it."""

    name: str
    """Distribution; `python` and `cann` for the base image."""
    version: str
    file: File
    text: str
    """In a line of the file."""


@dataclass(frozen=True)
class PublishedImage:
    """One image, in its variants for A3 and A2."""

    repository: str
    tags: tuple[str, ...]
    """For A3, then for A2."""
    facts: tuple[Fact, ...]
    day: str
    """Day of the build, as far as it is known."""
    newest: tuple[tuple[str, str], ...]
    """Packages that no line pins, with the release that the index gave on that day."""
    present: str
    """Names of packages that are there in any release."""
    moves: bool = False
    """The tag is moved to newer builds."""

    @property
    def versions(self) -> dict[str, str]:
        """Return every distribution with its version; those of `present` have none that matters."""
        pinned = {fact.name: fact.version for fact in self.facts if fact.name not in {"python", "cann"}}
        return {**dict.fromkeys(self.present.split(), "any"), **dict(self.newest), **pinned}

    def of_base(self, name: str) -> str:
        """Return the version of `python` or `cann`."""
        return next(fact.version for fact in self.facts if fact.name == name)


def _base(file: File, python: str, cann: str) -> tuple[Fact, ...]:
    text = f"cann:{cann}-a3-ubuntu22.04-py{python}"
    return Fact("python", python, file, text), Fact("cann", cann, file, text)


_TRANSFORMERS = "git checkout cc7ab9be508ce6ed3637bba9e50367b29b742dc6"
"""src/transformers/__init__.py at this commit: 5.3.0.dev0."""
_F08 = File(VERL, VERL_MAIN, "docker/ascend/Dockerfile.ascend_9.0.0_a3_v0.8.0")
_R08 = File(VERL, VERL_08, "requirements-npu.txt")
_F91 = File(VERL, VERL_MAIN, "docker/ascend/Dockerfile.ascend_9.1.0_a3")
_R91 = File(VERL, VERL_MAIN, "requirements-npu.txt")
_F071 = File(VERL, VERL_MAIN, "docker/ascend/Dockerfile.ascend_8.5.0_a3_v0.7.1")
_R071 = File(VERL, VERL_071, "requirements-npu.txt")
_A18 = File(ASCEND, ASCEND_018_BRANCH, "requirements.txt")
_A23 = File(ASCEND, ASCEND_023_BRANCH, "requirements.txt")
_A13 = File(ASCEND, ASCEND_013_BRANCH, "requirements.txt")
_FVA = File(ASCEND, ASCEND_023, "Dockerfile.a3")
_RVA = File(ASCEND, ASCEND_023, "requirements.txt")
_OF_VLLM = (
    "aiohttp cachetools cloudpickle fastapi msgspec pandas pillow psutil pydantic pyyaml pyzmq regex tqdm uvicorn "
    "arctic-inference"
)
"""What vLLM and vllm-ascend bring."""
_OF_VERL = f"{_OF_VLLM} accelerate codetiming datasets hydra-core omegaconf orjson peft torchdata"
IMAGES = (
    PublishedImage(
        "quay.io/ascend/verl",
        ("latest-vllm-a3-ubuntu", "latest-vllm-910b-ubuntu"),
        (
            *_base(_F91, "3.12", "9.1.0"),
            Fact("vllm", "0.23.0+empty", _F91, "--branch v0.23.0 https://github.com/vllm-project/vllm.git"),
            # setuptools_scm counts the commits after the tag v0.23.0.
            Fact("vllm-ascend", "0.23.1.dev12+g50e87d630", _F91, "git clone -b releases/v0.23.0"),
            Fact("torch", "2.10.0", _A23, "torch==2.10.0"),
            Fact("torch-npu", "2.10.0.post4", _A23, "torch-npu==2.10.0.post4"),
            Fact("transformers", "5.3.0.dev0", _F91, _TRANSFORMERS),
            Fact("numpy", "1.26.4", _R91, "numpy<2.0.0"),
            Fact("pyarrow", "24.0.0", _R91, "pyarrow>=15.0.0,<=24.0.0"),
            # TransferQueue needs 0.10.0 or later.
            Fact("tensordict", "0.10.0", _R91, "tensordict>=0.8.0,<=0.10.0,!=0.9.0"),
            Fact(
                "transferqueue", "0.1.11", _R91, "TransferQueue @ git+https://github.com/Ascend/TransferQueue.git@main"
            ),
            Fact("verl", "0.10.0.dev0", _F91, "git clone --recursive https://github.com/verl-project/verl.git"),
        ),
        "2026-08-22",
        (("ray", "2.58.0"), ("packaging", "26.3"), ("prometheus-client", "0.26.0")),
        _OF_VERL,
        moves=True,
    ),
    PublishedImage(
        "quay.io/ascend/verl",
        (
            "v0.8.0-cann9.0.0-torch_npu2.9.0.post2-a3-ubuntu22.04-py3.11-vllm",
            "v0.8.0-cann9.0.0-torch_npu2.9.0.post2-910b-ubuntu22.04-py3.11-vllm",
        ),
        (
            *_base(_F08, "3.11", "9.0.0"),
            Fact("vllm", "0.18.0+empty", _F08, "--branch v0.18.0 https://github.com/vllm-project/vllm.git"),
            Fact("vllm-ascend", "0.18.1.dev40+g3cf31e3db", _F08, "git clone -b releases/v0.18.0"),
            Fact("torch", "2.9.0", _A18, "torch==2.9.0"),
            Fact("torch-npu", "2.9.0.post2", _A18, "torch-npu==2.9.0.post2"),
            Fact("transformers", "5.3.0.dev0", _F08, _TRANSFORMERS),
            Fact("numpy", "1.26.4", _R08, "numpy<2.0.0"),
            Fact("pyarrow", "24.0.0", _R08, "pyarrow>=15.0.0,<=24.0.0"),
            Fact("tensordict", "0.10.0", _R08, "tensordict>=0.8.0,<=0.10.0,!=0.9.0"),
            Fact("transferqueue", "0.1.7", _R08, "TransferQueue==0.1.7"),
            Fact("verl", "0.8.0", _F08, "git clone -b release/v0.8.0"),
        ),
        "2026-07-08",
        (("ray", "2.56.0"), ("packaging", "25.0"), ("prometheus-client", "0.25.0")),
        _OF_VERL,
    ),
    PublishedImage(
        "quay.io/ascend/verl",
        ("verl-8.5.0-a3-ubuntu22.04-py3.11-v0.7.1", "verl-8.5.0-910b-ubuntu22.04-py3.11-v0.7.1"),
        (
            *_base(_F071, "3.11", "8.5.0"),
            Fact("vllm", "0.13.0+empty", _F071, "--branch v0.13.0 https://github.com/vllm-project/vllm.git"),
            Fact("vllm-ascend", "0.13.1.dev15", _F071, "git clone -b releases/v0.13.0"),
            Fact("torch", "2.8.0", _A13, "torch==2.8.0"),
            Fact("torch-npu", "2.8.0", _F071, "torch_npu==2.8.0"),
            Fact("transformers", "4.57.6", _F071, "transformers==4.57.6"),
            Fact("numpy", "1.26.4", _R071, "numpy<2.0.0"),
            Fact("tensordict", "0.8.3", _R071, "tensordict>=0.8.0,<=0.10.0,!=0.9.0"),
            Fact("verl", "0.7.1", _F071, "git clone -b release/v0.7.1"),
        ),
        "2026-03-16",
        (("ray", "2.54.0"), ("packaging", "26.0"), ("prometheus-client", "0.24.1"), ("pyarrow", "23.0.1")),
        _OF_VERL,
    ),
    PublishedImage(
        "quay.io/ascend/vllm-ascend",
        ("v0.23.0-a3", "v0.23.0"),
        (
            *_base(_FVA, "3.12", "9.1.0"),
            Fact("vllm", "0.23.0+empty", _FVA, "ARG VLLM_TAG=v0.23.0"),
            Fact("vllm-ascend", "0.23.0", _FVA, "COPY . /vllm-workspace/vllm-ascend/"),
            Fact("ray", "2.48.0", _FVA, "ray>=2.47.1,<=2.48.0"),
            Fact("torch", "2.10.0", _RVA, "torch==2.10.0"),
            Fact("torch-npu", "2.10.0.post4", _RVA, "torch-npu==2.10.0.post4"),
            Fact("transformers", "5.5.4", _RVA, "transformers==5.5.4"),
        ),
        "2026-08-17",
        (("numpy", "2.3.5"), ("packaging", "26.3"), ("prometheus-client", "0.26.0")),
        _OF_VLLM,
    ),
)
