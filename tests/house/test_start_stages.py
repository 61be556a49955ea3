"""The stages of a start are explained to those who wait for it."""

from __future__ import annotations

from pathlib import Path

from rljob.core.start_message import WORDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "troubleshooting.md"


def test_every_stage_has_its_row_in_the_order_of_a_start() -> None:
    _, _, section = PAGE.read_text().partition("## What a start is doing\n")
    rows = [line.split(" | ")[0].removeprefix("| ") for line in section.partition("\n## ")[0].splitlines()]
    documented = [stage for row in rows[1:] if row in section for stage in row.split(", ")]
    words = [text for text, _ in WORDS.values()]
    assert [stage for stage in documented if stage in words] == words
