"""Overrides of keys that nothing reads (launchers/verl/unread_keys.py)."""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.effective import effective
from rljob.launchers.verl.sizes import uses_megatron
from rljob.launchers.verl.unread_keys import UNREAD
from rljob_runtime.planning import verl


def _something_reads_the_key(spec: RLJobSpec) -> Iterator[Violation]:
    """A value that is verl's default anyway is no mistake: many scripts state it."""
    seen, defaults = effective(spec), verl.keys(megatron=uses_megatron(spec))
    for key, setting in seen.settings.items():
        instead = next((UNREAD[name] for name in _names(key) if name in UNREAD), None)
        if instead is not None and setting.by_override and setting.value != defaults.get(key):
            yield Violation(setting.field, f"has no effect, because nothing in verl 0.9.1 reads it: {instead}")


def _names(key: str) -> Iterator[str]:
    """Yield a key and the maps that it is in: nothing may read the whole map."""
    while key:
        yield key
        key = key.rpartition(".")[0]


WARNINGS: tuple[Check, ...] = (_something_reads_the_key,)
