"""What vLLM's scheduler accepts with an effect that nobody asked for, and the defaults of the launcher."""

import pytest
from builders import Json, merged, small_spec, validate
from corpus.bad import key
from corpus.memory import CONFIG

from rljob.launchers.verl import sizes
from rljob_runtime.verl_plugin.platform import cpu_defaults

CONTEXT = "actor_rollout_ref.rollout.max_model_len"
WHOLE = {"rollout": {"chunkedPrefill": False}}
UNKNOWN = (
    "spec.rollout.maxBatchedTokens: 8192 tokens per pass: chunked prefill is off, so the rollout does not start if the "
    f"model has more positions; set verl.overrides {CONTEXT} to 2048, or turn it on"
)
CUT = (
    f"spec.verl.overrides[{CONTEXT}]: 2047 is less than data.maxPromptTokens 1024 + maxResponseTokens 1024 = 2048, so "
    "responses to long prompts are cut"
)


def warning_lines(change: Json) -> list[str]:
    checked = validate("sums", small_spec(change))
    assert checked.violations == ()
    return [str(warning) for warning in checked.warnings]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (WHOLE, UNKNOWN),
        (merged(WHOLE, key(CONTEXT, 2048)), None),
        (merged(WHOLE, {"model": {"config": CONFIG | {"max_position_embeddings": 8192}}}), None),
        ({"rollout": {"chunkedPrefill": True, "maxBatchedTokens": 2047}}, None),
        (key(CONTEXT, 2047), CUT),
        (key(CONTEXT, 2048), None),
        (key(CONTEXT, None), None),
        (key("+actor_rollout_ref.rollout.engine_kwargs.vllm.max_model_len", 1025), "1025 is less than"),
    ],
)
def test_a_length_that_may_not_start_or_is_cut_is_a_warning(change: Json, words: str | None) -> None:
    lines = warning_lines(change)
    assert len(lines) == (words is not None), lines
    assert all(str(words) in line for line in lines)


def test_the_default_on_cpus_is_that_of_the_launcher() -> None:
    assert cpu_defaults.SETTINGS["actor_rollout_ref.rollout.max_num_seqs"] == sizes.CPU_SEQUENCES
    assert cpu_defaults.SETTINGS["actor_rollout_ref.model.use_remove_padding"] is False
