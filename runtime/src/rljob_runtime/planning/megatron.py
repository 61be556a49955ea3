"""Which keys below `override_transformer_config` Megatron and MindSpeed know.

verl passes these on unseen, and MindSpeed takes any name (`repatch` sets it on its arguments), so a misspelt one would
do nothing for days. The launcher and `rljob validate` compare with the names in the sources of the pinned versions:
megatron_names.py, written by scripts/megatron_names.py.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable

from rljob_runtime.planning.megatron_names import SOURCES

NODE = "override_transformer_config"
PREFIXES = tuple(f"{role}.megatron.{NODE}." for role in ("actor_rollout_ref.actor", "actor_rollout_ref.ref", "critic"))
"""Where verl 0.9.1 has the node: trainer/config/engine/megatron.yaml, used by actor, ref and critic."""

VERSIONS = " and ".join(f"{source.repository} {source.branch}" for source in SOURCES)


@functools.cache
def known_names() -> frozenset[str]:
    """Give every name that Megatron or MindSpeed reads."""
    return frozenset(name for source in SOURCES for names in source.names.values() for name in names.split())


def unknown_keys(keys: Iterable[str]) -> dict[str, str]:
    """Give the Hydra keys that name no argument of Megatron or MindSpeed, each with what may have been meant."""
    problems = {}
    for key in keys:
        prefix = next((p for p in PREFIXES if key.lstrip("+").startswith(p)), None)
        if prefix is None:
            continue
        name = key.lstrip("+").removeprefix(prefix).split(".")[0]
        if name not in known_names():
            near = difflib.get_close_matches(name, sorted(known_names()), n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else "see their argument sources"
            problems[key] = f"{name} is no argument of {VERSIONS}; {hint}"
    return problems
