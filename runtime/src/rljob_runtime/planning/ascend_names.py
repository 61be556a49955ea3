"""What released vllm-ascend and MindSpeed have: tables/ascend.json, which upstream/ascend_names.py writes.

Names are separated by spaces.
"""

from __future__ import annotations

from collections.abc import Mapping

from rljob_runtime.planning.tables import read_table

_TABLE = read_table("ascend.json")
VLLM_ASCEND_VERSION: str = _TABLE["VLLM_ASCEND_VERSION"]
VLLM_ASCEND_WHEEL: str = _TABLE["VLLM_ASCEND_WHEEL"]
VLLM_ASCEND_SHA256: str = _TABLE["VLLM_ASCEND_SHA256"]
VLLM_ASCEND_DEVICE: str = _TABLE["VLLM_ASCEND_DEVICE"]
VLLM_ASCEND_OPTIONS: str = _TABLE["VLLM_ASCEND_OPTIONS"]
VLLM_ASCEND_VARIABLES: str = _TABLE["VLLM_ASCEND_VARIABLES"]
VLLM_ASCEND_METHODS: str = _TABLE["VLLM_ASCEND_METHODS"]
VLLM_ASCEND_ENTRY_POINTS: Mapping[str, str] = _TABLE["VLLM_ASCEND_ENTRY_POINTS"]
VLLM_ASCEND_REQUIRES: str = _TABLE["VLLM_ASCEND_REQUIRES"]
VLLM_ASCEND_SYMBOLS: Mapping[str, str] = _TABLE["VLLM_ASCEND_SYMBOLS"]
MINDSPEED_COMMIT: str = _TABLE["MINDSPEED_COMMIT"]
MINDSPEED_SYMBOLS: Mapping[str, str] = _TABLE["MINDSPEED_SYMBOLS"]
MINDSPEED_REQUIRES: str = _TABLE["MINDSPEED_REQUIRES"]
