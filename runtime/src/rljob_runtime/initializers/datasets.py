"""Data sets by name: which files they have, and their conversion to the columns that verl reads.

verl's RLHFDataset reads `prompt`, a list of messages, and gives `data_source`, `reward_model.ground_truth` and
`extra_info` to the reward function (verl 0.9.1, utils/dataset/rl_dataset.py). The instruction at the end of a prompt
and the source's name are those of verl's examples/data_preprocess (gsm8k.py, math_dataset.py), so that its reward
functions find the answer. Needs pyarrow, which every image with verl has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rljob_runtime.contract import ExitCode
from rljob_runtime.contract.downloads import DatasetName, Hub
from rljob_runtime.initializers.error import RequestError
from rljob_runtime.initializers.target import say

TRAIN, TEST = "train", "test"
Row = dict[str, Any]
GSM8K_ADVICE = 'Let\'s think step by step and output the final answer after "####".'
BOXED_ADVICE = "Let's think step by step and output the final answer within \\boxed{}."
GSM8K_ANSWER = re.compile(r"#### (-?[0-9.,]+)")
BOXED = re.compile(r"\\boxed\s*\{|\\fbox\s*\{|\\boxed ")
TEST_SHARE = 10
"""Every tenth prompt of DeepScaleR is for validation: the published recipes train on 90 % of it."""
ROWS_MAX = 5_000_000
BATCH = 5_000


@dataclass(frozen=True)
class Dataset:
    """A data set."""

    repositories: dict[Hub, str]
    patterns: tuple[str, ...]
    """Files of it, of which a repository has at least one."""
    rows: Callable[[str, int, Row], Iterator[tuple[str, Row]]]
    """Split of a file, number of a row and the row -> split and row for verl."""
    repeats: bool = False
    """Whether the published file has each prompt many times: DAPO's a hundred, AIME's 32."""


def convert(dataset: Dataset, raw: Path, to: Path) -> list[str]:
    """Write train.parquet, test.parquet or both, and return their names."""
    found: dict[str, dict[object, Row]] = {TRAIN: {}, TEST: {}}
    for file in sorted(path for path in raw.rglob("*") if path.suffix in (".parquet", ".json", ".jsonl")):
        split = TEST if "test" in file.name else TRAIN
        count = 0
        for number, row in enumerate(_rows_of(file)):
            try:
                for place, made in dataset.rows(split, number, row):
                    index = len(found[place])
                    made["extra_info"]["index"] = index
                    found[place].setdefault(made["prompt"][-1]["content"] if dataset.repeats else index, made)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                problem = f"row {number} does not have the expected columns: {type(error).__name__} {error}"
                raise _unusable(file, problem) from None
            count += 1
            if count > ROWS_MAX:
                raise _unusable(file, f"it has more than {ROWS_MAX} rows")
        say(f"{file.name}: {count} rows")
    written = []
    for split, rows in found.items():
        if rows:
            _write(list(rows.values()), to / f"{split}.parquet")
            written.append(f"{split}.parquet")
            say(f"{split}.parquet: {len(rows)} prompts")
    if not written:
        raise _unusable(raw, "there is no prompt in it")
    return written


def _rows_of(file: Path) -> Iterator[Row]:
    if file.suffix == ".parquet":
        from pyarrow import ArrowInvalid, parquet

        try:
            for batch in parquet.ParquetFile(file).iter_batches(batch_size=BATCH):
                yield from batch.to_pylist()
        except ArrowInvalid as error:
            raise _unusable(file, f"it is no Parquet file: {str(error)[:200]}") from None
        return
    with file.open(encoding="utf-8") as opened:
        try:
            if file.suffix == ".json":
                yield from json.load(opened)
            else:
                yield from (json.loads(line) for line in opened if line.strip())
        except ValueError as error:
            raise _unusable(file, f"it is no JSON: {error}") from None


def _write(rows: list[Row], file: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    part = file.with_name(f".{file.name}.part")
    parquet.write_table(pa.Table.from_pylist(rows), part)
    part.replace(file)


def _row(source: str, question: str, answer: str, split: str, more: Row | None = None) -> Row:
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": question}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"split": split, "index": 0, **(more or {})},
    }


def _gsm8k(split: str, number: int, row: Row) -> Iterator[tuple[str, Row]]:
    del number
    found = GSM8K_ANSWER.search(row["answer"])
    if found is None:
        raise ValueError("the answer has no ####")
    question, answer = row["question"], found[1].replace(",", "")
    yield (
        split,
        _row(
            "openai/gsm8k", f"{question} {GSM8K_ADVICE}", answer, split, {"answer": row["answer"], "question": question}
        ),
    )


def _math(split: str, number: int, row: Row) -> Iterator[tuple[str, Row]]:
    del number
    answer = last_boxed(row["solution"])
    if answer is None:
        raise ValueError("the solution has no boxed answer")
    yield (
        split,
        _row("DigitalLearningGmbH/MATH-lighteval", f"{row['problem']} {BOXED_ADVICE}", answer, split),
    )


def _deepscaler(split: str, number: int, row: Row) -> Iterator[tuple[str, Row]]:
    split = TEST if number % TEST_SHARE == TEST_SHARE - 1 else split
    # The reward functions compare by the content of a box, whatever the data's own collection is.
    yield (
        split,
        _row("DigitalLearningGmbH/MATH-lighteval", f"{row['problem']} {BOXED_ADVICE}", str(row["answer"]), split),
    )


def _for_verl(split: str, source: str) -> Callable[[str, int, Row], Iterator[tuple[str, Row]]]:
    """Return the conversion of a file that has verl's columns; its prompts ask for `Answer:` themselves."""

    def rows(_: str, number: int, row: Row) -> Iterator[tuple[str, Row]]:
        del number
        messages = [{"role": str(each["role"]), "content": str(each["content"])} for each in row["prompt"]]
        made = _row(source, "", str(row["reward_model"]["ground_truth"]), split)
        yield split, made | {"prompt": messages}

    return rows


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{}`, with its inner braces; `\boxed 3` is a form without braces."""
    starts = list(BOXED.finditer(text))
    if not starts:
        return None
    start = starts[-1].end()
    if not starts[-1][0].endswith("{"):
        return text[start:].split("$", 1)[0].strip() or None
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return None


def _unusable(file: Path, problem: str) -> RequestError:
    return RequestError(ExitCode.BAD_CONFIG, f"{file}: {problem}; does download.repository hold this data set?")


TABLE: dict[DatasetName, Dataset] = {
    DatasetName.GSM8K: Dataset(
        {Hub.HUGGING_FACE: "openai/gsm8k", Hub.MODEL_SCOPE: "AI-ModelScope/gsm8k"},
        ("main/train-*.parquet", "main/test-*.parquet"),
        _gsm8k,
    ),
    DatasetName.MATH_LIGHTEVAL: Dataset(
        {Hub.HUGGING_FACE: "DigitalLearningGmbH/MATH-lighteval", Hub.MODEL_SCOPE: "AI-ModelScope/MATH-lighteval"},
        ("data/train-*.parquet", "data/test-*.parquet"),
        _math,
    ),
    DatasetName.DAPO_MATH: Dataset(
        dict.fromkeys(Hub, "BytedTsinghua-SIA/DAPO-Math-17k"),
        ("data/dapo-math-17k.parquet",),
        _for_verl(TRAIN, "math_dapo"),
        repeats=True,
    ),
    DatasetName.AIME_2024: Dataset(
        dict.fromkeys(Hub, "BytedTsinghua-SIA/AIME-2024"),
        ("data/aime-2024.parquet",),
        _for_verl(TEST, "aime_2024"),
        repeats=True,
    ),
    DatasetName.DEEP_SCALE_R: Dataset(
        dict.fromkeys(Hub, "agentica-org/DeepScaleR-Preview-Dataset"), ("deepscaler.json",), _deepscaler
    ),
}
