"""What the launcher says of data files and reward functions, against verl's own dataset and reward workers.

Each row is given to both: what the launcher lets pass verl must take, and what it refuses verl must fail on.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rljob_runtime.contract import ExitCode
from rljob_runtime.input_checks import data_files, reward, reward_probe
from rljob_runtime.input_checks.data_files import DataSettings
from rljob_runtime.outcomes import RefusedError

MESSAGES = [{"role": "user", "content": "1+1?"}]
ROW: dict[str, Any] = {
    "data_source": "sums",
    "prompt": MESSAGES,
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"index": 0},
}


class Tokenizer:
    """Renders messages as a chat template does: by their roles and contents."""

    def apply_chat_template(self, messages: Any, **_: Any) -> list[int]:
        return [len(message["role"] + message["content"]) for message in messages]


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    import pyarrow as pa
    from pyarrow import parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def settings(*train: Path, **changes: Any) -> DataSettings:
    values: dict[str, Any] = {"validation": (), "prompt_key": "prompt", "scored": True, "batch": 1} | changes
    return DataSettings(tuple(map(str, train)), **values)


def refusal(settings: DataSettings) -> str:
    with pytest.raises(RefusedError) as error:
        data_files.require(settings)
    assert error.value.code is ExitCode.BAD_CONFIG
    return str(error.value)


def verl_reads(files: list[Path], cache: Path) -> Any:
    """Return verl's dataset over the files."""
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset

    config = OmegaConf.create(
        {"cache_dir": str(cache), "filter_overlong_prompts": False, "max_prompt_length": 100, "prompt_key": "prompt"}
    )
    return RLHFDataset([str(file) for file in files], Tokenizer(), config)


