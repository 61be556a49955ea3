"""A kubectl that plays back answers, and a clock that does not wait, for tests of `rljob conformance`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rljob.cli.conformance.facts import Plan

PROGRAM = """#!{python} -IS
import json, pathlib, sys
folder = pathlib.Path(__file__).parent
words = " ".join(sys.argv[1:])
with (folder / "calls").open("a") as calls:
    calls.write(words[:200].replace(chr(10), " ") + chr(10))
if words.startswith("create"):
    with (folder / "created").open("a") as created:
        created.write(sys.stdin.read() + chr(10))
told = json.loads((folder / "answers.json").read_text())
for prefix, answers in sorted(told.items(), key=lambda row: -len(row[0])):
    if words.startswith(prefix):
        counter = folder / ("count-" + "".join(c if c.isalnum() else "_" for c in prefix))
        seen = int(counter.read_text()) if counter.exists() else 0
        counter.write_text(str(seen + 1))
        answer = answers[min(seen, len(answers) - 1)]
        if isinstance(answer, str) and answer.startswith("Error"):
            sys.exit(answer)
        print(answer if isinstance(answer, str) else json.dumps(answer))
        sys.exit()
print(json.dumps({{"items": []}}))
"""
"""Answers by the longest beginning of the command; the last one of a list repeats; without: an empty list."""
PLAN = Plan("abc123", "cpu", "huawei.com/Ascend910", is_npu=False, devices=2, image="x.example/runtime:1")


@dataclass
class Cluster:
    """The played-back cluster."""

    folder: Path
    answers: dict[str, list[Any]]

    def write(self) -> None:
        """Write the answers for kubectl."""
        (self.folder / "answers.json").write_text(json.dumps(self.answers))

    def answer(self, command: str, *answers: Any) -> None:  # noqa: ANN401 - JSON values
        """Give these answers to the commands that begin so, instead of the recorded ones."""
        others = {key: told for key, told in self.answers.items() if not key.startswith(command)}
        self.answers = {command: list(answers)} | others
        self.write()

    def items(self, command: str) -> list[dict[str, Any]]:
        """Return the objects of a recorded list."""
        told = next(told for key, told in self.answers.items() if key.startswith(command))
        found: list[dict[str, Any]] = told[0]["items"]
        return found

    @property
    def calls(self) -> list[str]:
        """Return the commands so far."""
        return (self.folder / "calls").read_text().splitlines()

    @property
    def created(self) -> list[dict[str, Any]]:
        """Return the objects that were created."""
        path = self.folder / "created"
        return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


@dataclass
class Time:
    """A clock whose sleep passes time at once."""

    seconds: float = 0.0
    speed: float = 1.0
    """Seconds that pass for each second of sleep."""

    def now(self) -> float:
        """Return the time."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Pass time."""
        self.seconds += seconds * self.speed
