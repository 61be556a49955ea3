"""How many calls a replica has to take at a time."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace

import pytest

from rljob_runtime.verl_plugin.router.replica import (
    CONTROL_CALLS,
    DISCARD,
    KEEP,
    Load,
    discards_weights,
    possible_level,
    requests_of,
)


def config(prompts: int, samples: int, validated: int = 1) -> SimpleNamespace:
    rollout = SimpleNamespace(n=samples, val_kwargs=SimpleNamespace(n=validated))
    data = SimpleNamespace(train_batch_size=prompts)
    return SimpleNamespace(data=data, actor_rollout_ref=SimpleNamespace(rollout=rollout))


def test_the_flagship_layout_has_room_for_all_its_sequences() -> None:
    # The recipe for Qwen3-235B on Atlas A3: one replica of 32 engines with 256 sequences each.
    assert Load(sequences=256, ranks=32, requests=512).concurrency == 8_192 + CONTROL_CALLS


def test_a_step_or_a_validation_may_be_larger_than_what_runs() -> None:
    assert Load(sequences=8, ranks=1, requests=4_096).concurrency == 4_096 + CONTROL_CALLS
    assert requests_of(config(512, 16), 100) == 512 * 17
    assert requests_of(config(4, 2, validated=8), 1_000) == 8_000


@pytest.mark.parametrize(
    ("installed", "discards"), [("0.23.0", True), ("0.18.0", True), ("0.13.0", False), (None, True)]
)
def test_an_engine_discards_its_weights_if_its_release_saves_the_buffers(
    monkeypatch: pytest.MonkeyPatch, installed: str | None, discards: bool
) -> None:
    def version(name: str) -> str:
        assert name == "vllm-ascend"
        if installed is None:
            raise metadata.PackageNotFoundError(name)
        return installed

    notes: list[str] = []
    monkeypatch.setattr(metadata, "version", version)
    assert discards_weights() is discards
    assert possible_level(DISCARD, notes.append) == (DISCARD if discards else KEEP)
    assert len(notes) == (0 if discards else 1)
    assert all("optimizations.sleepLevel 2 needs vllm-ascend 0.18.0 or later" in note for note in notes)
    assert possible_level(KEEP, notes.append) == KEEP
