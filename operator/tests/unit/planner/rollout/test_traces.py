"""Lengths: drawn ones keep the published moments, recorded ones are read with bounds."""

from __future__ import annotations

import json
import math
from statistics import mean, pvariance

import pytest

from rljob.planner.rollout import recorded
from rljob.planner.rollout.published import DAPO, DEEPSCALER, DEEPSCALER_3K, OPENR1, RECIPES, UNIFORM
from rljob.planner.rollout.recorded import TraceError, read_trace
from rljob.planner.rollout.step_time import Origin
from rljob.planner.rollout.traces import TraceRecipe
from rljob_runtime.contract.response_lengths import response_line


@pytest.mark.parametrize(
    ("recipe", "expected", "longest"),
    [(DEEPSCALER, 7345, 32_768), (DAPO, 10_119, 34_816), (DEEPSCALER_3K, 1576.6, 3072), (UNIFORM, 1024.5, 2048)],
    ids=lambda value: value.name if isinstance(value, TraceRecipe) else None,
)
def test_drawn_lengths_have_the_published_mean_and_bound(recipe: TraceRecipe, expected: float, longest: int) -> None:
    trace = recipe.draw(512, 16)
    assert trace.mean == pytest.approx(expected, rel=0.01)
    assert trace.longest == longest


def test_the_share_of_cut_answers_is_small_as_published() -> None:
    trace = DEEPSCALER.draw(512, 16)
    longest = trace.longest
    assert sum(request.tokens == longest for request in trace.requests) / 8192 == pytest.approx(0.007, abs=0.001)


def test_the_published_curve_is_kept() -> None:
    lengths = [request.tokens for request in OPENR1.draw(512, 16).requests]
    for thousand, alive in ((1, 3550), (4, 647), (10, 50), (18, 7), (21, 7), (31, 2)):
        # The nearest response is rounded to the thousand.
        assert sum(length >= 1000 * thousand for length in lengths) == pytest.approx(alive, abs=1)


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
def test_a_seed_gives_one_order_and_other_seeds_the_same_lengths(recipe: TraceRecipe) -> None:
    assert recipe.draw(16, 4) == recipe.draw(16, 4)
    one, other = (recipe.draw(16, 4, seed) for seed in (1, 2))
    assert one.requests != other.requests
    assert sorted(request.tokens for request in one.requests) == sorted(request.tokens for request in other.requests)
    assert recipe.source


def test_responses_to_one_prompt_are_alike() -> None:
    trace = DEEPSCALER.draw(512, 16)
    logs = [math.log(request.tokens) for request in trace.requests]
    groups = [logs[first : first + 16] for first in range(0, 8192, 16)]
    between = pvariance([mean(group) for group in groups])
    assert between / pvariance(logs) == pytest.approx(0.86, abs=0.05)


LINES = [
    '{"prompt": "b", "response_tokens": 5, "prompt_tokens": 3, "reward": 1}\n',
    "\n",
    '{"prompt": 7, "response_tokens": 0}\n',
    '{"prompt": "b", "response_tokens": 9, "prompt_tokens": 3}\n',
]


def test_recorded_responses_to_one_prompt_become_adjacent() -> None:
    trace = read_trace("lengths.jsonl", LINES)
    assert [(one.prompt, one.tokens, one.prompt_tokens) for one in trace.requests] == [(0, 5, 3), (0, 9, 3), (1, 1, 0)]
    assert trace.origin is Origin.MEASURED
    assert trace.source == "3 recorded responses of lengths.jsonl"
    assert trace.mean == 5


def test_what_is_written_is_read_again() -> None:
    trace = DEEPSCALER.draw(4, 3)
    lines = [response_line(one.prompt, one.tokens, one.prompt_tokens) for one in trace.requests]
    assert read_trace("x", lines).requests == trace.requests


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 1: not JSON"),
        ("[" * 100_000, "line 1: longer than 65,536 characters"),
        ("[" * 60_000, "line 1: not JSON"),
        ("[1]", "line 1: no object with the key prompt"),
        ('{"response_tokens": 1}', "no object with the key prompt"),
        ('{"prompt": true, "response_tokens": 1}', "prompt is neither text nor a whole number"),
        ('{"prompt": [1], "response_tokens": 1}', "prompt is neither text nor a whole number"),
        ('{"prompt": 1}', "response_tokens is not a whole number"),
        ('{"prompt": 1, "response_tokens": true}', "response_tokens is not a whole number"),
        ('{"prompt": 1, "response_tokens": -1}', "response_tokens is not a whole number from 0 to 16,777,216"),
        ('{"prompt": 1, "response_tokens": 1.5}', "response_tokens is not a whole number"),
        ('{"prompt": 1, "response_tokens": 1, "prompt_tokens": "x"}', "prompt_tokens is not a whole number"),
        ("", "no responses; each line is one, such as"),
    ],
)
def test_a_wrong_line_is_named_with_what_it_should_be(line: str, told: str) -> None:
    with pytest.raises(TraceError, match=told):
        read_trace("trace", [line])


def test_the_number_of_responses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "RESPONSES_MAX", 2)
    line = json.dumps({"prompt": 1, "response_tokens": 1})
    assert len(read_trace("trace", [line] * 2).requests) == 2
    with pytest.raises(TraceError, match="more than 2 responses; pass those of a single step"):
        read_trace("trace", [line] * 3)
