"""Read steps from TensorBoard's event files while a command writes them, with bounded memory.

A file is a sequence of records (TFRecord: tensorboard/compat/tensorflow_stub/pywrap_tensorflow.py, RecordWriter), each
an `Event` in protobuf's wire format (tensorboard/compat/proto/event.proto, summary.proto, tensor.proto). Only scalars
are read. Their number for a step is not known, so a step counts once a later one begins or the command has ended.
Nothing verifies the checksums: an event that does not parse is skipped.

TensorBoard's own reader is not used, because it needs the packages tensorboard and protobuf, which the image of a
command does not have to contain.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from rljob_runtime.command import lines, progress
from rljob_runtime.command.progress import StepReport
from rljob_runtime.contract import legible

FILE_MARK = "tfevents"
"""Part of the name of every event file (tensorboard/summary/writer/event_file_writer.py)."""
FILES_MAX = 64
"""The last written ones of a folder."""
PENDING_MAX = 64
"""Most steps that are kept while none of their scalars in `progress.metrics` has been read."""
ENTRIES_MAX = 4096
"""Entries of the folder and its subfolders that one search looks at."""
DEPTH_MAX = 4
"""verl writes to <folder>/<project>/<experiment> (utils/tracking.py, _TensorboardAdapter, 0.9.1)."""
EVENT_BYTES = 1 << 20
"""A longer event, such as one with images, is skipped without being read."""
HEADER, FOOTER_BYTES = struct.Struct("<QI"), 4
"""Length of the event and its checksum; the checksum of the event."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of protobuf's encoding."""
FIXED = {FIXED64: 8, FIXED32: 4}
VARINT_BYTES = 10
EVENT_STEP, EVENT_SUMMARY = 2, 5
SUMMARY_VALUE = 1
VALUE_TAG, VALUE_SIMPLE, VALUE_TENSOR = 1, 2, 8
TENSOR_TYPE, TENSOR_CONTENT, TENSOR_FLOATS, TENSOR_DOUBLES = 1, 4, 5, 6
FORMATS = {1: "<f", 2: "<d"}
"""DT_FLOAT and DT_DOUBLE (types.proto)."""

Fields = Iterator[tuple[int, int, int | bytes]]


class EventTail:
    """The steps that a command writes to event files below a folder. Events from before this attempt are skipped."""

    def __init__(self, folder: Path, keys: frozenset[str] = frozenset()) -> None:
        """Follow a folder. Only a scalar with one of `keys` begins a step, since others may count something else."""
        self._folder, self._keys = folder, keys
        self._pending: dict[int, dict[str, float]] = {}
        self._offsets: dict[Path, int] = {file: _size(file) for file in _files(folder)}
        self._step = -1
        self._metrics: dict[str, float] = {}
        self.offset = 0
        """Number of bytes that were read or skipped."""

    def poll(self) -> list[StepReport]:
        """Return the steps that are complete. A file that cannot be read has no new events."""
        events: list[tuple[int, dict[str, float]]] = []
        for file in _files(self._folder):
            with contextlib.suppress(OSError):
                events += self._events(file)
        # Several files, such as those of training and evaluation, may report the same step.
        return [done for step, metrics in sorted(events, key=_step_of) for done in self._add(step, metrics)]

    def rest(self) -> list[StepReport]:
        """Return the last step, once the command has ended."""
        return [StepReport(self._step, self._metrics)] if self._metrics else []

    def _add(self, step: int, metrics: dict[str, float]) -> Iterator[StepReport]:
        """Add an event. Yield the step before, if this one begins a later one. Events of earlier steps are dropped."""
        if not metrics or not self._step <= step <= progress.STEP_MAX:
            return
        if step > self._step and self._keys and not self._keys & metrics.keys():
            if step in self._pending or len(self._pending) < PENDING_MAX:
                _merge(self._pending.setdefault(step, {}), metrics)
            return
        if step > self._step:
            yield from self.rest()
            self._step, self._metrics = step, self._pending.pop(step, {})
            self._pending = {later: found for later, found in self._pending.items() if later > step}
        _merge(self._metrics, metrics)

    def _events(self, path: Path) -> list[tuple[int, dict[str, float]]]:
        """Return step and scalars of a file's new events, read from at most about lines.POLL_BYTES."""
        file = lines.open_regular(path)
        try:
            size = os.fstat(file).st_size
            offset = self._offsets.get(path, 0)
            offset = offset if offset <= size else 0  # a shorter file was begun again
            budget, events = lines.POLL_BYTES, list[tuple[int, dict[str, float]]]()
            while budget > 0 and (length := _length(file, offset, size)) is not None:
                if length <= EVENT_BYTES:
                    events.append(_parse(os.pread(file, length, offset + HEADER.size)))
                    budget -= length
                taken = HEADER.size + length + FOOTER_BYTES
                offset, self.offset, budget = offset + taken, self.offset + taken, budget - HEADER.size
            self._offsets[path] = offset
            return events
        finally:
            os.close(file)


