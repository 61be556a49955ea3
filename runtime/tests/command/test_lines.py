"""Lines are split and files are followed, whatever a command writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rljob_runtime.command import lines
from rljob_runtime.command.lines import FileTail, Lines


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_are_the_same_however_they_arrive(size: int) -> None:
    data = "one\n\ntwo\r 50%\rthree é\r\nfour".encode()
    split = Lines()
    found = [line for begin in range(0, len(data), size) for line in split.feed(data[begin : begin + size])]
    assert [*found, split.rest()] == ["one", "two", " 50%", "three é", "four"]
    assert split.rest() == ""


@pytest.mark.parametrize("size", [7, 100])
def test_a_long_line_is_cut(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES", 10)
    data = b"x" * 8 + b"y" * 50 + b"\nnext\n" + b"z" * 30
    split = Lines()
    found = [line for begin in range(0, len(data), size) for line in split.feed(data[begin : begin + size])]
    assert [*found, split.rest()] == ["xxxxxxxxyy", "next", "z" * 10]


def test_a_file_may_appear_later_and_end_in_a_part_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "late" / "steps.jsonl"
    tail = FileTail(path)
    assert tail.poll() == []
    path.parent.mkdir()
    append(path, '{"step": 1}\n{"st')
    assert tail.poll() == ['{"step": 1}']
    assert tail.poll() == []
    append(path, 'ep": 2}\n{"step": 3}')
    assert tail.poll() == ['{"step": 2}']
    assert tail.rest() == '{"step": 3}'


def test_the_records_of_an_earlier_attempt_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    append(path, "old\n")
    tail = FileTail(path)
    append(path, "new\n")
    assert tail.poll() == ["new"]


@pytest.mark.parametrize("again", ["x\n", "a1\nb1\n", "1\n2\n3\n4\n5\n6\n7\n8\n9\n"])
def test_a_file_that_is_truncated_is_read_from_its_beginning(tmp_path: Path, again: str) -> None:
    path = tmp_path / "steps.jsonl"
    append(path, "old\n")
    tail = FileTail(path)
    append(path, "1\npart")
    assert tail.poll() == ["1"]
    path.write_text(again)  # shorter than, as long as, or longer than before
    assert tail.poll() == again.split()


def test_a_file_that_is_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    path, other = tmp_path / "steps.jsonl", tmp_path / "other"
    append(path, "1\n")
    tail = FileTail(path)
    append(other, "1\n2\n")
    other.replace(path)
    assert tail.poll() == ["1", "2"]
    path.unlink()
    assert tail.poll() == []


def test_one_poll_reads_a_bounded_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "POLL_BYTES", 10)
    path = tmp_path / "steps.jsonl"
    tail = FileTail(path)
    append(path, "".join(f"{json.dumps(number)}\n" for number in range(10)))
    assert [tail.poll(), tail.poll(), tail.poll()] == [list("01234"), list("56789"), []]


@pytest.mark.timeout(20)
def test_what_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert FileTail(tmp_path / "pipe").poll() == []
    assert FileTail(tmp_path).poll() == []
