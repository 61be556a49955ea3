"""`rljob run --local` from the manifest to its exit code, with a cheap runtime."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import apart, group, judged, small_spec
from dulwich import porcelain

from rljob.api.v1alpha1 import API_VERSION
from rljob.cli.main import main
from rljob.launchers.verl.verl_launcher import VerlLauncher

CODE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}, "data": {"reward.py": "# reward"}}
CLAIM = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"}}
TEMPLATE = {
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
}
WATCHERS: list[threading.Thread] = []
"""Threads of the running test."""


def manifest(change: dict[str, Any] | None = None, *, steps: int = 5, behaviour: str = "") -> str:
    """Write a job with code and a claim; return the file's name."""
    template = TEMPLATE | {"env": [{"name": "BEHAVIOUR", "value": behaviour}]}
    spec = small_spec(
        group({"template": template})
        | {"code": {"type": "ConfigMap", "configMap": {"name": "code"}}, "trainer": {"steps": steps}}
        | {"initializers": [{"name": "prepare", "command": ["sh", "-c", "echo made; cp /code/reward.py /data/model"]}]}
    )
    spec = {**spec, **(change or {})}
    job = {"apiVersion": API_VERSION, "kind": "RLJob", "metadata": {"name": "sums"}, "spec": spec}
    Path("job.yaml").write_text(yaml.safe_dump_all([job, CODE, CLAIM]))
    return "job.yaml"


def run(file: str, *words: str) -> int:
    return main(["run", "--local", "-f", file, *words])


def progress() -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(Path(".rljob/sums/spool/current.json").read_text())
    except FileNotFoundError:
        return {}
    return found


def when(condition: Callable[[], bool], act: Callable[[], None]) -> None:
    """Act from another thread once the condition is true, like a user at the keyboard."""

    def watch() -> None:
        deadline = time.monotonic() + 20
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.02)
        act()

    watcher = threading.Thread(target=watch, daemon=True)
    WATCHERS.append(watcher)
    watcher.start()


