"""The pinned upstream sources, and which of their files are read. Imports only the standard library."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """A released package, or a commit of a repository."""

    name: str
    version: str
    package: str
    """Name on PyPI, or repository on GitHub."""
    scope: tuple[str, ...]
    """Patterns of the files that are read; `*` also matches `/`."""
    left_out: tuple[str, ...] = ()
    """Patterns of files in scope that no run of ours reaches, such as other engines."""
    whole: tuple[str, ...] = ()
    """Patterns of files that consist of configuration, so that every condition in them counts."""

    def reads(self, path: str) -> bool:
        """Report whether a file is in scope."""
        return path.endswith(".py") and _matches(path, self.scope) and not _matches(path, self.left_out)

    def is_whole(self, path: str) -> bool:
        """Report whether every condition of a file counts."""
        return _matches(path, self.whole)

    def files(self, folder: Path) -> dict[str, str]:
        """Return the text of each file in scope below the folder that contains the package."""
        top = {pattern.split("/")[0] for pattern in self.scope}
        paths = (path for name in sorted(top) for path in sorted((folder / name).rglob("*.py")))
        named = ((path.relative_to(folder).as_posix(), path) for path in paths)
        return {name: path.read_text(encoding="utf-8") for name, path in named if self.reads(name)}


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


VERL = Source(
    name="verl",
    version="0.9.1",
    package="verl",
    scope=(
        "verl/utils/config.py",
        "verl/single_controller/base/worker.py",
        "verl/single_controller/ray/base.py",
        "verl/trainer/main_ppo*.py",
        "verl/trainer/ppo/*.py",
        "verl/workers/*.py",
        "verl/experimental/reward_loop/*.py",
    ),
    # spec.rollout.engine and spec.trainer.backend select vLLM, and FSDP2 or Megatron.
    left_out=("*sglang*", "*trtllm*", "*veomni*", "*torchtitan*", "*automodel*", "*tinker*", "*hf_rollout*"),
    whole=("verl/utils/config.py", "verl/workers/config/*.py", "verl/experimental/reward_loop/reward_manager/*.py"),
)
VLLM_ASCEND = Source(
    name="vllm-ascend",
    version="0.23.0",
    package="vllm-ascend",
    scope=(
        "vllm_ascend/platform.py",
        "vllm_ascend/ascend_config.py",
        "vllm_ascend/envs.py",
        "vllm_ascend/utils.py",
        "vllm_ascend/worker/*.py",
        "vllm_ascend/device_allocator/camem.py",
    ),
    left_out=("vllm_ascend/worker/v2/*",),  # Behind VLLM_USE_V2_MODEL_RUNNER.
    whole=("vllm_ascend/platform.py", "vllm_ascend/ascend_config.py", "vllm_ascend/envs.py"),
)
MINDSPEED = Source(
    name="MindSpeed",
    version="e4772499f7eb9fa9a68919dd1eaddef00e915b2d",
    package="Ascend/MindSpeed",
    scope=("mindspeed/arguments.py", "mindspeed/features_manager/*.py"),
)
MEGATRON_CORE = Source(
    name="megatron-core",
    version="0.16.1",
    package="megatron-core",
    scope=("megatron/core/model_parallel_config.py", "megatron/core/transformer/transformer_config.py"),
    whole=("megatron/core/*",),
)
SOURCES = (VERL, VLLM_ASCEND, MINDSPEED, MEGATRON_CORE)
