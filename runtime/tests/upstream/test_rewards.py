"""The built-in rewards, loaded as verl loads them, with answers whose score is known."""

from __future__ import annotations

from typing import Any

import pytest

from rljob_runtime.contract.rewards import BuiltinReward
from rljob_runtime.input_checks.reward import KEYWORDS

GSM8K, MATH, DAPO = BuiltinReward.GSM8K, BuiltinReward.MATH, BuiltinReward.DAPO_MATH
BY_SOURCE = BuiltinReward.BY_DATA_SOURCE


def score(reward: BuiltinReward, response: str, answer: str, source: str = "a source of mine") -> Any:
    from verl.utils.import_utils import load_extern_object

    function: Any = load_extern_object(reward.location, "compute_score")
    return function(**dict(zip(KEYWORDS, (source, response, answer, {"index": 0}), strict=True)))


@pytest.mark.parametrize(
    ("reward", "response", "answer", "expected"),
    [
        (GSM8K, "3 times 24 is 72.\n#### 72", "72", 1.0),
        (GSM8K, "#### 1,072", "1072", 1.0),
        (GSM8K, "#### 71", "72", 0.0),
        (GSM8K, "The answer is 72.", "72", 0.0),
        (MATH, r"so \boxed{\frac{1}{2}}", r"\frac12", 1.0),
        (MATH, r"\boxed{3}, and then \boxed{4}", "4", 1.0),
        (MATH, r"\boxed{3}", "4", 0.0),
        (MATH, "4", "4", 0.0),
    ],
)
def test_the_score_of_an_answer(reward: BuiltinReward, response: str, answer: str, expected: float) -> None:
    assert score(reward, response, answer) == expected


@pytest.mark.parametrize(("response", "right"), [("Answer: 34", True), ("Answer: 35", False), ("34", False)])
def test_dapo_returns_the_accuracy_that_filters_groups(response: str, right: bool) -> None:
    found = score(DAPO, response, "34")
    assert (found["score"], bool(found["acc"])) == ((1.0, True) if right else (-1.0, False))


@pytest.mark.parametrize(
    ("source", "response", "answer"),
    [
        ("openai/gsm8k", "#### 72", "72"),
        ("DigitalLearningGmbH/MATH-lighteval", r"\boxed{4}", "4"),
        ("math_dapo", "Answer: 34", "34"),
        ("aime_2024", "Answer: 34", "34"),
    ],
)
def test_the_source_of_every_data_set_of_ours_has_a_reward(source: str, response: str, answer: str) -> None:
    found = score(BY_SOURCE, response, answer, source)
    assert (found["score"] if isinstance(found, dict) else found) == 1.0


def test_a_source_that_verl_does_not_know_ends_the_run() -> None:
    with pytest.raises(NotImplementedError, match="a source of mine"):
        score(BY_SOURCE, "4", "4")
