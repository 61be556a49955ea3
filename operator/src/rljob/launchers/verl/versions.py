"""The releases that this launcher was made for; `rljob --version` prints them.

tests/house/test_versions.py compares them with the locks of the runtime images.
"""

from __future__ import annotations

from rljob.api.v1alpha1 import Runtime
from rljob_runtime.planning.ascend_names import VLLM_ASCEND_VERSION
from rljob_runtime.planning.megatron_names import SOURCES

VERSIONS: dict[str, str] = {
    "verl": "0.9.1",
    "vLLM": "0.23.0",
    "Ray": str(Runtime.model_fields["ray_version"].default),
    "vllm-ascend": VLLM_ASCEND_VERSION,
    "torch-npu": "2.10.0.post4",
    # The base image: images/runtime/ascend/Dockerfile, scripts/ascend_image.py.
    "CANN": "9.1.0",
    **{source.repository.rpartition("/")[2]: source.branch for source in SOURCES},
}
"""Component -> release, or branch of a repository."""
