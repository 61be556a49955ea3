"""State shared by the benchmark's processes: whether taps are on, the router's clock, which processes have taps.

A mapped file, because a request would cost more than what is measured. One process writes each field.
"""

from __future__ import annotations

import enum
import mmap
import struct
from pathlib import Path

FOLDER_VARIABLE = "TAP_COST_FOLDER"
"""Folder of the benchmark's own files. If it is not set, nothing is switched or measured."""
STEPS_FILE = "steps.jsonl"
_FILE = "switch"
_ON = 0
_ROUTER = struct.Struct("=dq")
_ROUTER_OFFSET = 8
_PID = struct.Struct("=q")
_PIDS_OFFSET = _ROUTER_OFFSET + _ROUTER.size


class Holder(enum.IntEnum):
    """A process with taps, in addition to the trainer, which reads this."""

    ROUTER = 0
    EXPORTER = 1


_SIZE = _PIDS_OFFSET + len(Holder) * _PID.size


class Shared:
    """The mapped file."""

    def __init__(self, folder: Path) -> None:
        with (folder / _FILE).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)

    @staticmethod
    def create(folder: Path) -> None:
        """Create the file: taps off, nothing measured."""
        (folder / _FILE).write_bytes(bytes(_SIZE))

    @property
    def on(self) -> bool:
        """Return whether the taps are on."""
        return self._map[_ON] == 1

    def switch(self, *, on: bool) -> None:
        """Turn the taps on or off."""
        self._map[_ON] = int(on)

    @property
    def router(self) -> tuple[float, int]:
        """Return the seconds that the router's clock took and the number of its calls, both so far."""
        seconds, calls = _ROUTER.unpack_from(self._map, _ROUTER_OFFSET)
        return seconds, calls

    @router.setter
    def router(self, value: tuple[float, int]) -> None:
        _ROUTER.pack_into(self._map, _ROUTER_OFFSET, *value)

    def hold(self, holder: Holder, pid: int) -> None:
        """Record the process ID of a holder of taps."""
        _PID.pack_into(self._map, _PIDS_OFFSET + holder * _PID.size, pid)

    @property
    def holders(self) -> frozenset[int]:
        """Return the IDs of the recorded processes."""
        pids = (_PID.unpack_from(self._map, _PIDS_OFFSET + holder * _PID.size)[0] for holder in Holder)
        return frozenset(pid for pid in pids if pid)
