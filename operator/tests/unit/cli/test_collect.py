"""`rljob logs --collect` runs the runtime's command in the head pod and shows what was copied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rljob.cli.main import main
from rljob.render import labels
from rljob.render.names import JobIdentity
from rljob_runtime.contract import Collection, NodeLogs

JOB = JobIdentity("team-a", "sums", "0a1b2c3d-0000-4000-8000-000000000000")
DONE = Collection(
    2,
    "/logs/sums-0a1b2-1/attempt-2",
    4.2,
    (NodeLogs("npu-1", 3, 2_500_000), NodeLogs("npu-2", 1, 10, 7, ("no time was left",))),
    ("10.0.0.3",),
    stacks=18,
    diagnosis="AISW_CANN_HCCL_017 at npu-1 device-0",
)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl of a cluster with a job and its head; a test may take the head away or change its answer."""
    metadata = {"namespace": JOB.namespace, "name": JOB.name, "uid": JOB.uid}
    head: dict[str, Any] = {
        "metadata": {
            "name": "head",
            "creationTimestamp": "2026-11-28T00:00:00Z",
            "ownerReferences": [{"controller": True, "kind": "RayCluster", "name": f"{JOB.prefix}-1"}],
            "labels": {labels.JOB_UID: JOB.uid},
        },
        "status": {"phase": "Running"},
    }
    (tmp_path / "rljobs").write_text(json.dumps({"metadata": metadata}))
    (tmp_path / "pods").write_text(json.dumps({"items": [head]}))
    (tmp_path / "exec").write_text(f"noise\n\n{DONE.to_json().decode()}\n")
    (tmp_path / "kubectl").write_text(
        f'#!/bin/sh\ncd {tmp_path}\necho "$@" >> words\ncase "$1 $2" in\n'
        '"get rljobs"*) cat rljobs ;;\n"get pods"*) cat pods ;;\n'
        '"exec "*) cat exec; [ ! -f error ] || { cat error >&2; exit 1; } ;;\nesac\n'
    )
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_it_says_what_is_where(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "--collect", "sums", "-n", "team-a"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "/logs/sums-0a1b2-1/attempt-2: 4 files of 2 nodes in 4 s",
        "  npu-1: 3 files, 2.5 MB",
        "  npu-2: 1 file, 0.0 MB, 7 left out",
        "    note: no time was left",
        "  10.0.0.3: no answer in time",
        "  stacks of 18 processes: /logs/sums-0a1b2-1/attempt-2/stacks",
        "  ascend-fd: AISW_CANN_HCCL_017 at npu-1 device-0",
    ]
    ran = (cluster / "words").read_text().splitlines()[-1]
    assert "exec head --container ray-head" in ran
    assert ran.endswith('exec python -m rljob_runtime collect --live --seconds "$0" 120')


@pytest.mark.usefixtures("cluster")
def test_it_is_data_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "--collect", "team-a/sums", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    told = told[0] if isinstance(told, list) else told
    assert told["nodes"][0] == {"node": "npu-1", "files": 3, "bytes": 2500000, "leftOut": 0, "notes": []}
    assert (told["folder"], told["silent"], told["stacks"]) == (DONE.folder, ["10.0.0.3"], 18)


def test_without_a_head_it_says_where_the_logs_of_a_failure_are(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cluster / "pods").write_text('{"items": []}')
    assert main(["logs", "--collect", "sums"]) == 4
    assert "were collected when it failed" in capsys.readouterr().err


def test_the_runtimes_refusal_is_shown(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cluster / "error").write_text(
        "rljob: nothing is collected: the job has no log volume; set observability.logPath\n"
    )
    assert main(["logs", "--collect", "sums"]) == 2
    assert "set observability.logPath" in capsys.readouterr().err


def test_an_answer_of_another_runtime_is_explained(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cluster / "exec").write_text("usage: rljob_runtime\n")
    assert main(["logs", "--collect", "sums"]) == 2
    assert "its image has another runtime" in capsys.readouterr().err
