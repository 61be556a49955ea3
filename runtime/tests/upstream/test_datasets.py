"""Data sets by name: converted with the image's pyarrow, read by verl's own dataset, scored by its own rewards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.contract import ExitCode
from rljob_runtime.contract.downloads import DatasetName, InitializerRequest
from rljob_runtime.initializers.command import initialize

Row = dict[str, Any]
GSM8K = [{"question": f"What is {n} + 1000?", "answer": f"It is easy.\n#### {n + 1000:,}"} for n in range(3)]
MATH = [
    {"problem": "Half?", "solution": r"It is $\boxed{1}$, no: $\boxed{\frac{1}{2}}$.", "level": "Level 1"},
    {"problem": "Four?", "solution": r"So $\boxed 4$.", "level": "Level 1"},
]
DAPO = [
    {
        "data_source": "math_dapo",
        "prompt": [{"role": "user", "content": f"{n}? The last line is of the form Answer: $Answer"}],
        "ability": "MATH",
        "reward_model": {"ground_truth": str(n), "style": "rule-lighteval/MATH_v2"},
        "extra_info": {"index": "a-hash"},
    }
    for n in (34, 35, 34)
]
SCALER = [{"problem": f"Problem {n}", "answer": str(n), "solution": "…"} for n in range(20)]
RIGHT = {
    DatasetName.GSM8K: "#### {}",
    DatasetName.MATH_LIGHTEVAL: "\\boxed{{{}}}",
    DatasetName.DAPO_MATH: "Answer: {}",
    DatasetName.AIME_2024: "Answer: {}",
    DatasetName.DEEP_SCALE_R: "\\boxed{{{}}}",
}
"""A right response to a prompt of each data set, by its instruction."""


def write(file: Path, rows: list[Row]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".json":
        file.write_text(json.dumps(rows))
    else:
        parquet.write_table(pa.Table.from_pylist(rows), file)


SOURCES: dict[DatasetName, dict[str, list[Row]]] = {
    DatasetName.GSM8K: {
        "main/train-00000-of-00001.parquet": GSM8K,
        "main/test-00000-of-00001.parquet": GSM8K[:1],
        "socratic/train-00000-of-00001.parquet": GSM8K * 9,
    },
    DatasetName.MATH_LIGHTEVAL: {"data/train-00000-of-00001.parquet": MATH, "data/test-00000-of-00001.parquet": MATH},
    DatasetName.DAPO_MATH: {"data/dapo-math-17k.parquet": DAPO},
    DatasetName.AIME_2024: {"data/aime-2024.parquet": DAPO},
    DatasetName.DEEP_SCALE_R: {"deepscaler.json": SCALER},
}
COUNTS = {
    DatasetName.GSM8K: {"train": 3, "test": 1},
    DatasetName.MATH_LIGHTEVAL: {"train": 2, "test": 2},
    DatasetName.DAPO_MATH: {"train": 2},
    DatasetName.AIME_2024: {"test": 2},
    DatasetName.DEEP_SCALE_R: {"train": 18, "test": 2},
}


def made(name: DatasetName, folder: Path) -> Path:
    for path, rows in SOURCES[name].items():
        write(folder / "source" / path, rows)
    request = InitializerRequest(to=str(folder / "to"), source=str(folder / "source"), dataset=name)
    assert initialize(request.to_argument(), {}) == 0
    return folder / "to"


def rows_of(file: Path) -> list[Row]:
    from pyarrow import parquet

    rows: list[Row] = parquet.read_table(file).to_pylist()
    return rows


@pytest.mark.parametrize("name", DatasetName)
def test_every_prompt_is_in_its_split_once(name: DatasetName, tmp_path: Path) -> None:
    folder = made(name, tmp_path)
    found = {file.stem: rows_of(file) for file in folder.glob("*.parquet")}
    assert {split: len(rows) for split, rows in found.items()} == COUNTS[name]
    for split, rows in found.items():
        assert [row["extra_info"]["index"] for row in rows] == list(range(len(rows)))
        assert {row["extra_info"]["split"] for row in rows} == {split}
    assert not (folder / ".rljob/raw").exists()


@pytest.mark.parametrize("name", DatasetName)
def test_the_right_answer_has_the_full_score_of_verl(name: DatasetName, tmp_path: Path) -> None:
    from verl.utils.reward_score import default_compute_score

    for file in made(name, tmp_path).glob("*.parquet"):
        for row in rows_of(file):
            truth = row["reward_model"]["ground_truth"]
            scores = [
                default_compute_score(row["data_source"], RIGHT[name].format(answer), truth)
                for answer in (truth, "wrong")
            ]
            right, wrong = (each["score"] if isinstance(each, dict) else each for each in scores)
            assert (right, wrong) == (1.0, -1.0 if "Answer" in RIGHT[name] else 0.0)


def test_the_prompt_asks_for_the_answer_as_the_reward_finds_it(tmp_path: Path) -> None:
    (gsm8k,) = rows_of(made(DatasetName.GSM8K, tmp_path / "a") / "test.parquet")
    assert gsm8k["prompt"] == [
        {
            "role": "user",
            "content": 'What is 0 + 1000? Let\'s think step by step and output the final answer after "####".',
        }
    ]
    assert gsm8k["reward_model"] == {"style": "rule", "ground_truth": "1000"}
    half, four = rows_of(made(DatasetName.MATH_LIGHTEVAL, tmp_path / "b") / "test.parquet")
    assert half["prompt"][0]["content"].endswith("output the final answer within \\boxed{}.")
    assert half["reward_model"]["ground_truth"] == r"\frac{1}{2}"
    assert four["reward_model"]["ground_truth"] == "4"


@pytest.mark.parametrize("name", DatasetName)
def test_verl_reads_the_file(name: DatasetName, tmp_path: Path) -> None:
    from omegaconf import OmegaConf
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast
    from verl.utils.dataset.rl_dataset import RLHFDataset

    words = Tokenizer(WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    file = next(made(name, tmp_path).glob("*.parquet"))
    config = OmegaConf.create({"cache_dir": str(tmp_path), "max_prompt_length": 1024, "filter_overlong_prompts": True})
    data = RLHFDataset(str(file), tokenizer, config)
    assert len(data) == len(rows_of(file))
    assert data[0]["raw_prompt"][0]["role"] == "user"
    assert data[0]["reward_model"]["ground_truth"]


def test_files_of_another_data_set_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "source/data/train-0.parquet", GSM8K)
    request = InitializerRequest(
        to=str(tmp_path / "to"), source=str(tmp_path / "source"), dataset=DatasetName.MATH_LIGHTEVAL
    )
    assert initialize(request.to_argument(), {}) == ExitCode.BAD_CONFIG
    told = capsys.readouterr().out
    assert "row 0 does not have the expected columns: KeyError 'solution'; does download.repository hold" in told
    assert not list((tmp_path / "to").glob("*.parquet"))
