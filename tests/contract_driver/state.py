"""The state of a rank: a hash chain with one link per step, which detects lost, repeated and wrong steps.

The state is stored in a zip file, as by torch.save, because the runtime recognizes complete files by this format.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEMBER = "state.json"
PADDING = "padding"


class StateError(Exception):
    """The loaded state is not the state after its step."""


def link(before: str, step: int, total: int) -> str:
    """Return the hash after a step in which the sum of the ranks' numbers is `total`."""
    return hashlib.sha256(f"{before} {step} {total}".encode()).hexdigest()


def part(step: int, rank: int) -> int:
    """Return the number that a rank adds to the sum of a step."""
    return step * (rank + 1)


def after(step: int, ranks: int) -> str:
    """Return the hash after the steps 1 to `step`, each made once by `ranks` ranks."""
    value = ""
    for number in range(1, step + 1):
        value = link(value, number, sum(part(number, rank) for rank in range(ranks)))
    return value


@dataclass
class State:
    """The training state of one rank."""

    rank: int
    ranks: int
    step: int = 0
    value: str = ""

    def train(self, step: int, total: int) -> None:
        """Add one step. Raise StateError if it does not follow the last one."""
        if step != self.step + 1:
            raise StateError(f"rank {self.rank}: step {step} follows step {self.step}")
        self.step, self.value = step, link(self.value, step, total)

    def save(self, file: Path, kilobytes: int) -> None:
        """Write the state, with padding of `kilobytes` so that a save takes measurable time."""
        write_zip(file, {"rank": self.rank, "step": self.step, "value": self.value}, kilobytes)

    @classmethod
    def load(cls, file: Path, rank: int, ranks: int) -> State:
        """Read a state. Raise StateError if it is not the state of this rank after its step."""
        raw = read_zip(file)
        state = cls(int(raw["rank"]), ranks, int(raw["step"]), str(raw["value"]))
        if state.rank != rank or state.value != after(state.step, ranks):
            raise StateError(f"{file} is not the state of rank {rank} after step {state.step}")
        return state


def write_zip(file: Path, content: Mapping[str, Any], kilobytes: int = 0) -> None:
    """Write a zip file, which is complete only with its last byte."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as made:
        made.writestr(MEMBER, json.dumps(content))
        made.writestr(PADDING, os.urandom(kilobytes << 10))


def read_zip(file: Path) -> dict[str, Any]:
    """Read the content of a file of `write_zip`."""
    with zipfile.ZipFile(file) as made:
        content: dict[str, Any] = json.loads(made.read(MEMBER))
    return content
