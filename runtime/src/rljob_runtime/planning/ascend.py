"""Options of `additional_config` that vllm-ascend reads.

vLLM passes them on unchecked and vllm-ascend ignores unknown options, so a misspelt option would silently have no
effect. Options are compared with the released wheel: tables/ascend.json, written by upstream/ascend_names.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from rljob_runtime.planning.ascend_names import VLLM_ASCEND_OPTIONS, VLLM_ASCEND_VERSION
from rljob_runtime.planning.flattening import VLLM

NODE = f"{VLLM}.additional_config"
OPTIONS = frozenset(VLLM_ASCEND_OPTIONS.split())


def unknown_options(keys: Iterable[str]) -> dict[str, str]:
    """Return the plain keys of options that vllm-ascend does not read, each with a suggestion."""
    problems = {}
    for key in keys:
        name = key.removeprefix(f"{NODE}.").split(".")[0]
        if key.startswith(f"{NODE}.") and name not in OPTIONS:
            near = difflib.get_close_matches(name, sorted(OPTIONS), n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else "see its ascend_config.py"
            problems[f"{NODE}.{name}"] = f"{name} is not an option of vllm-ascend {VLLM_ASCEND_VERSION}; {hint}"
    return problems
