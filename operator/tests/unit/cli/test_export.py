"""`rljob export` asks by an annotation, and sets spec.export.to only if a target is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rljob.cli.main import main

SCRIPT = """#!/bin/sh
cd "$(dirname "$0")"
if [ "$1" = patch ]; then for last; do :; done; echo "$7" >patch; [ ! -f after ] || cp after answer; exit 0; fi
cat answer
"""


@pytest.fixture
def cluster(kubectl: Path) -> Path:
    (kubectl / "kubectl").write_text(SCRIPT)
    return kubectl


def answer(cluster: Path, export: Any = None, steps: tuple[dict[str, Any], ...] = (), **more: Any) -> None:  # noqa: ANN401
    job = {
        "metadata": {"name": "sums"},
        "spec": {"export": export} if export else {},
        "status": {"export": {"steps": list(steps), **more}},
    }
    (cluster / "answer").write_text(json.dumps(job))


def patched(cluster: Path) -> Any:  # noqa: ANN401 - JSON
    return json.loads((cluster / "patch").read_text())


def entry(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of an entry
    return {"name": "e-1", "step": 4, "state": "Succeeded", "target": "/m", "path": "/m/global_step_4", **more}


def test_a_step_is_asked_for(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(cluster, export={"to": {"path": "/m"}})
    assert main(["export", "sums", "--step", "4"]) == 0
    assert list(patched(cluster)) == ["metadata"]
    assert patched(cluster)["metadata"]["annotations"]["rljob.dev/export"].startswith("4 2")
    assert "rljob export sums --list" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "to"),
    [
        (["/data/models"], {"type": "Path", "path": "/data/models"}),
        (
            ["pvc:models/team/a"],
            {"type": "PVC", "persistentVolumeClaim": {"claimName": "models", "subPath": "team/a"}},
        ),
        (["pvc:models"], {"type": "PVC", "persistentVolumeClaim": {"claimName": "models", "subPath": None}}),
        (
            ["hf:team/sums", "--secret", "hub"],
            {"type": "HuggingFace", "huggingFace": {"repository": "team/sums", "secretRef": {"name": "hub"}}},
        ),
    ],
)
def test_a_target_replaces_the_one_of_another_type(cluster: Path, words: list[str], to: dict[str, Any]) -> None:
    answer(cluster)
    assert main(["export", "sums", "--to", *words]) == 0
    export = patched(cluster)["spec"]["export"]
    assert export["when"] == "OnRequest"
    assert {name: value for name, value in export["to"].items() if value is not None} == to
    assert len(export["to"]) == 6


def test_a_job_keeps_when_it_exports_by_itself(cluster: Path) -> None:
    answer(cluster, export={"when": "Best", "to": {"path": "/m"}})
    assert main(["export", "sums", "--to", "/other"]) == 0
    assert "when" not in patched(cluster)["spec"]["export"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--step", "0"], "use a number, latest or best"),
        ([], "say where to with --to"),
        (["--to", "models"], "is no target; use /folder, pvc:CLAIM"),
        (["--to", "hf:team/sums"], "needs --secret"),
    ],
)
def test_a_request_that_cannot_be_made_is_an_error(
    cluster: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    answer(cluster)
    assert main(["export", "sums", *words]) == 2
    assert told in capsys.readouterr().err
    assert not (cluster / "patch").exists()


def test_exports_are_listed(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(cluster, steps=(entry(attempts=2), entry(step=0, state="Failed", path=None, message="NoScores")))
    assert main(["export", "sums", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["4", "Succeeded", "2", "/m", "/m/global_step_4"]
    assert lines[2].split()[:2] == ["best", "Failed"]
    assert lines[2].endswith("NoScores")
    assert main(["export", "sums", "--list", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["step"] == 4


@pytest.mark.parametrize(("state", "code"), [("Succeeded", 0), ("Failed", 1)])
def test_an_export_is_waited_for(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], state: str, code: int
) -> None:
    monkeypatch.setattr("rljob.cli.verbs.export.datetime", Clock)
    answer(cluster, export={"to": {"path": "/m"}}, steps=(entry(name="e-2", state=state),), request="4 then")
    (cluster / "answer").rename(cluster / "after")
    answer(cluster, export={"to": {"path": "/m"}}, steps=(entry(name="e-1"),))
    assert main(["export", "sums", "--step", "4", "--wait", "5"]) == code
    assert state in capsys.readouterr().out


def test_a_refused_request_is_an_error(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rljob.cli.verbs.export.datetime", Clock)
    answer(cluster, export={"to": {"path": "/m"}}, request="4 then")
    assert main(["export", "sums", "--step", "4", "--wait", "5"]) == 2
    assert "kubectl describe rljob sums" in capsys.readouterr().err


class Clock:
    """A clock that stands."""

    @classmethod
    def now(cls, _: object) -> Clock:
        return cls()

    def isoformat(self, **_: object) -> str:
        return "then"
