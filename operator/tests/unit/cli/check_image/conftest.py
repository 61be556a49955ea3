"""A kubectl that plays the states of a pod, in order; the last repeats."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """#!{python} -IS
import json, os, pathlib, signal, sys
folder = pathlib.Path(__file__).parent
words = " ".join(sys.argv[1:])
with (folder / "calls").open("a") as calls:
    calls.write(words + chr(10))
play = json.loads((folder / "play.json").read_text())
if words.startswith("create"):
    (folder / "created").write_text(sys.stdin.read())
for start, error in play["errors"].items():
    if words.startswith(start):
        sys.exit(error)
if words.startswith("get pods"):
    count = folder / "count"
    seen = int(count.read_text()) if count.exists() else 0
    count.write_text(str(seen + 1))
    state = play["states"][min(seen, len(play["states"]) - 1)]
    if state == "interrupt":
        os.kill(os.getppid(), signal.SIGINT)
        sys.exit("interrupted")
    if isinstance(state, str):
        sys.exit(state)
    print(json.dumps({{"metadata": {{"name": "check-image-1"}}, "spec": {{"nodeName": "n1"}}, "status": state}}))
elif words.startswith("get deployments"):
    image = {{"args": ["--runtime-image=x.example/operator:9"]}}
    print(json.dumps({{"items": [{{"spec": {{"template": {{"spec": {{"containers": [image]}}}}}}}}]}}))
elif words.startswith("logs"):
    print(play["log"])
"""


@dataclass
class Cluster:
    """The played cluster."""

    folder: Path
    states: Sequence[Any] = ()
    log: str = ""
    errors: dict[str, str] = field(default_factory=dict)

    def write(self) -> None:
        play = {"states": self.states, "log": self.log, "errors": self.errors}
        (self.folder / "play.json").write_text(json.dumps(play))

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    @property
    def created(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads((self.folder / "created").read_text())
        return made


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    (tmp_path / "kubectl").write_text(PROGRAM.format(python=sys.executable))
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return Cluster(tmp_path)
