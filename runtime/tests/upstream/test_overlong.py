"""Long prompts: verl's own dataset filters and our trainer counts, and verl's agent loop cuts what nobody filtered."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rljob_runtime.outcomes import RefusedError
from rljob_runtime.verl_plugin.trainer import overlong
from rljob_runtime.verl_plugin.trainer.overlong import Counter, Overlong, take_over

LIMIT = 8


class Tokenizer:
    """One token for each character of a message."""

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> list[int]:
        return [ord(letter) for message in messages for letter in message["content"]]


def created(tmp_path: Path, train: list[str], validation: list[str] | None = None, **settings: Any) -> Any:
    """Create verl's datasets as its trainer does; return the mode, the notes and the lengths."""
    import pyarrow as pa
    from omegaconf import OmegaConf
    from pyarrow import parquet as pq
    from verl.trainer.ppo.utils import create_rl_dataset

    files = {}
    for name, contents in (("train", train), ("val", train if validation is None else validation)):
        rows = [{"data_source": "d", "prompt": [{"role": "user", "content": text}]} for text in contents]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
        files[name] = [str(tmp_path / f"{name}.parquet")]
    if validation is None:
        files["val"] = files["train"]
    data = {
        "train_files": files["train"],
        "val_files": files["val"],
        "max_prompt_length": LIMIT,
        "prompt_key": "prompt",
    }
    data |= {"cache_dir": str(tmp_path), "train_batch_size": 1, "filter_overlong_prompts_workers": 1}
    config = OmegaConf.create({"data": data | settings, "trainer": {"val_only": False}})
    mode, notes = take_over(config), list[str]()
    with Counter(mode, config, notes.append).watching():
        made = [
            create_rl_dataset(config.data[key], config.data, Tokenizer(), None) for key in ("train_files", "val_files")
        ]
    return SimpleNamespace(mode=mode, notes=notes, lengths=[len(dataset) for dataset in made])


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlong, "COUNT_SECONDS", 3600.0)  # a busy machine may take more than a minute
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def test_prompts_that_verl_filters_are_counted_once_for_each_file(tmp_path: Path) -> None:
    seen = created(tmp_path, ["short", "x" * 9, "x" * 8], filter_overlong_prompts=True)
    assert (seen.mode, seen.lengths) == (Overlong.FILTER, [2, 2])
    assert len(seen.notes) == 1
    assert seen.notes[0].startswith("1 of 3 prompts of data.train are longer than data.maxPromptTokens 8")


def test_prompts_of_the_validation_are_counted_separately(tmp_path: Path) -> None:
    seen = created(tmp_path, ["a"], ["x" * 9, "b"], filter_overlong_prompts=True)
    assert [note[:40] for note in seen.notes] == ["1 of 2 prompts of data.validation are lo"]


def test_prompts_that_will_be_cut_are_counted_and_kept(tmp_path: Path) -> None:
    seen = created(tmp_path, ["short", "x" * 9] * 300, filter_overlong_prompts=False, truncation="left")
    assert (seen.mode, seen.lengths) == (Overlong.TRUNCATE, [600, 600])
    assert len(seen.notes) == 1
    assert seen.notes[0].startswith("300 of 600 prompts of data.train are longer")


def test_a_long_prompt_ends_the_job_if_it_asks_for_it(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"1 of 2 prompts of data\.train are longer") as error:
        created(tmp_path, ["short", "x" * 9], filter_overlong_prompts=False, truncation="error")
    assert error.value.reason == "PromptsTooLong"
    assert created(tmp_path, ["short", "b"], filter_overlong_prompts=False, truncation="error").notes == []


def test_verl_still_creates_its_datasets_before_any_worker() -> None:
    from verl.trainer.ppo.v1 import PPOTrainerSync

    source = inspect.getsource(PPOTrainerSync._setup)
    order = [source.find(word) for word in ("self._init_tokenizer()", "self._init_dataloader()", "RayWorkerGroup(")]
    assert -1 not in order
    assert order == sorted(order)
    assert "self.global_steps // self.steps_per_epoch" in inspect.getsource(PPOTrainerSync.fit)


def test_verl_still_cuts_what_is_not_filtered_whatever_data_truncation_says() -> None:
    # When it does act on data.truncation, verl_plugin/trainer/overlong.py can leave `error` to it.
    from verl.experimental.agent_loop import agent_loop
    from verl.utils.dataset import rl_dataset

    assert "return prompt_ids[-prompt_length:]" in inspect.getsource(agent_loop.AgentLoopBase._cap_text_prompt_length)
    assert "truncation" not in inspect.getsource(agent_loop)
    assert inspect.getsource(rl_dataset).count("self.truncation") == 1