@pytest.fixture(autouse=True)
def late_interrupts() -> Iterator[None]:
    """Ensure that an interrupt after the end of the run ends nothing else."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    yield
    while WATCHERS:
        WATCHERS.pop().join()
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def interrupt_twice() -> None:
    interrupt()
    time.sleep(0.3)
    interrupt()


def test_it_trains_to_the_end_and_prints_the_reward_curve(
    runtime: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(manifest()) == 0
    told = capsys.readouterr().out
    assert "reward (mean score per step) over steps" in told
    assert "/.rljob/sums/report.html (" in told
    assert "done: trained 5 steps" in told
    assert "note: checkpoint: the manifest has none" in told
    assert "note: runtime: no image runs locally" in told
    assert (runtime / ".rljob/sums/volumes/disk/model").read_text() == "# reward"
    job = json.loads((runtime / ".rljob/sums/job.json").read_text())
    assert job["overrides"]["actor_rollout_ref.model.path"] == f"{runtime}/.rljob/sums/volumes/disk/model"
    assert job["nodes"] == 1
    assert list(temporary.iterdir()) == []


def test_a_second_run_of_a_finished_job_does_nothing(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(manifest()) == 0
    assert run(manifest()) == 0
    assert f"remove {runtime}/.rljob/sums to start over" in capsys.readouterr().out
    assert run(manifest(steps=7)) == 0
    assert "done: trained 7 steps" in capsys.readouterr().out
    assert [path.name for path in sorted((runtime / ".rljob/sums/spool").glob("attempt-*"))] == [
        "attempt-1",
        "attempt-2",
    ]


def test_ctrl_c_saves_and_the_next_run_goes_on_there(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = manifest(steps=500)
    when(lambda: progress().get("step", 0) >= 3, interrupt)
    assert run(file) == 130
    saved = int((runtime / ".rljob/sums/checkpoints/saved").read_text())
    assert f"step {saved} is saved; run the same command again to resume" in capsys.readouterr().out
    assert progress()["step"] == saved
    when(lambda: progress().get("attempt") == 2 and progress().get("step", 0) > saved, interrupt)
    assert run(file) == 130
    lines = (runtime / ".rljob/sums/spool/attempt-2/steps.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["step"] == saved + 1


def test_before_the_first_step_ctrl_c_ends_at_once(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runtime.is_dir()
    when(lambda: progress().get("phase") == "Starting", interrupt)
    assert run(manifest(behaviour="slow")) == 130
    assert "interrupted after step 0; no step has been saved" in capsys.readouterr().out


def test_a_second_ctrl_c_does_not_wait_for_a_save(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rljob.cli.local.follow.IMMEDIATE_SECONDS", 0.5)
    when(lambda: progress().get("phase") in ("Starting", "Training"), interrupt_twice)
    begun = time.monotonic()
    assert run(manifest(behaviour="deaf", steps=500)) == 130
    assert time.monotonic() - begun < 30
    assert not (runtime / ".rljob/sums/checkpoints/global_step_1").exists()


def test_ctrl_c_ends_an_initializer(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = runtime / ".rljob/sums/logs/initializer-prepare.log"
    change = {"initializers": [{"name": "prepare", "command": ["sh", "-c", "echo up; sleep 60"]}]}
    when(log.exists, interrupt)
    assert run(manifest(change)) == 130
    assert "interrupted before training started" in capsys.readouterr().out


def test_an_error_of_the_launcher_is_printed_with_its_log(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(manifest(behaviour="broken")) == 1
    told = capsys.readouterr().out
    assert "failed: PathMissing: model.path: /x does not exist" in told
    assert str(runtime / ".rljob/sums/logs/attempt-1.log") in told


def test_a_launcher_that_is_killed_leaves_the_end_of_its_log(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runtime.is_dir()
    assert run(manifest(behaviour="killed")) == 1
    assert "failed: DriverLost: the launcher was killed by SIGKILL" in capsys.readouterr().out


def test_deadlines_hold(runtime: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime.is_dir()
    monkeypatch.setattr("rljob.cli.local.follow.IMMEDIATE_SECONDS", 0.5)
    assert run(manifest({"deadlines": {"startSeconds": 1}}, behaviour="silent")) == 1
    assert "the launcher did not report within deadlines.startSeconds 1" in capsys.readouterr().out
    assert run(manifest({"deadlines": {"activeSeconds": 1}}, steps=500)) == 1
    assert "deadlines.activeSeconds 1 passed" in capsys.readouterr().out


def test_a_run_without_a_step_fails_with_the_rank_that_waits(
    runtime: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runtime.is_dir()
    assert run(manifest({"deadlines": {"progressSeconds": 1}}, behaviour="slow")) == 1
    told = capsys.readouterr().out
    assert "  Starting     loading the model: 1 of 2 ranks are done (" in told
    assert "failed: Stalled: rank 3 is in ask_the_judge" in told
    monkeypatch.setattr("rljob.cli.local.follow.STALLED_SECONDS", 0.5)
    assert run(manifest({"deadlines": {"progressSeconds": 1}}, behaviour="deaf and slow")) == 1
    assert "failed: DeadlineExceeded: no step within deadlines.progressSeconds 1" in capsys.readouterr().out


def test_an_initializer_is_tried_again_and_its_failure_is_printed(
    runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sh", "-c", "echo no model >&2; exit 3"]
    assert run(manifest({"initializers": [{"name": "prepare", "command": command, "retries": 1}]})) == 1
    captured = capsys.readouterr()
    assert "exit code 3, retries left: 1" in captured.out
    assert "initializer prepare failed 2 times, the last time with exit code 3" in captured.err
    assert captured.err.rstrip().endswith("no model")
    assert run(manifest({"initializers": [{"name": "prepare", "command": ["no-such-program"]}]})) == 1
    assert "no-such-program: No such file" in capsys.readouterr().err
    slow = {"name": "prepare", "command": ["sleep", "60"], "timeoutSeconds": 1}
    assert run(manifest({"initializers": [slow]})) == 1
    assert "did not end within its timeoutSeconds 1" in capsys.readouterr().err
    assert runtime.is_dir()


def test_an_initializer_whose_result_is_there_is_skipped(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = {"name": "prepare", "command": ["sh", "-c", "exit 1"], "creates": "/data/model"}
    (runtime / ".rljob/sums/volumes/disk/model").mkdir(parents=True)
    assert run(manifest({"initializers": [made]})) == 0
    assert "initializer prepare: skipped," in capsys.readouterr().out


def test_an_invalid_job_is_refused_and_creates_nothing(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(manifest({"reward": {}})) == 1
    assert "spec.reward: has none; set exactly one of path, builtin" in capsys.readouterr().err
    assert not (runtime / ".rljob").exists()


def test_without_the_runtime_the_error_names_the_command(
    runtime: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert runtime.is_dir()
    monkeypatch.setattr(VerlLauncher, "modules", ("json", "no_such_package"))
    assert run(manifest()) == 2
    told = capsys.readouterr().err
    assert "has no no_such_package" in told
    assert "pip install" in told


def test_missing_npus_are_refused_with_their_number(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runtime.is_dir()
    assert run(manifest({"accelerator": {"class": "atlas-a2"}})) == 2
    assert "needs 2 NPU devices, but this machine has 0" in capsys.readouterr().err


def test_groups_that_stand_apart_are_refused_with_the_modes_of_one_node(
    runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runtime.is_dir()
    pair = apart({"template": TEMPLATE}, {"template": TEMPLATE})
    trainer = {"steps": 5, "globalBatchSize": 32, "mode": "SeparateAsync"}
    assert run(manifest({"workerGroups": pair["workerGroups"], "trainer": trainer})) == 2
    assert "trainer.mode SeparateAsync: a local run has one node" in capsys.readouterr().err


def test_a_judge_is_refused(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runtime.is_dir()
    trainer, judge = judged(
        None, {"template": TEMPLATE}, {"name": "trainer", "devicesPerNode": 2, "template": TEMPLATE}
    )["workerGroups"]
    reward = {"path": "/code/reward.py", "judge": {"path": "/judge", "maxTokens": 64}}
    assert run(manifest({"workerGroups": [trainer, judge], "reward": reward})) == 2
    assert "spec.reward.judge: a local run has one node" in capsys.readouterr().err


def test_missing_folders_are_refused_with_their_name(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(manifest(), "--volume", "data=/no/such/folder") == 2
    assert "volume data: /no/such/folder is not a folder of this machine" in capsys.readouterr().err
    assert run(manifest(), "--volume", "data") == 2
    assert "use NAME=FOLDER" in capsys.readouterr().err
    assert run(manifest(), "--code", "absent") == 2
    assert f"code: {runtime}/absent is not a folder" in capsys.readouterr().err
    assert run(manifest({"code": {"type": "ConfigMap", "configMap": {"name": "other"}}})) == 2
    assert "ConfigMap other is not in the file (found: code)" in capsys.readouterr().err
    source = {"path": "/data/c", "everySteps": 1, "from": {"job": "before"}}
    assert run(manifest({"checkpoint": source})) == 2
    assert "spec.checkpoint.from.job before: there is no local run in" in capsys.readouterr().err


def test_given_folders_stand_for_volume_and_code(runtime: Path) -> None:
    for name in ("mine", "source"):
        (runtime / name).mkdir()
    (runtime / "source/reward.py").write_text("# edited")
    assert run(manifest(), "--volume", "data=mine", "--code", "source") == 0
    assert (runtime / "mine/model").read_text() == "# edited"


def test_code_in_git_is_fetched_before_all_else(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with porcelain.init(str(runtime / "repository")) as repository:
        (runtime / "repository/reward.py").write_text("# of the commit")
        porcelain.add(repository, [str(runtime / "repository/reward.py")])
        commit = porcelain.commit(repository, b"one", author=b"a <a@b>", committer=b"a <a@b>").decode()
    git = {"url": f"file://{runtime}/repository", "revision": commit}
    assert run(manifest({"code": {"type": "Git", "git": git}})) == 0, capsys.readouterr()
    assert (runtime / ".rljob/sums/volumes/disk/model").read_text() == "# of the commit"
    assert run(manifest({"code": {"type": "Git", "git": git | {"revision": "0" * 40}}}, steps=9)) == 1
    assert "initializer fetch-code failed 1 times" in capsys.readouterr().err


def test_a_ray_that_does_not_start_is_an_error(
    runtime: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (runtime / "packages/ray/scripts/scripts.py").write_text("def main():\n    raise SystemExit('no memory for Ray')\n")
    assert run(manifest()) == 2
    assert "the private Ray exited during its start" in capsys.readouterr().err
    (runtime / "packages/ray/scripts/scripts.py").write_text("import time\ndef main():\n    time.sleep(60)\n")
    monkeypatch.setattr("rljob.cli.local.ray.START_SECONDS", 0.5)
    assert run(manifest()) == 2
    assert "does not listen after" in capsys.readouterr().err


def test_run_is_for_local_runs_of_one_job(runtime: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runtime.is_dir()
    file = manifest()
    assert main(["run", "-f", file]) == 2
    assert "add --local" in capsys.readouterr().err
    assert main(["run", "--local", "-f", file, "-f", file]) == 2
    assert "2 RLJobs (sums, sums)" in capsys.readouterr().err
