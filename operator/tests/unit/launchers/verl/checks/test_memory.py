"""Rejections and warnings about memory that have no row in the corpus."""

from builders import Json, group, merged, small_spec, validate
from corpus.memory import OFFLOADED, WIDE, on_a3

TOO_MUCH = merged(on_a3({"tensor": 2}, {"architecture": "Qwen3-32B"}, WIDE, OFFLOADED), {})
A2 = merged(
    group({"devicesPerNode": 8}),
    {
        "accelerator": {"class": "atlas-a2"},
        "model": {"architecture": "Qwen2.5-0.5B"},
        "trainer": {"microBatchSizePerDevice": 1, "offload": {"parameters": True, "optimizer": True}},
    },
)


def fields(change: Json) -> tuple[list[str], list[str]]:
    checked = validate("sums", small_spec(change))
    return [v.field for v in checked.violations], [w.field for w in checked.warnings]


def test_the_refusal_names_phase_parts_and_fixes() -> None:
    (violation,) = validate("sums", small_spec(TOO_MUCH)).violations
    assert "of a die's 64 GiB" in violation.message
    assert "swap_optimizer" in violation.message
    assert violation.message.endswith("`rljob plan memory` shows every part; or set model.memoryCheck to Warn")


def test_memory_check_warn_lets_pass_what_does_not_fit() -> None:
    assert fields(merged(TOO_MUCH, {"model": {"memoryCheck": "Warn"}})) == ([], ["spec.trainer.parallelism"])


def test_a_cache_that_fills_nearly_all_is_a_warning() -> None:
    def with_fraction(text: str) -> Json:
        return merged(A2, {"rollout": {"memoryFraction": text}})

    assert fields(with_fraction("0.9")) == ([], [])
    assert fields(with_fraction("0.95")) == ([], ["spec.rollout.memoryFraction"])
    assert fields(with_fraction("1.0")) == (["spec.rollout.memoryFraction"], [])


def test_without_a_known_model_nothing_is_judged() -> None:
    assert fields(merged(TOO_MUCH, {"model": {"architecture": None}})) == ([], [])


def test_processors_are_not_judged() -> None:
    assert fields({"model": {"architecture": "Qwen2.5-0.5B"}}) == ([], [])