def _merge(found: dict[str, float], more: dict[str, float]) -> None:
    for name, value in more.items():
        if name in found or len(found) < progress.METRICS_MAX:
            found[name] = value


def _step_of(event: tuple[int, dict[str, float]]) -> int:
    return event[0]


def _length(file: int, offset: int, size: int) -> int | None:
    """Return the length of the event at `offset`; None unless all of it has been written."""
    header = os.pread(file, HEADER.size, offset)
    if len(header) < HEADER.size:
        return None
    length: int = HEADER.unpack(header)[0]
    return length if offset + HEADER.size + length + FOOTER_BYTES <= size else None


def _files(folder: Path) -> list[Path]:
    """Return the event files below a folder that were written last: the search is bounded in depth and in number."""
    levels, found, left = [folder], list[Path](), ENTRIES_MAX
    for _ in range(DEPTH_MAX):
        below: list[Path] = []
        for level in levels:
            try:
                with os.scandir(level) as entries:
                    for entry in itertools.islice(entries, left):
                        left -= 1
                        if entry.is_dir(follow_symlinks=False):
                            below.append(Path(entry.path))
                        elif FILE_MARK in entry.name:
                            found.append(Path(entry.path))
            except OSError:
                continue
        levels = below
    return sorted(sorted(found, key=_written)[-FILES_MAX:])


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _parse(event: bytes) -> tuple[int, dict[str, float]]:
    """Return step and scalars of an event; what is malformed has none."""
    step, metrics = 0, dict[str, float]()
    try:
        for number, kind, value in _fields(event):
            if (number, kind) == (EVENT_STEP, VARINT) and isinstance(value, int):
                step = value
            elif (number, kind) == (EVENT_SUMMARY, BYTES) and isinstance(value, bytes):
                metrics |= _scalars(value)
    except (ValueError, struct.error):
        return 0, {}
    return step, metrics


def _scalars(summary: bytes) -> dict[str, float]:
    found: dict[str, float] = {}
    for number, kind, value in _fields(summary):
        if (number, kind) == (SUMMARY_VALUE, BYTES) and isinstance(value, bytes):
            name, scalar = _value(value)
            if scalar is not None and 0 < len(name) <= progress.NAME_CHARACTERS:
                found[legible(name)] = scalar
    return found


def _value(message: bytes) -> tuple[str, float | None]:
    name, scalar = "", None
    for number, kind, value in _fields(message):
        if not isinstance(value, bytes):
            continue
        if (number, kind) == (VALUE_TAG, BYTES):
            name = value.decode(errors="replace")
        elif (number, kind) == (VALUE_SIMPLE, FIXED32):
            scalar = float(struct.unpack("<f", value)[0])
        elif (number, kind) == (VALUE_TENSOR, BYTES):
            scalar = _tensor(value)
    return name, scalar


def _tensor(message: bytes) -> float | None:
    """Return the value of a tensor of one number; None for other tensors."""
    kind, content = 0, b""
    for number, _, value in _fields(message):
        if number == TENSOR_TYPE and isinstance(value, int):
            kind = value
        elif number in (TENSOR_CONTENT, TENSOR_FLOATS, TENSOR_DOUBLES) and isinstance(value, bytes):
            content += value
    form = FORMATS.get(kind)
    return (
        float(struct.unpack(form, content)[0]) if form is not None and len(content) == struct.calcsize(form) else None
    )


def _fields(message: bytes) -> Fields:
    """Yield number, wire type and value of each field. Raises ValueError if the message is malformed."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = _varint(message, at)
            yield number, kind, value
            continue
        if kind == BYTES:
            length, at = _varint(message, at)
        elif kind in FIXED:
            length = FIXED[kind]
        else:
            raise ValueError(f"wire type {kind}")
        if at + length > len(message):
            raise ValueError("the message ends within a field")
        yield number, kind, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number and the place behind it."""
    value = 0
    for index, byte in enumerate(message[at : at + VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise ValueError("a number has no end")
