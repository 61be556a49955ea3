"""A kubectl that plays back answers, and a clock that does not wait, for tests of `rljob conformance`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rljob.cli.bounded_process import Done
from rljob.cli.conformance.facts import ConformancePlan

PLAN = ConformancePlan("abc123", "cpu", "huawei.com/Ascend910", is_npu=False, devices=2, image="x.example/runtime:1")
SHOWN_CHARACTERS = 200


@dataclass
class Cluster:
    """The played-back cluster. A test patches the call of kubectl, `bounded_process.run`, with `run`."""

    answers: dict[str, list[Any]]
    """Answers by the longest beginning of the command; the last one of a list repeats; without: an empty list."""
    calls: list[str] = field(default_factory=list)
    """The commands so far."""
    created: list[dict[str, Any]] = field(default_factory=list)
    """The objects that were created."""
    asked: Counter[str] = field(default_factory=Counter)
    """How often each beginning was asked for."""

    def run(self, words: Sequence[str], text: str | None, _seconds: float) -> Done:
        """Answer a command as kubectl does."""
        command = " ".join(words[1:])
        self.calls.append(command[:SHOWN_CHARACTERS].replace("\n", " "))
        if command.startswith("create"):
            self.created.append(json.loads(text or ""))
        beginning = max((key for key in self.answers if command.startswith(key)), key=len, default=None)
        if beginning is None:
            return Done(0, json.dumps({"items": []}), "")
        answers = self.answers[beginning]
        answer = answers[min(self.asked[beginning], len(answers) - 1)]
        self.asked[beginning] += 1
        if isinstance(answer, str) and answer.startswith("Error"):
            return Done(1, "", answer)
        return Done(0, answer if isinstance(answer, str) else json.dumps(answer), "")

    def answer(self, command: str, *answers: Any) -> None:  # noqa: ANN401 - JSON values
        """Give these answers to the commands that begin so, instead of the recorded ones."""
        others = {key: told for key, told in self.answers.items() if not key.startswith(command)}
        self.answers = {command: list(answers)} | others

    def items(self, command: str) -> list[dict[str, Any]]:
        """Return the objects of a recorded list."""
        told = next(told for key, told in self.answers.items() if key.startswith(command))
        found: list[dict[str, Any]] = told[0]["items"]
        return found


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
