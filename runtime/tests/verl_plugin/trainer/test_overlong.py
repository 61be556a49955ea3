"""What the trainer tells about long prompts, and when it refuses. upstream/test_overlong.py runs verl's own filter."""

# ruff: noqa: ANN401 - nodes of a configuration

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from rljob_runtime.contract import ExitCode
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.verl_plugin.trainer import overlong
from rljob_runtime.verl_plugin.trainer.overlong import Counter, Overlong, count, take_over

LIMIT = 10


class Rows(list[int]):
    """Lengths of prompts, with the one method of a dataset that is used."""

    def select(self, indices: Sequence[int]) -> Rows:
        return Rows(self[index] for index in indices)


class Dataset:
    """verl's dataset as far as its filter is concerned."""

    def __init__(self, *files: str, filters: bool = True) -> None:
        self.original_data_files = list(files)
        self.filter_overlong_prompts = filters

    def keep(self, rows: Rows) -> Rows:
        return Rows(row for row in rows if row <= LIMIT) if self.filter_overlong_prompts else rows


def config(**changes: Any) -> Any:
    data = {"max_prompt_length": LIMIT, "train_files": ["/t"], "val_files": ["/v"], "train_batch_size": 2} | changes
    return SimpleNamespace(data=Data(data), trainer={})


class Data(dict[str, Any]):
    """A node of a configuration, as far as it is used."""

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def judged(mode: Overlong, rows: list[int], file: str = "/t", times: int = 1, **changes: Any) -> list[str]:
    told: list[str] = []
    counter = Counter(mode, config(**changes), told.append)
    for _ in range(times):
        dataset, data = Dataset(file, filters=mode is not Overlong.TRUNCATE), Rows(rows)
        counter._judge(dataset, data, dataset.keep(data), Dataset.keep)
    return told


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        ({"filter_overlong_prompts": True, "truncation": "error"}, Overlong.FILTER),
        ({"filter_overlong_prompts": True, "truncation": "left"}, Overlong.FILTER),
        ({"filter_overlong_prompts": False, "truncation": "left"}, Overlong.TRUNCATE),
        ({"filter_overlong_prompts": False, "truncation": "error"}, Overlong.FAIL),
        ({}, Overlong.FAIL),
    ],
)
def test_the_mode_is_what_the_keys_mean_and_verl_filters_unless_prompts_are_cut(
    settings: dict[str, Any], mode: Overlong
) -> None:
    asked = config(**settings)
    assert take_over(asked) is mode
    assert asked.data.filter_overlong_prompts is (mode is not Overlong.TRUNCATE)


def test_prompts_that_are_left_out_are_counted_once() -> None:
    told = judged(Overlong.FILTER, [1, 2, 11, 12, 13], times=2)
    assert len(told) == 1
    assert told[0].startswith("3 of 5 prompts of data.train are longer than data.maxPromptTokens 10, or cannot be rend")
    assert told[0].endswith("they were left out (data.overlong: Filter)")


@pytest.mark.parametrize("mode", Overlong)
def test_nothing_is_reported_about_prompts_that_fit(mode: Overlong) -> None:
    assert judged(mode, [1, 10]) == []


def test_a_long_prompt_is_refused_if_the_job_asks_for_it() -> None:
    with pytest.raises(RefusedError, match=r"1 of 3 prompts of data\.validation .* data\.overlong is Fail") as error:
        judged(Overlong.FAIL, [1, 2, 11], "/v")
    assert (error.value.code, error.value.reason) == (ExitCode.BAD_CONFIG, "PromptsTooLong")


@pytest.mark.parametrize("file", ["/t", "/v"])
def test_a_filter_that_leaves_nothing_is_refused(file: str) -> None:
    with pytest.raises(RefusedError, match=r"2 of 2 prompts .* none is left") as error:
        judged(Overlong.FILTER, [11, 12], file)
    assert error.value.reason == "PromptsTooLong"


def test_a_filter_that_leaves_less_than_a_batch_is_refused_for_training_only() -> None:
    with pytest.raises(RefusedError, match="which leaves 1, fewer than the 2 prompts of a step") as error:
        judged(Overlong.FILTER, [1, 12])
    assert (error.value.code, error.value.reason) == (ExitCode.BAD_CONFIG, "DataTooSmall")
    assert len(judged(Overlong.FILTER, [1, 12], "/v")) == 1
    told: list[str] = []
    evaluated = config()
    evaluated.trainer = {"val_only": True}
    dataset = Dataset("/t")
    Counter(Overlong.FILTER, evaluated, told.append)._judge(dataset, Rows([1, 12]), Rows([1]), Dataset.keep)
    assert len(told) == 1


def test_prompts_that_will_be_cut_are_counted_without_losing_one() -> None:
    told = judged(Overlong.TRUNCATE, [1, *[11] * 300, 2], times=2)
    assert len(told) == 1
    assert told[0].startswith("300 of 302 prompts of data.train are longer than data.maxPromptTokens 10, or cannot")
    assert told[0].endswith("their beginning is cut off (data.overlong: Truncate)")


def test_a_count_that_takes_too_long_reports_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlong, "COUNT_SECONDS", 0.0)
    (told,) = judged(Overlong.TRUNCATE, [1] * 1000)
    assert told.startswith("only the first 256 of 1000 prompts of data.train were counted in 0 s; none is longer than")
    assert judged(Overlong.TRUNCATE, [11] * 1000)[0].startswith("256 of the first 256 of 1000 prompts")


def test_a_count_leaves_the_dataset_as_it_was() -> None:
    dataset = Dataset(filters=False)
    assert count(dataset, Rows([1, 11, 12]), Dataset.keep, 60.0) == (3, 2)
    assert not dataset.filter_overlong_prompts

    def broken(*_: Any) -> Rows:
        raise ValueError("template")

    with pytest.raises(ValueError, match="template"):
        count(dataset, Rows([1]), broken, 60.0)
    assert not dataset.filter_overlong_prompts
