"""After a failure, what explains it is on the log volume: bounded, and diagnosed where ascend-fd is installed."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

import pytest

from rljob_runtime import launch, ray_cluster
from rljob_runtime.collection import after_failure, command, copying, diagnosis, node
from rljob_runtime.collection.copying import Budget, copy_end, copy_sources
from rljob_runtime.collection.node import NODES, PARSED, TOKEN, Request
from rljob_runtime.collection.sources import PROCESS_LOG, Source, process_logs
from rljob_runtime.contract import (
    Collection,
    ExitCode,
    JobConfig,
    NodeLogs,
    Outcome,
    Phase,
    PodVariable,
    Progress,
)
from rljob_runtime.outcomes import FENCED, MESSAGE_LIMIT
from rljob_runtime.spool.spool import Spool
from runtime.tests.conftest import MakeJob
from runtime.tests.fake_ascend import A2, ASCEND_FD

FAULT = {
    "code": "AISW_CANN_HCCL_017",
    "cause_zh": "socket建立连接失败",
    "fault_source": ["worker-1 device-0", "worker-0 device-0"],
}
FAILED = Outcome(int(ExitCode.FAILED), "RunFailed", "PlannedError: rank 1 fails", last_step=2)


def log(path: Path, text: str, age: float = 0.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (time.time() - age,) * 2)
    return path


def budget(size: int = 1 << 20, seconds: float = 10.0, files: int = 100) -> Budget:
    return Budget(size, time.monotonic() + seconds, files)


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"ASCEND_PROCESS_LOG_PATH": "/a", "ASCEND_WORK_PATH": "/b", "HOME": "/c"}, "/a"),
        ({"ASCEND_WORK_PATH": "/b", "HOME": "/c"}, "/b/log"),
        ({"HOME": "/c"}, "/c/ascend/log"),
    ],
)
def test_canns_logs_are_where_cann_writes_them(environ: dict[str, str], folder: str) -> None:
    assert process_logs(environ) == Path(folder)


def test_the_newest_files_are_copied_and_the_rest_is_counted(tmp_path: Path) -> None:
    for number in range(5):
        log(tmp_path / f"run/plog/plog-{number}_1.log", "x" * 100, age=number)
    done = copy_sources([Source("logs", tmp_path / "run")], tmp_path / "copy", budget(size=250))
    assert (done.files, done.bytes, done.left_out) == (3, 250, 2)
    kept = {path.name: path.stat().st_size for path in (tmp_path / "copy").rglob("*.log")}
    assert kept == {"plog-0_1.log": 100, "plog-1_1.log": 100, "plog-2_1.log": 50}


def test_of_a_long_file_the_end_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "FILE_BYTES", 10)
    log(tmp_path / "run/plog-1_1.log", "the beginning, and the end")
    copy_sources([Source("logs", tmp_path / "run")], tmp_path / "copy", budget())
    assert (tmp_path / "copy/logs/plog-1_1.log").read_text() == "nd the end"


def test_files_of_an_earlier_attempt_stay(tmp_path: Path) -> None:
    log(tmp_path / "run/old.log", "old", age=1000)
    log(tmp_path / "run/new.log", "new")
    copy_sources([Source("logs", tmp_path / "run", since=time.time() - 500)], tmp_path / "copy", budget())
    assert [path.name for path in (tmp_path / "copy/logs").iterdir()] == ["new.log"]


def test_links_and_pipes_are_not_read(tmp_path: Path) -> None:
    secret = log(tmp_path / "secret", "token")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/plog-1_1.log").symlink_to(secret)
    (tmp_path / "run/inside").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "run/plog-2_1.log")
    done = copy_sources([Source("logs", tmp_path / "run")], tmp_path / "copy", budget(seconds=5.0))
    assert (done.files, (tmp_path / "copy").exists()) == (0, False)
    assert copy_end(tmp_path / "run/plog-2_1.log", tmp_path / "copy/pipe", 10) == 0


def test_nothing_is_copied_after_the_deadline(tmp_path: Path) -> None:
    log(tmp_path / "run/plog-1_1.log", "late")
    done = copy_sources([Source("logs", tmp_path / "run")], tmp_path / "copy", budget(seconds=-1.0))
    assert (done.files, done.left_out) == (0, 1)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """The attempt's folder on the log volume, prepared by the head."""
    folder = tmp_path / "volume/attempt-1"
    (folder / NODES).mkdir(parents=True)
    (folder / PARSED).mkdir()
    (folder / NODES / TOKEN).write_text("token")
    return folder


