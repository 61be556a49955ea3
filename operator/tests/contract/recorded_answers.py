"""What kubectl answered to every command on a wrong cluster: recorded from real API servers, and played back.

`Recorder` and `Player` stand in for `rljob.cli.bounded_process.run`, through which commands ask kubectl. There is one
file per site in `recorded/`; what differs from one server to the next, such as ports, times and uids, is made equal.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rljob.cli.bounded_process import Done
from rljob.cli.bounded_process import run as ask

FOLDER = Path(__file__).parent / "recorded"
REWRITE = "RLJOB_WRITE_GOLDEN=1 .venv/bin/pytest -m integration operator/tests/contract/test_commands.py"
SUFFIX = "abcdef"
"""The random end of the names of pods, in a recording and when it is played."""
_DIFFERENT = (
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:6443"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"), "2026-01-01T00:00:00Z"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "00000000-0000-4000-8000-000000000000"),
    # The head of a line of klog: date, time and process.
    (re.compile(r"^([EWI])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", re.MULTILINE), r"\g<1>0101 00:00:00.000000 1 "),
)
_BUILD = frozenset({"resourceVersion", "goVersion", "platform", "buildDate", "gitCommit"})
"""Fields of objects, and of `kubectl version`, that depend on the machine or on the order of requests."""
_LARGE = frozenset({"schema"})
"""Fields of CRDs that no command reads."""


class Answer(NamedTuple):
    """How kubectl ended, and what it wrote."""

    code: int
    output: str
    errors: str


Calls = Mapping[str, Sequence[Answer]]
"""Answers to each call in their order; the last one repeats."""


@dataclass(frozen=True)
class Recorder:
    """Asks kubectl, and keeps what it answered."""

    home: Path
    """The folder that kubeconfigs and files of the test are in, which is left out."""
    calls: dict[str, list[Answer]] = field(default_factory=dict)

    def run(self, words: Sequence[str], text: str | None, seconds: float) -> Done:
        """Take the place of bounded_process.run."""
        done = ask(words, text, seconds)
        answer = Answer(done.code, self._equal(done.output), self._equal(done.errors))
        self.calls.setdefault(call(words), []).append(answer)
        return done

    def kept(self) -> Calls:
        """Return the answers, without repetitions of the last one."""
        return {words: _without_repetitions(answers) for words, answers in self.calls.items()}

    def _equal(self, said: str) -> str:
        with contextlib.suppress(ValueError):
            said = json.dumps(_plain(json.loads(said)), ensure_ascii=False)
        return made_equal(said.replace(str(self.home), "/home"))


@dataclass(frozen=True)
class Player:
    """Answers as kubectl has answered."""

    calls: Calls
    asked: Counter[str] = field(default_factory=Counter)

    def run(self, words: Sequence[str], text: str | None, seconds: float) -> Done:
        """Take the place of bounded_process.run."""
        del text, seconds
        key = call(words)
        assert key in self.calls, f"kubectl has not been asked this when its answers were recorded: {key}; {REWRITE}"
        answers = self.calls[key]
        answer = answers[min(self.asked[key], len(answers) - 1)]
        self.asked[key] += 1
        return Done(*answer)


def call(words: Sequence[str]) -> str:
    """Return the words after kubectl, as one line."""
    return made_equal(shlex.join(words[1:]))


def made_equal(said: str) -> str:
    """Return the text without what differs from one server to the next."""
    for pattern, instead in _DIFFERENT:
        said = pattern.sub(instead, said)
    return said


def read(site: str) -> dict[str, Calls]:
    """Return the calls of each command on a site."""
    told = json.loads((FOLDER / f"{site}.json").read_text())
    answers = [Answer(*answer) for answer in told["answers"]]
    return {
        command: {words: [answers[number] for number in numbers] for words, numbers in calls.items()}
        for command, calls in told["commands"].items()
    }


def write(site: str, commands: Mapping[str, Calls]) -> None:
    """Write the calls of each command on a site; an answer that several commands got is written once."""
    numbers: dict[Answer, int] = {}
    rows = []
    for command, calls in commands.items():
        shown = {
            words: [numbers.setdefault(answer, len(numbers)) for answer in answers] for words, answers in calls.items()
        }
        rows.append(f"{json.dumps(command)}: {json.dumps(shown)}")
    lines = [json.dumps(answer, ensure_ascii=False) for answer in numbers]
    text = '{"answers": [\n%s\n],\n"commands": {\n%s\n}}\n' % (",\n".join(lines), ",\n".join(rows))  # noqa: UP031 - braces
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{site}.json").write_text(text)


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON values
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: "1" if name in _BUILD else _plain(inner) for name, inner in value.items() if name not in _LARGE}
    return value


def _without_repetitions(answers: list[Answer]) -> list[Answer]:
    end = len(answers)
    while end > 1 and answers[end - 1] == answers[end - 2]:
        end -= 1
    return answers[:end]
