"""The lengths that a run records can be planned with."""

from __future__ import annotations

import json
from pathlib import Path

from rljob_runtime.contract import SpoolFile
from rljob_runtime.spool.spool import Spool
from rljob_runtime.verl_plugin.trainer.response_lengths import lines

KEYS = ["b7_0_0", "a1_0_0", "b7_1_0", "pad_0_0", "a1_1_0"]
TAGS: list[dict[str, object]] = [
    {"prompt_len": 3, "response_len": 5},
    {"prompt_len": 4, "response_len": 9},
    {"prompt_len": 3, "response_len": 7},
    {"prompt_len": 3, "response_len": 1, "is_padding": True},
    {"status": "failed"},
]


def test_a_step_is_recorded_in_place_of_the_one_before(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.open_attempt(2)
    spool.write_lengths(2, lines(KEYS[:1], TAGS[:1]))
    spool.write_lengths(2, lines(KEYS, TAGS))
    with (tmp_path / "attempt-2" / SpoolFile.LENGTHS).open() as file:
        rows = [json.loads(line) for line in file]
    assert [(row["prompt"], row["response_tokens"], row["prompt_tokens"]) for row in rows] == [
        (0, 5, 3),
        (1, 9, 4),
        (0, 7, 3),
    ]


def test_a_volume_that_takes_no_lengths_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "attempt-1").write_text("a file, where the folder should be")
    Spool(tmp_path).write_lengths(1, lines(KEYS, TAGS))
    assert [path.name for path in tmp_path.iterdir()] == ["attempt-1"]
