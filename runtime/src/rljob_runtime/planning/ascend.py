"""Options of `additional_config` that vllm-ascend reads.

vLLM passes them on unchecked and vllm-ascend ignores unknown options, so a misspelt option would silently have no
effect. Options are compared with the released wheel: ascend_names.py, written by scripts/ascend_names.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from rljob_runtime.planning.ascend_names import VLLM_ASCEND_OPTIONS, VLLM_ASCEND_VERSION

NODE = "actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config"
"""verl 0.9.1 passes all keys below engine_kwargs.vllm to vLLM (workers/rollout/vllm_rollout/vllm_async_server.py)."""
OPTIONS = frozenset(VLLM_ASCEND_OPTIONS.split())


def unknown_options(overrides: Mapping[str, object]) -> dict[str, str]:
    """Return the Hydra keys with options that vllm-ascend does not read, each with a suggestion."""
    problems = {}
    for key, value in overrides.items():
        plain = key.lstrip("+")
        if plain == NODE and isinstance(value, Mapping):
            names = [str(name) for name in value]
        elif plain.startswith(f"{NODE}."):
            names = [plain.removeprefix(f"{NODE}.").split(".")[0]]
        else:
            continue
        unknown = [name for name in names if name not in OPTIONS]
        if unknown:
            near = difflib.get_close_matches(unknown[0], sorted(OPTIONS), n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else "see its ascend_config.py"
            problems[key] = f"{unknown[0]} is not an option of vllm-ascend {VLLM_ASCEND_VERSION}; {hint}"
    return problems
