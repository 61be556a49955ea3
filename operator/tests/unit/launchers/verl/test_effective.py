"""One view of fields, overrides and verl's defaults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from builders import Json, merged, saving, small_spec, typed, validate

from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl import effective as module
from rljob.launchers.verl.effective import CAPTURE_SIZES, GRAPH_MODE, UNKNOWN, VLLM, Setting, effective, flat

ROLLOUT = "actor_rollout_ref.rollout"
EAGER = {"rollout": {"eager": True}}


def overrides(**values: object) -> Json:
    return {"verl": {"overrides": {key.replace("__", "."): value for key, value in values.items()}}}


@pytest.mark.parametrize(
    ("change", "specs"), [({}, 1), ({"evaluation": {"every": 1, "validation": ["/data/aime.parquet"]}}, 2)]
)
def test_a_validation_computes_it_once_for_each_spec(change: Json, specs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    settings = module._settings

    def counted(spec: RLJobSpec) -> Iterator[Setting]:
        computed.append(id(spec))
        return settings(spec)

    monkeypatch.setattr(module, "_settings", counted)
    asked = saving({"checkpoint": {"path": "/data/checkpoints", "everySteps": 2}, **change})
    assert validate("sums", small_spec(asked)).violations == ()
    assert len(computed) == len(set(computed)) == specs


def test_a_field_an_override_and_a_default_are_seen_alike() -> None:
    seen = effective(typed(small_spec(merged(EAGER, overrides(data={"shuffle": False}, trainer__balance_batch=False)))))
    assert seen.value(f"{ROLLOUT}.enforce_eager") is True
    assert seen.field(f"{ROLLOUT}.enforce_eager") == "spec.rollout.eager"
    assert (seen.value("data.shuffle"), seen.field("data.shuffle")) == (False, "spec.verl.overrides[data]")
    assert (seen.value("data.seed"), seen.field("data.seed")) == (None, "spec.verl.overrides[data.seed]")
    assert seen.setting("data.seed") is None
    assert seen.value("data.made_up") is UNKNOWN
    assert seen.value("data") is UNKNOWN
    assert [setting.key for setting in seen.below("data")][-1] == "data.shuffle"


def test_references_of_the_schema_are_followed() -> None:
    given = {"trainer": {"maxTokensPerDevice": 4096}}
    seen = effective(typed(small_spec(given)))
    assert seen.value("actor_rollout_ref.ref.log_prob_max_token_len_per_gpu") == 4096
    assert seen.value("actor_rollout_ref.ref.log_prob_use_dynamic_bsz") is True
    assert seen.value("actor_rollout_ref.actor.checkpoint.load_contents") == ["model", "optimizer", "extra"]
    assert seen.value("trainer.default_local_dir") is UNKNOWN
    changed = effective(typed(small_spec(overrides(actor_rollout_ref__actor__checkpoint__save_contents=["model"]))))
    assert changed.value("actor_rollout_ref.actor.checkpoint.load_contents") == ["model"]


@pytest.mark.parametrize(
    ("change", "sizes", "field"),
    [
        ({}, None, None),
        ({"rollout": {"captureSizes": [8]}}, [8], "spec.rollout.captureSizes"),
        (overrides(**{f"+{VLLM}.{CAPTURE_SIZES}": [4]}), [4], f"spec.verl.overrides[+{VLLM}.{CAPTURE_SIZES}]"),
        (
            overrides(**{f"+{VLLM}.compilation_config": '{"cudagraph_capture_sizes": [2]}'}),
            [2],
            f"spec.verl.overrides[+{VLLM}.compilation_config]",
        ),
        # verl's own list comes last (vllm_async_server.py:321).
        (
            merged({"rollout": {"captureSizes": [8]}}, overrides(**{f"+{VLLM}.{CAPTURE_SIZES}": [4]})),
            [8],
            "spec.rollout.captureSizes",
        ),
    ],
)
def test_the_sizes_of_the_engine_are_those_that_apply(change: Json, sizes: object, field: str | None) -> None:
    found = effective(typed(small_spec(change))).engine(CAPTURE_SIZES)
    assert (found.value if found else None, found.field if found else None) == (sizes, field)


def test_an_argument_of_the_engine_replaces_the_key_of_the_rollout() -> None:
    seen = effective(typed(small_spec(merged(EAGER, overrides(**{f"+{VLLM}.enforce_eager": False})))))
    assert seen.engine_value("enforce_eager") is False
    # verl drops null before it merges (vllm_async_server.py:288).
    dropped = effective(typed(small_spec(merged(EAGER, overrides(**{f"+{VLLM}.enforce_eager": None})))))
    assert dropped.engine_value("enforce_eager") is True
    plain = effective(typed(small_spec()))
    assert (plain.engine_value(GRAPH_MODE), plain.engine_value("max_num_seqs")) == ("FULL_AND_PIECEWISE", 256)
    assert (plain.engine_value("model_impl"), plain.engine("model_impl")) == (UNKNOWN, None)


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '{"a": ' * 100_000])
def test_text_that_is_no_map_stays_text(text: str) -> None:
    (setting,) = flat(f"{VLLM}.compilation_config", text, "spec")
    assert setting.value == text
