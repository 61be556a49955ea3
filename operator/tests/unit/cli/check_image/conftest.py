"""A kubectl that plays the states of a pod, in order; the last repeats."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rljob.cli.bounded_process import Done

OPERATOR = {"args": ["--runtime-image=x.example/operator:9"]}
DEPLOYMENTS = {"items": [{"spec": {"template": {"spec": {"containers": [OPERATOR]}}}}]}


@dataclass
class Cluster:
    """The played cluster."""

    states: Sequence[Any] = ()
    """Statuses of the pod; a text is an error, and `interrupt` is Ctrl-C."""
    log: str = ""
    errors: dict[str, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    created: dict[str, Any] = field(default_factory=dict)
    looks: int = 0

    def run(self, words: Sequence[str], text: str | None, _seconds: float) -> Done:
        """Answer a command as kubectl does."""
        command = " ".join(words[1:])
        self.calls.append(command)
        if command.startswith("create"):
            self.created = json.loads(text or "")
        for start, error in self.errors.items():
            if command.startswith(start):
                return Done(1, "", error)
        if command.startswith("get pods"):
            return self._look()
        if command.startswith("get deployments"):
            return Done(0, json.dumps(DEPLOYMENTS), "")
        return Done(0, self.log if command.startswith("logs") else "", "")

    def _look(self) -> Done:
        state = self.states[min(self.looks, len(self.states) - 1)]
        self.looks += 1
        if state == "interrupt":
            signal.raise_signal(signal.SIGINT)
        if isinstance(state, str):
            return Done(1, "", state)
        return Done(
            0, json.dumps({"metadata": {"name": "check-image-1"}, "spec": {"nodeName": "n1"}, "status": state}), ""
        )


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    # It must be on the PATH, and is not called.
    (tmp_path / "kubectl").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    made = Cluster()
    monkeypatch.setattr("rljob.cli.bounded_process.run", made.run)
    return made
