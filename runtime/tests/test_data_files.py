"""What the launcher reads of the data files before any model is loaded; upstream/test_inputs.py adds Parquet."""

# ruff: noqa: ANN401 - rows of any shape

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rljob_runtime.contract import ExitCode
from rljob_runtime.input_checks import data_files
from rljob_runtime.input_checks.data_files import DataSettings, Head, UnreadableError
from rljob_runtime.outcomes import RefusedError

ROW: dict[str, Any] = {
    "data_source": "sums",
    "prompt": [{"role": "user", "content": "1+1?"}],
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"index": 3},
}


def settings(*train: Path | str, **changes: Any) -> DataSettings:
    values: dict[str, Any] = {"validation": (), "prompt_key": "prompt", "scored": True, "batch": 1} | changes
    return DataSettings(tuple(map(str, train)), **values)


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in ROW.items() if key != name}


def refused(settings: DataSettings) -> RefusedError:
    with pytest.raises(RefusedError) as error:
        data_files.require(settings)
    return error.value


@pytest.mark.parametrize(
    "row",
    [
        ROW,
        without("extra_info"),
        ROW | {"extra_info": None},
        ROW | {"reward_model": {"ground_truth": None}},
        ROW | {"prompt": [{"role": "system", "content": ""}, {"role": "user", "content": [{"type": "image"}]}]},
        ROW | {"images": ["/a.png"], "agent_name": "tool_agent"},
    ],
)
def test_rows_that_verl_can_use_pass(tmp_path: Path, row: dict[str, Any]) -> None:
    data_files.require(settings(write(tmp_path / "a.jsonl", row)))


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (without("prompt"), "a.jsonl has no column prompt: data.prompt_key names it; it holds a list of messages"),
        (without("data_source"), "a.jsonl has no column data_source: verl's reward manager passes it"),
        (
            without("reward_model"),
            "no column reward_model: verl's reward manager reads its ground_truth; add the column when the data is pre",
        ),
        (ROW | {"prompt": "1+1?"}, "column prompt: the first row is the text '1+1?', expected a list of messages such"),
        (ROW | {"prompt": None}, "column prompt: the first row is null"),
        (ROW | {"prompt": []}, "column prompt: the first row holds no message"),
        (ROW | {"prompt": ["1+1?"]}, "column prompt: the first row has the text '1+1?' as message 0"),
        (ROW | {"prompt": [{"content": "a"}]}, "column prompt: the first row has no text as role of message 0"),
        (
            ROW | {"prompt": [*ROW["prompt"], {"role": "user", "text": "a"}]},
            "column prompt: the first row has no content in message 1",
        ),
        (ROW | {"reward_model": "2"}, "column reward_model: the first row is the text '2', expected {ground_truth: …}"),
        (ROW | {"reward_model": None}, "column reward_model: the first row is null"),
        (
            ROW | {"reward_model": {"style": "rule", "answer": 2}},
            "column reward_model: the first row has no ground_truth (it has style, answer)",
        ),
        (ROW | {"extra_info": [1]}, "column extra_info: the first row is a list, expected an object or null"),
    ],
)
def test_a_row_that_verl_cannot_use_is_refused_with_file_and_column(
    tmp_path: Path, row: dict[str, Any], told: str
) -> None:
    path = write(tmp_path / "a.jsonl", row)
    error = refused(settings(path))
    assert (error.code, error.reason) == (ExitCode.BAD_CONFIG, "DataInvalid")
    assert str(error).startswith(f"data.train[0] {path}")
    assert told in str(error)


def test_the_prompt_key_of_the_job_counts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", without("prompt") | {"messages": ROW["prompt"]})
    data_files.require(settings(path, prompt_key="messages"))
    assert "no column prompt" in str(refused(settings(path)))


def test_columns_of_verls_reward_managers_are_not_asked_of_others(tmp_path: Path) -> None:
    data_files.require(settings(write(tmp_path / "a.jsonl", {"prompt": ROW["prompt"]}), scored=False))


def test_all_problems_of_all_files_are_reported_at_once(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.jsonl", without("prompt")), write(tmp_path / "b.jsonl", without("reward_model"))
    (tmp_path / "c.json").write_text("[]")
    error = refused(settings(first, validation=(str(second), str(first), str(tmp_path / "c.json"), "/d/e.csv")))
    assert [part.split(" ")[0] for part in str(error).split("; ") if part.startswith("data.")] == [
        "data.train[0]",
        "data.validation[0]",
        "data.validation[2]",
        "data.validation[3]",
    ]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "holds no rows"),
        (b" \n\n", "holds no rows"),
        (b"[ ]", "holds no rows"),
        (b"prompt,answer\n1,2\n", "is no JSON: Expecting value: line 1 column 1"),
        (b'{"prompt": ', "is no JSON"),
        (b"\xff\xfe{}", "is not UTF-8: invalid start byte at byte 0"),
        (b"[1, 2]", "holds a number as its first row, expected an object"),
        (b'{"prompt": ' + b"[" * 100_000, "nests its first row too deeply to be read; write flat rows"),
    ],
)
def test_a_file_that_is_no_json_or_empty_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    error = refused(settings(path))
    assert (error.code, error.reason) == (ExitCode.BAD_CONFIG, "DataInvalid")
    assert told in str(error)


