"""What `rljob explain` says a command loses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import Json, small_spec, typed
from corpus.command import command, progress, saves

from rljob.cli.main import main
from rljob.launchers import LAUNCHER
from rljob.launchers.command.command_launcher import CommandLauncher

EXAMPLES = Path(__file__).resolve().parents[5] / "examples"


def lost(change: Json) -> str:
    spec = typed(small_spec(change))
    return "\n".join(LAUNCHER(spec).losses(spec))


def test_a_job_of_verl_loses_nothing() -> None:
    assert lost({}) == ""
    assert CommandLauncher().losses(typed(small_spec())) == ()


def test_each_part_that_is_not_described_costs_something() -> None:
    bare = lost(command())
    assert "progress is not set" in bare
    assert "every attempt begins at step 0" in bare
    assert "does not save after SIGTERM" in bare
    assert "as far as the command reports them" in lost(progress(source="VerlConsole"))
    assert "the command decides when it saves" in lost(saves())
    assert "a stop discards" in lost(command({"stop": {"mode": "None"}}))
    by_file = lost(command({"stop": {"mode": "File", "file": "/tmp/stop"}}))
    assert "SIGTERM" not in by_file
    assert "discards" not in by_file


def test_explain_shows_them_below_the_fields_of_a_whole_job(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "command.yaml")
    assert main(["explain", "-f", file]) == 0
    assert "\nlost compared with launcher.type Verl:\n  - launcher.command.args" in capsys.readouterr().out
    assert main(["explain", "-f", file, "-o", "json"]) == 0
    assert "the command decides when it saves" in json.loads(capsys.readouterr().out)["losses"]
    assert main(["explain", "-f", file, "trainer.steps"]) == 0
    assert "lost" not in capsys.readouterr().out