def request(volume: Path, **changes: object) -> Request:
    made = Request("run", str(volume), "token", time.time() - 10, 60.0, 1 << 20, settle=False)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type] # names are those of the class


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with two logs of CANN, and the tools of a driver; returns the folder of its programs."""
    monkeypatch.setenv("ASCEND_PROCESS_LOG_PATH", str(tmp_path / "plogs"))
    monkeypatch.setenv(PodVariable.NODE_NAME, "npu-1")
    log(tmp_path / "plogs/debug/plog/plog-7_20261128.log", "[ERROR] HCCL(7,python): connection failure\n")
    log(tmp_path / "plogs/run/plog/plog-7_20261128.log", "[EVENT] HCCL(7,python): init\n")
    tools = A2.install(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return tools


@pytest.mark.usefixtures("pod")
def test_a_node_copies_its_logs_and_says_how_its_devices_are(volume: Path) -> None:
    done = node.collect(request(volume))
    assert (done.node, done.files, done.left_out) == ("npu-1", 2, 0)
    copied = volume / NODES / "npu-1"
    assert "connection failure" in (copied / PROCESS_LOG / "debug/plog/plog-7_20261128.log").read_text()
    devices = (copied / "environment_check/npu_info_after.txt").read_text()
    assert devices.startswith("npu-smi info\n")
    assert "hccn_tool -i 7 -link -g\nlink status: UP" in devices
    assert not list((volume / PARSED).iterdir())


@pytest.mark.usefixtures("pod")
def test_two_pods_of_a_node_have_their_own_folders(volume: Path) -> None:
    assert [node.collect(request(volume)).node for _ in range(2)] == ["npu-1", "npu-1-2"]


@pytest.mark.usefixtures("pod")
def test_a_node_with_another_volume_copies_nothing_and_says_so(volume: Path) -> None:
    done = node.collect(request(volume, token="other"))
    assert (done.files, len(done.notes)) == (0, 1)
    assert "is not the head's log volume here" in done.notes[0]


def test_devices_logs_are_exported_only_while_the_run_continues(volume: Path, pod: Path) -> None:
    export = "mkdir -p 2026-11-28/slog/dev-os-0 && echo hbm > 2026-11-28/slog/dev-os-0/device-os_1.log"
    program(pod, "msnpureport", f"#!/bin/sh\n{export}\n")
    assert node.collect(request(volume)).files == 2
    assert node.collect(request(volume, live=True)).files == 3
    assert (volume / NODES / "npu-1-2/device_log/slog/dev-os-0/device-os_1.log").read_text() == "hbm\n"


def test_ascend_fd_diagnoses_the_logs_of_all_nodes(volume: Path, pod: Path) -> None:
    program(pod, "ascend-fd", ASCEND_FD)
    assert node.collect(request(volume)).notes == ()
    told, problem = diagnosis.diagnose(volume / PARSED, volume / "diagnosis", 60.0)
    assert (told, problem) == ("AISW_CANN_HCCL_017 (socket timeout) at npu-1 device-0", "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("exit 0", "ascend-fd diag left no report"),
        ("exit 3", "failed with exit code 3"),
        ("sleep 60 & sleep 60", "did not end within 1 s"),
        ('mkdir -p "$5/fault_diag_result"; echo "{" > "$5/fault_diag_result/diag_report.json"', "left no report"),
    ],
)
def test_a_failing_ascend_fd_is_a_note(volume: Path, pod: Path, text: str, problem: str) -> None:
    program(pod, "ascend-fd", f"#!/bin/sh\n{text}\n")
    told, seen = diagnosis.diagnose(volume / PARSED, volume / "diagnosis", 1.0 if "sleep" in text else 60.0)
    assert told == ""
    assert problem in seen


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (
            {"Knowledge_Graph": {"fault": [FAULT]}},
            "AISW_CANN_HCCL_017 (socket建立连接失败) at worker-1 device-0, worker-0 device-0",
        ),
        ({"Knowledge_Graph": {"fault": [{"code": "NORMAL_OR_UNSUPPORTED"}]}, "Root_Cluster": {}}, ""),
        (
            {
                "Knowledge_Graph": {"fault": []},
                "Root_Cluster": {
                    "analyze_success": True,
                    "fault_description": {"code": 108, "string": "all ranks timed out"},
                    "root_cause_device": [f"worker-{number} device-0" for number in range(5)],
                },
            },
            "all ranks timed out at worker-0 device-0, worker-1 device-0, worker-2 device-0 and 2 more",
        ),
        ({"Root_Cluster": {"analyze_success": True, "fault_description": {"code": 102, "string": "normal"}}}, ""),
        ({"Knowledge_Graph": {"fault": "none"}, "Root_Cluster": ["x"]}, ""),
        ([], ""),
    ],
)
def test_the_diagnosis_is_one_sentence(report: object, told: str) -> None:
    assert diagnosis.summary(report) == told


@pytest.fixture
def job(make_job: MakeJob, spool: Spool, tmp_path: Path) -> JobConfig:
    spool.open_attempt(1)
    begun = time.time() - 10
    spool.write_progress(Progress(pod_uid="pod", phase=Phase.TRAINING, attempt=1, start_time=begun))
    return make_job(log_path=str(tmp_path / "volume"))


def test_the_logs_of_all_nodes_are_collected(
    job: JobConfig, spool: Spool, pod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(pod, "ascend-fd", ASCEND_FD)
    asked: list[Request] = []

    def on_device_nodes(_task: object, _seconds: float, wanted: Request) -> dict[str, NodeLogs | None]:
        asked.append(wanted)
        monkeypatch.setenv(PodVariable.NODE_NAME, "npu-2")
        return {"10.0.0.2": node.collect(wanted), "10.0.0.3": None}

    monkeypatch.setattr(command, "_connect", lambda: (True, False))
    monkeypatch.setattr(ray_cluster, "on_device_nodes", on_device_nodes)
    done = command.collect(job, spool, 120.0, live=False)
    folder = tmp_path / "volume/sums-uid01-1/attempt-1"
    assert done.folder == str(folder)
    assert {logs.node for logs in done.nodes} <= {"npu-1", "npu-2", "npu-2-2"}
    assert (len(done.nodes), done.files, done.silent, done.notes) == (2, 4, ("10.0.0.3",), ())
    assert "AISW_CANN_HCCL_017 (socket timeout) at npu-" in done.diagnosis
    assert Collection.from_json((folder / "collection.json").read_bytes()) == done
    assert asked[0].bytes * (job.nodes + 1) <= command.TOTAL_BYTES


@pytest.mark.usefixtures("pod")
def test_without_ray_the_heads_own_logs_are_kept(job: JobConfig, spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_connect", lambda: (False, False))
    done = command.collect(job, spool, 60.0, live=False)
    assert done.files == 2
    assert "Ray accepted no connection" in done.notes[0]


def test_a_job_without_a_log_volume_is_refused_with_the_field(
    spool: Spool, job: JobConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.json").write_bytes(dataclasses.replace(job, log_path=None).to_json())
    environ: dict[str, str] = {PodVariable.CONFIG: str(tmp_path / "job.json"), PodVariable.SPOOL: str(spool.root)}
    assert command.run(environ, spool.root, 5.0, live=True) == 1
    assert "set observability.logPath" in capsys.readouterr().err


def test_one_collection_runs_at_a_time(spool: Spool, capsys: pytest.CaptureFixture[str]) -> None:
    spool.root.mkdir(exist_ok=True)
    with command._alone(spool.root):
        assert command.run({}, spool.root, 5.0, live=True) == 1
    assert "another collection is running" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcome", "due"),
    [
        (FAILED, True),
        (dataclasses.replace(FAILED, exit_code=int(ExitCode.STALLED)), True),
        (dataclasses.replace(FAILED, exit_code=int(ExitCode.ENVIRONMENT), reason="NodeLost"), True),
        (dataclasses.replace(FAILED, exit_code=int(ExitCode.ENVIRONMENT), reason=FENCED), False),
        (dataclasses.replace(FAILED, exit_code=int(ExitCode.BAD_CONFIG)), False),
        (dataclasses.replace(FAILED, exit_code=int(ExitCode.STOPPED)), False),
        (dataclasses.replace(FAILED, exit_code=int(ExitCode.RULE_MATCHED)), False),
        (dataclasses.replace(FAILED, exit_code=int(ExitCode.RULE_MATCHED), unruled_exit_code=1), True),
        (dataclasses.replace(FAILED, exit_code=int(ExitCode.DONE)), False),
    ],
)
def test_logs_are_collected_after_failures_that_they_may_explain(
    make_job: MakeJob, outcome: Outcome, due: bool
) -> None:
    assert after_failure.is_due(make_job(log_path="/logs"), outcome) == due
    assert not after_failure.is_due(make_job(), outcome)


def collector(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def test_the_outcome_says_where_the_logs_are_and_what_the_diagnosis_is() -> None:
    nodes = (NodeLogs("npu-1", 3, 30), NodeLogs("npu-2", 0, 0))
    done = Collection(1, "/logs/sums-1/attempt-1", 2.0, nodes, diagnosis="AISW_1 at npu-1 device-0")
    told = after_failure.collect(FAILED, collector(f"print('noise'); print({done.to_json().decode()!r})"))
    assert told.message == (
        "PlannedError: rank 1 fails; ascend-fd: AISW_1 at npu-1 device-0; "
        "logs of 1 node are in /logs/sums-1/attempt-1/nodes"
    )
    assert dataclasses.replace(told, message=FAILED.message) == FAILED


def test_the_place_of_the_logs_is_not_cut_from_a_long_message() -> None:
    done = Collection(1, "/logs", 2.0, (NodeLogs("npu-1", 3, 30),), diagnosis="d" * 2 * MESSAGE_LIMIT)
    told = after_failure.with_logs("m" * MESSAGE_LIMIT, done)
    assert len(told) == MESSAGE_LIMIT
    assert told.endswith("logs of 1 node are in /logs/nodes")


@pytest.mark.parametrize("code", ["raise SystemExit(1)", "print('no json')", "", "import time; time.sleep(60)"])
def test_a_collection_that_fails_or_hangs_changes_nothing(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert after_failure.collect(FAILED, collector(code), seconds=2.5) == FAILED
    assert "the nodes' logs are not collected" in capsys.readouterr().err


def test_the_outcome_is_published_after_the_logs_are_collected(
    job: JobConfig, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Phase] = []

    def collect(outcome: Outcome) -> Outcome:
        progress = spool.progress()
        assert progress is not None
        seen.append(progress.phase)
        return dataclasses.replace(outcome, message="with logs")

    monkeypatch.setattr(after_failure, "collect", collect)
    launched = launch.Launch(None, job, spool, None, None, None)  # type: ignore[arg-type] # what `end` does not use
    assert launch.end(launched, FAILED).message == "with logs"
    progress = spool.progress()
    assert progress is not None
    assert progress.outcome is not None
    assert (seen, progress.phase, progress.outcome.message) == ([Phase.TRAINING], Phase.ENDED, "with logs")


def test_a_report_is_what_the_contract_says() -> None:
    done = Collection(1, "/logs", 2.0, (NodeLogs("npu-1", 3, 30, 1, ("note",)),), ("10.0.0.3",), 4, "told", ("x",))
    assert Collection.from_json(done.to_json()) == done
    assert json.loads(done.to_json())["nodes"][0] == {
        "bytes": 30,
        "files": 3,
        "leftOut": 1,
        "node": "npu-1",
        "notes": ["note"],
    }