def verl_scores(row: dict[str, Any]) -> Any:
    """Score a response to a row as verl's naive reward manager does."""
    import numpy as np
    import torch
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls

    tokenizer = SimpleNamespace(decode=lambda *_, **__: "2")
    config = OmegaConf.create({"reward": {}})

    async def score() -> Any:
        manager = get_reward_manager_cls("naive")(config, tokenizer, lambda **call: float(call["ground_truth"] == "2"))
        data = DataProto.from_dict(
            {"responses": torch.ones(1, 2, dtype=torch.int64), "attention_mask": torch.ones(1, 4, dtype=torch.int64)},
            {name: np.array([value], dtype=object) for name, value in row.items()},
        )
        return await manager.run_single(data)

    return asyncio.run(score())["reward_score"]


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "json"])
def test_what_the_launcher_lets_pass_verl_reads_and_scores(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    rows = [ROW, ROW | {"extra_info": {"index": 1}}]
    if suffix == "parquet":
        parquet(path, rows)
    else:
        path.write_text(json.dumps(rows) if suffix == "json" else "".join(json.dumps(row) + "\n" for row in rows))
    data_files.require(settings(path, batch=2 if suffix == "parquet" else 1))
    item = verl_reads([path], tmp_path)[1]
    assert item["raw_prompt"] == MESSAGES
    assert verl_scores({name: item[name] for name in ROW}) == 1.0


@pytest.mark.parametrize("gone", ["data_source", "reward_model"])
def test_without_a_column_that_is_asked_for_verl_cannot_score(tmp_path: Path, gone: str) -> None:
    row = {name: value for name, value in ROW.items() if name != gone}
    assert f"has no column {gone}" in refusal(settings(parquet(tmp_path / "a.parquet", [row])))
    with pytest.raises(KeyError, match=gone):
        verl_scores(row)


@pytest.mark.parametrize("row", [ROW | {"reward_model": "2"}, ROW | {"reward_model": {"answer": "2"}}])
def test_a_row_without_ground_truth_is_refused_and_verl_cannot_score_it(tmp_path: Path, row: dict[str, Any]) -> None:
    assert "column reward_model: the first row" in refusal(settings(parquet(tmp_path / "a.parquet", [row])))
    with pytest.raises((KeyError, TypeError)):
        verl_scores(row)


@pytest.mark.parametrize("prompt", ["1+1?", [{"role": "user", "text": "1+1?"}], ["1+1?"]])
def test_a_prompt_that_is_no_list_of_messages_is_refused_and_cannot_be_rendered(tmp_path: Path, prompt: Any) -> None:
    path = parquet(tmp_path / "a.parquet", [ROW | {"prompt": prompt}])
    assert "column prompt: the first row" in refusal(settings(path))
    with pytest.raises((KeyError, TypeError)):
        Tokenizer().apply_chat_template(verl_reads([path], tmp_path)[0]["raw_prompt"])


def test_a_missing_prompt_column_fails_in_verl(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [{**ROW, "question": "1+1?"} | {}])
    data_files.require(settings(path))
    assert "has no column question2" in refusal(settings(path, prompt_key="question2"))
    plain = parquet(tmp_path / "b.parquet", [{name: ROW[name] for name in ROW if name != "prompt"}])
    assert "has no column prompt" in refusal(settings(plain))
    with pytest.raises(KeyError):
        verl_reads([plain], tmp_path)[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("prompt,answer\n1,2\n"),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(parquet(path, [ROW]).read_bytes()[:-100]),
        lambda path: path.write_bytes(parquet(path, [ROW]).read_bytes().replace(b"PAR1", b"PAR2")),
    ],
)
def test_a_file_that_is_no_parquet_is_refused_and_verl_fails_on_it(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    path = tmp_path / "a.parquet"
    make(path)
    assert "is no Parquet file that can be read" in refusal(settings(path))
    with pytest.raises(Exception):  # noqa: B017, PT011 - a class of the library datasets
        verl_reads([path], tmp_path)


def test_damage_inside_of_a_parquet_file_is_no_fault_of_the_volume(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [ROW] * 50)
    data = bytearray(path.read_bytes())
    data[4:200] = os.urandom(196)
    path.write_bytes(data)
    assert "is no Parquet file that can be read" in refusal(settings(path))


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet as pq

    pq.write_table(pa.Table.from_pylist([ROW]).slice(0, 0), tmp_path / "a.parquet")
    assert "holds no rows" in refusal(settings(tmp_path / "a.parquet"))


def test_a_parquet_file_that_is_gone_is_a_matter_of_the_volume(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as error:
        data_files.require(settings(tmp_path / "a.parquet"))
    assert (error.value.code, error.value.reason) == (ExitCode.ENVIRONMENT, "DataUnreadable")


def test_fewer_rows_than_a_step_takes_are_refused(tmp_path: Path) -> None:
    files = [parquet(tmp_path / f"{name}.parquet", [ROW] * 3) for name in "ab"]
    data_files.require(settings(*files, batch=6))
    assert "data.train has 6 rows, fewer than the 7 prompts of a step" in refusal(settings(*files, batch=7))


def test_a_file_that_is_named_twice_counts_twice_as_verl_counts_it(tmp_path: Path) -> None:
    file = parquet(tmp_path / "a.parquet", [ROW] * 3)
    assert len(verl_reads([file, file], tmp_path)) == 6
    data_files.require(settings(file, file, batch=6))
    assert "data.train has 6 rows, fewer than the 7 prompts of a step" in refusal(settings(file, file, batch=7))


@pytest.mark.parametrize(
    ("other", "column"),
    [
        (ROW | {"data_source": 3}, "data_source"),
        (ROW | {"extra_info": {"index": 0, "split": "train"}}, None),
        (ROW | {"extra_info": {"index": "0"}}, "extra_info"),
        (ROW | {"extra_info": None}, None),
        (ROW | {"answer": "2"}, None),
        (ROW | {"reward_model": {"style": "rule", "ground_truth": ["2"]}}, "reward_model"),
    ],
)
def test_files_of_different_types_are_refused_where_verl_cannot_concatenate_them(
    tmp_path: Path, other: dict[str, Any], column: str | None
) -> None:
    files = [parquet(tmp_path / "a.parquet", [ROW]), parquet(tmp_path / "b.parquet", [other])]
    try:
        verl_reads(files, tmp_path)
        taken = True
    except (ValueError, TypeError):
        taken = False
    if taken:
        assert column is None
        data_files.require(settings(*files))
    else:
        said = refusal(settings(*files))
        assert str(files[1]) in said
        assert f"column {column}" in said


@pytest.mark.parametrize("suffix", [".parquet", ".json", ".jsonl"])
def test_the_suffixes_are_those_of_verl(suffix: str) -> None:
    from verl.utils.dataset.rl_dataset import RLHFDataset

    source = inspect.getsource(RLHFDataset._read_files_and_tokenize)
    assert f'endswith("{suffix}")' in source
    assert source.count("endswith(") == 3


FILES = {
    "good": "def f(data_source, solution_str, ground_truth, extra_info=None): return 1.0",
    "async": "async def f(data_source, solution_str, ground_truth, extra_info=None): return 1.0",
    "no function": "def g(): ...",
    "raises": "raise ValueError",
    "does not compile": "def f(:",
    "wrong parameters": "def f(response): return 1.0",
}


@pytest.mark.parametrize(("name", "source"), FILES.items(), ids=FILES)
def test_a_reward_function_passes_if_verl_can_load_and_call_it(tmp_path: Path, name: str, source: str) -> None:
    from omegaconf import OmegaConf
    from verl.trainer.ppo.reward import get_custom_reward_fn

    path = tmp_path / "reward.py"
    path.write_text(source)
    function = {"path": str(path), "name": "f"}
    config = OmegaConf.create({"reward": {"custom_reward_function": function}})

    def verl_calls() -> Any:
        called = get_custom_reward_fn(config)
        result = called(data_source="a", solution_str="b", ground_truth="c", extra_info={})
        return asyncio.run(result) if inspect.iscoroutine(result) else result

    if name in ("good", "async"):
        reward_probe.check({"path": str(path), "name": "f", "keywords": list(reward.KEYWORDS)})
        assert verl_calls() == 1.0
        return
    with pytest.raises(reward_probe.ProblemError):
        reward_probe.check({"path": str(path), "name": "f", "keywords": list(reward.KEYWORDS)})
    with pytest.raises((RuntimeError, AttributeError, TypeError)):
        verl_calls()


def test_verls_reward_managers_are_those_that_call_by_these_keywords() -> None:
    from verl.experimental.reward_loop import reward_manager
    from verl.experimental.reward_loop.reward_manager.registry import REWARD_MANAGER

    assert reward_manager
    assert set(REWARD_MANAGER) == reward.CALLED_BY == data_files.SCORED_BY
    for manager in REWARD_MANAGER.values():
        source = inspect.getsource(inspect.getmodule(manager))  # type: ignore[arg-type]
        assert all(f"{keyword}=" in source for keyword in reward.KEYWORDS)
        assert all(f'"{keyword}"' in source for keyword in reward.MODEL_KEYWORDS)
        assert '["reward_model"]["ground_truth"]' in source
        assert '["data_source"]' in source
