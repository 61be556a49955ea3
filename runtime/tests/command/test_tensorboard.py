"""Steps in TensorBoard's event files: those of a real writer, partial and malformed ones, and their bounds."""

from __future__ import annotations

import base64
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rljob_runtime.command import lines, progress, tensorboard
from rljob_runtime.command.progress import StepReport
from rljob_runtime.command.tensorboard import EventTail

RECORDED = Path(__file__).parent / "events.tfevents.b64"
"""Written by torch.utils.tensorboard.SummaryWriter (torch 2.11, tensorboard 2.21): docstring of record_events.py."""


def varint(value: int) -> bytes:
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


def part(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def scalar(name: str, value: float) -> bytes:
    return part(1, part(1, name.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value))


def record(event: bytes) -> bytes:
    return struct.pack("<QI", len(event), 0) + event + b"\0\0\0\0"


def event(step: int, *values: bytes) -> bytes:
    return record(
        varint(1 << 3 | 1) + struct.pack("<d", 1.5) + varint(2 << 3) + varint(step) + part(5, b"".join(values))
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run" / "events.out.tfevents.1.host"


def append(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as handle:
        handle.write(data)


def test_the_file_of_a_real_writer(tmp_path: Path) -> None:
    tail = EventTail(tmp_path)
    (tmp_path / "events.out.tfevents.1.host").write_bytes(base64.b64decode(RECORDED.read_text()))
    assert tail.poll() == [
        StepReport(1, {"critic/score/mean": 0.25, "perf/throughput": 128.0}),
        StepReport(2, {"critic/score/mean": 0.5, "perf/throughput": 256.0, "new_style": 0.75}),
    ]
    assert tail.rest() == [StepReport(3, {"critic/score/mean": 1.0})]


def test_a_step_is_complete_when_a_later_one_begins(tmp_path: Path, file: Path) -> None:
    tail = EventTail(tmp_path)
    assert tail.poll() == []
    append(file, event(1, scalar("a", 0.5)))
    append(file, event(1, scalar("b", 2.0)))
    assert tail.poll() == []
    append(file, event(2, scalar("a", 1.5)))
    assert tail.poll() == [StepReport(1, {"a": 0.5, "b": 2.0})]
    assert tail.poll() == []
    assert tail.rest() == [StepReport(2, {"a": 1.5})]


def test_an_event_counts_when_all_of_it_is_written(tmp_path: Path, file: Path) -> None:
    tail, whole = EventTail(tmp_path), event(1, scalar("a", 0.5)) + event(2, scalar("a", 1.0))
    found = []
    for byte in whole:
        append(file, bytes([byte]))
        found += tail.poll()
    assert found == [StepReport(1, {"a": 0.5})]
    assert tail.offset == len(whole)


def test_what_an_earlier_attempt_wrote_is_skipped(tmp_path: Path, file: Path) -> None:
    append(file, event(7, scalar("a", 0.5)))
    tail = EventTail(tmp_path)
    append(file, event(1, scalar("a", 1.0)))
    append(file.with_name("events.out.tfevents.2.host"), event(2, scalar("a", 2.0)))
    assert tail.poll() == [StepReport(1, {"a": 1.0})]


def test_files_that_report_the_same_step_are_joined(tmp_path: Path, file: Path) -> None:
    tail = EventTail(tmp_path)
    append(file, event(1, scalar("a", 1.0)) + event(2, scalar("a", 2.0)))
    append(tmp_path / "eval" / "events.out.tfevents.1.host", event(1, scalar("b", 3.0)))
    assert tail.poll() == [StepReport(1, {"a": 1.0, "b": 3.0})]


def test_a_file_that_begins_again_is_read_from_its_start(tmp_path: Path, file: Path) -> None:
    tail = EventTail(tmp_path)
    append(file, event(1, scalar("a", 1.0), scalar("b", 1.0)) + event(2, scalar("a", 1.0)))
    assert [report.step for report in tail.poll()] == [1]
    file.write_bytes(event(3, scalar("a", 1.0)))
    assert [report.step for report in tail.poll()] == [2]


@pytest.mark.parametrize(
    "message",
    [
        b"\x10\x05" + part(5, part(1, part(1, b"a") + part(8, b"\x08\x07"))),  # a tensor of strings
        b"\x10\x05" + part(5, part(1, part(1, b"a") + part(4, b"image"))),
        b"\x10\x05" + part(5, b"\x0a\xff"),  # ends within a field
        b"\x10" + b"\xff" * 11,  # a number without end
        b"\x13\x05",  # a group, which proto3 does not have
        b"\x10\x05",
        b"",
    ],
)
def test_an_event_without_scalars_is_no_step(tmp_path: Path, file: Path, message: bytes) -> None:
    tail = EventTail(tmp_path)
    append(file, record(message) + event(6, scalar("a", 1.0)) + event(7, scalar("a", 1.0)))
    assert tail.poll() == [StepReport(6, {"a": 1.0})]


def test_tensors_of_one_number_are_scalars(tmp_path: Path, file: Path) -> None:
    tail = EventTail(tmp_path)
    content = part(1, part(1, b"content") + part(8, b"\x08\x02" + part(4, struct.pack("<d", 0.1))))
    values = part(1, part(1, b"values") + part(8, b"\x08\x01" + part(5, struct.pack("<f", 0.5))))
    two = part(1, part(1, b"two") + part(8, b"\x08\x01" + part(5, struct.pack("<ff", 0.5, 1))))
    append(file, event(1, content, values, two))
    assert (tail.poll(), tail.rest()) == ([], [StepReport(1, {"content": 0.1, "values": 0.5})])


def test_a_long_event_is_not_read(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "EVENT_BYTES", 100)
    tail = EventTail(tmp_path)
    append(file, event(1, scalar("a" * 200, 1.0)) + event(2, scalar("a", 1.0)))
    assert (tail.poll(), tail.rest()) == ([], [StepReport(2, {"a": 1.0})])


def test_one_poll_reads_a_bounded_part(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "POLL_BYTES", 100)
    tail = EventTail(tmp_path)
    append(file, b"".join(event(step, scalar("a", step)) for step in range(1, 50)))
    polls = [len(tail.poll()) for _ in range(49)]
    assert max(polls) < 5
    assert sum(polls) == 48


def test_metrics_names_and_files_are_bounded(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "METRICS_MAX", 2)
    monkeypatch.setattr(tensorboard, "FILES_MAX", 1)
    tail = EventTail(tmp_path)
    append(file, event(3, scalar("old", 1.0)))
    newest = file.with_name("events.out.tfevents.2.host")
    append(newest, event(1, scalar("a", 1.0), scalar("b", 1.0)) + event(1, scalar("c", 1.0), scalar("a", 2.0)))
    append(newest, event(1, scalar("x" * 201, 1.0)) + event(2**62, scalar("a", 1.0)))
    os.utime(file, (1000, 1000))
    assert (tail.poll(), tail.rest()) == ([], [StepReport(1, {"a": 2.0, "b": 1.0})])


def test_only_a_named_scalar_begins_a_step(tmp_path: Path, file: Path) -> None:
    tail = EventTail(tmp_path, frozenset({"reward"}))
    append(file, event(1, scalar("loss", 0.5)) + event(1, scalar("reward", 1.0)) + event(51200, scalar("samples", 2.0)))
    append(file, event(2, scalar("loss", 0.25)))
    assert tail.poll() == []
    append(file, event(2, scalar("reward", 2.0)) + event(3, scalar("reward", 3.0)))
    assert tail.poll() == [StepReport(1, {"loss": 0.5, "reward": 1.0}), StepReport(2, {"loss": 0.25, "reward": 2.0})]


def test_pending_steps_are_bounded(tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "PENDING_MAX", 1)
    tail = EventTail(tmp_path, frozenset({"reward"}))
    append(file, event(1, scalar("loss", 0.5)) + event(2, scalar("loss", 0.5)) + event(2, scalar("reward", 1.0)))
    assert (tail.poll(), tail.rest()) == ([], [StepReport(2, {"reward": 1.0})])


def test_the_files_that_were_written_last_are_followed(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard, "FILES_MAX", 1)
    old = tmp_path / "run-z" / "events.out.tfevents.9.host"
    append(old, event(9, scalar("a", 1.0)))
    os.utime(old, (1000, 1000))
    tail = EventTail(tmp_path)
    append(file, event(1, scalar("a", 1.0)) + event(2, scalar("a", 1.0)))
    assert tail.poll() == [StepReport(1, {"a": 1.0})]


def test_what_cannot_be_read_has_no_steps(tmp_path: Path, file: Path) -> None:
    tail = EventTail(tmp_path)
    file.parent.mkdir()
    os.mkfifo(file)
    assert tail.poll() == []
    deep = tmp_path.joinpath(*"abcde") / "events.out.tfevents.1.host"
    append(deep, event(1, scalar("a", 1.0)))
    assert (tail.poll(), tail.rest()) == ([], [])


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_without_an_exception(data: bytes) -> None:
    step, metrics = tensorboard._parse(data)
    assert isinstance(step, int)
    assert all(isinstance(value, float) for value in metrics.values())
