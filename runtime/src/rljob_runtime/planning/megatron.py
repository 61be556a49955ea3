"""Keys below `override_transformer_config` that Megatron and MindSpeed know.

verl passes them on unchecked and MindSpeed accepts any name (`repatch` sets it on its arguments), so a misspelt key
would silently have no effect. The launcher and `rljob validate` compare keys with the names in the sources of the
pinned versions: tables/megatron.json, written by upstream/megatron_names.py.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable

from rljob_runtime.planning.megatron_names import SOURCES

NODE = "override_transformer_config"
PREFIXES = tuple(f"{role}.megatron.{NODE}." for role in ("actor_rollout_ref.actor", "actor_rollout_ref.ref", "critic"))
"""Location of the node in verl 0.9.1: trainer/config/engine/megatron.yaml, used by actor, ref and critic."""

VERSIONS = " and ".join(f"{source.repository} {source.branch}" for source in SOURCES)


@functools.cache
def known_names() -> frozenset[str]:
    """Return every name that Megatron or MindSpeed reads."""
    return frozenset(name for source in SOURCES for names in source.names.values() for name in names.split())


def unknown_keys(keys: Iterable[str]) -> dict[str, str]:
    """Return the plain keys that are no argument of Megatron or MindSpeed, each with a suggestion."""
    problems = {}
    for key in keys:
        prefix = next((p for p in PREFIXES if key.startswith(p)), None)
        if prefix is None:
            continue
        name = key.removeprefix(prefix).split(".")[0]
        if name not in known_names():
            near = difflib.get_close_matches(name, sorted(known_names()), n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}?" if near else "see their argument sources"
            problems[prefix + name] = f"{name} is not an argument of {VERSIONS}; {hint}"
    return problems