@pytest.mark.parametrize("text", ["[{}]", "[\n  {},\n  {}\n]", "\ufeff{}\n{}"])
def test_a_list_of_objects_and_a_byte_order_mark_are_read_as_verl_reads_them(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text.replace("{}", json.dumps(ROW, indent=1)))
    data_files.require(settings(path))


def test_a_first_row_without_end_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "JSON_BYTES", 64)
    data_files.require(settings(write(tmp_path / "a.jsonl", {"text": "ä" * 100})))


def test_a_volume_that_fails_is_no_fault_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = refused(settings(tmp_path / "gone.jsonl"))
    assert (gone.code, gone.reason) == (ExitCode.ENVIRONMENT, "DataUnreadable")
    assert "gone.jsonl" in str(gone)

    def stale(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), "/d/a.parquet")

    monkeypatch.setattr(data_files, "read_head", stale)
    error = refused(settings("/d/a.parquet"))
    assert (error.code, error.reason) == (ExitCode.ENVIRONMENT, "DataUnreadable")
    assert "/d/a.parquet" in str(error)


def test_a_volume_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    hang: Callable[..., Any] = lambda *_, **__: ended.wait(60)  # noqa: E731
    monkeypatch.setattr(data_files, "READ_SECONDS", 0.1)
    monkeypatch.setattr(data_files, "read_head", hang)
    error = refused(settings("/d/a.parquet"))
    ended.set()
    assert (error.code, error.reason) == (ExitCode.ENVIRONMENT, "DataUnreadable")
    assert "no answer within 0.1 s" in str(error)


def head(rows: int | None, path: str = "/d/a.parquet") -> Head:
    return Head("data.train[0]", path, (), {}, rows)


def test_fewer_prompts_than_a_step_takes_are_refused() -> None:
    one, two = "/d/a.parquet", "/d/b.parquet"
    data_files.require_a_batch([head(20), head(12, two), head(1, "/d/v.parquet")], settings(one, two, batch=32))
    with pytest.raises(RefusedError, match=r"data\.train has 31 rows, fewer than the 32 prompts of a step") as small:
        data_files.require_a_batch([head(31), head(9, "/d/v.parquet")], settings(one, batch=32))
    assert (small.value.code, small.value.reason) == (ExitCode.BAD_CONFIG, "DataTooSmall")
    with pytest.raises(RefusedError, match=r"has 40 rows, of which data\.train_max_samples takes 8, fewer than"):
        data_files.require_a_batch([head(40)], settings(one, batch=32, train_max=8))


def test_a_file_that_is_named_twice_is_read_once_and_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_head(field: str, path: str, *_: Any, **__: Any) -> Head:
        opened.append(field)
        return head(20, path)

    opened: list[str] = []
    monkeypatch.setattr(data_files, "read_head", read_head)
    twice = ("/d/a.parquet", "/d/a.parquet")
    data_files.require(settings(*twice, validation=("/d/a.parquet",), batch=40))
    assert opened == ["data.train[0]"]
    assert "data.train has 40 rows, fewer than the 41 prompts" in str(refused(settings(*twice, batch=41)))


@pytest.mark.parametrize("heads", [[head(1), head(None, "/d/b.parquet")], [head(1)], []])
def test_an_unknown_number_of_prompts_is_not_judged(heads: list[Head]) -> None:
    data_files.require_a_batch(heads, settings("/d/a.parquet", "/d/b.parquet", batch=32))


def test_a_run_without_training_files_needs_no_batch() -> None:
    data_files.require_a_batch([], settings(batch=32))


def test_of_a_json_row_only_the_judged_columns_are_kept_and_none_after_the_judgement(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ROW | {"text": "x" * 1000})
    read = data_files.read_head("data.train[0]", str(path), "prompt")
    assert read.row == ROW
    assert "text" in read.columns
    heads, problems = data_files.read(settings(path))
    assert [(head.path, head.row, head.columns) for head in heads] == [(str(path), {}, ())]
    assert problems == []


def test_an_evaluation_needs_no_whole_batch() -> None:
    data_files.require_a_batch([head(1)], settings("/d/a.parquet", batch=None))


def config(**changes: Any) -> Any:
    data = {"train_files": ["/a"], "val_files": "/b", "prompt_key": "p", "train_batch_size": 8} | changes
    manager = SimpleNamespace(source="register", name="naive")
    return SimpleNamespace(data=Data(data), reward=SimpleNamespace(reward_manager=manager), trainer={"val_only": False})


class Data(dict[str, Any]):
    """A node of a configuration, as far as it is used."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


def test_settings_come_from_verls_configuration() -> None:
    assert DataSettings.of(config()) == DataSettings(("/a",), ("/b",), "p", scored=True, batch=8)
    custom = config()
    custom.reward.reward_manager.source, custom.trainer = "importlib", {"val_only": True}
    assert DataSettings.of(custom) == DataSettings(("/a",), ("/b",), "p", scored=False, batch=None)
    limited = DataSettings.of(config(train_max_samples=5))
    assert limited is not None
    assert limited.train_max == 5


def test_a_dataset_class_of_the_users_knows_its_files_better() -> None:
    assert DataSettings.of(config(custom_cls={"path": "/code/data.py", "name": "Mine"})) is None
    assert DataSettings.of(config(custom_cls={"path": None, "name": None})) is not None


def test_an_unreadable_file_is_an_error_of_its_content() -> None:
    with pytest.raises(UnreadableError, match=r"ends with none of \.parquet, \.json, \.jsonl"):
        data_files.read_head("data.train[0]", "/d/a.csv", "prompt")
