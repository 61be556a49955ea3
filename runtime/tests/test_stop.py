"""The preStop hooks: which requests they send, how long they wait, and that the exporter reports the end."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rljob_runtime import launch, preflight, stop
from rljob_runtime.__main__ import main
from rljob_runtime.checkpoints.claims import OWNER_FILE
from rljob_runtime.contract import ExitCode, Outcome, Phase, Port, Progress, SpoolFile, StopMode, StopRequest
from rljob_runtime.exporter.server import ApiHandler, Exporter, make_server
from rljob_runtime.launch import HARD_STOP_POLL_SECONDS
from rljob_runtime.ray_cluster import head_lock
from rljob_runtime.spool.mirror import Mirror
from rljob_runtime.spool.spool import Spool
from rljob_runtime.spool.step_metrics import VALIDATION_SCORE
from rljob_runtime.spool.stop_rules import Match
from rljob_runtime.stop import Head, Here, await_listener, head_address, stop_here
from rljob_runtime.trainer import Result
from rljob_runtime.verl_plugin.launcher import VerlTrainer
from rljob_runtime.verl_plugin.trainer.result import result_of
from runtime.tests.fenced_save_process import JOB

TOKEN = "correct-horse"
RUNNING = Progress(pod_uid="p", phase=Phase.TRAINING, attempt=1, step=3)
ROOT = Path(__file__).parents[2]
HELD = 30.0
"""How long a hook would wait in these tests if the expected event did not occur."""


@pytest.fixture
def running(spool: Spool) -> Iterator[None]:
    with head_lock(spool.root, 0):
        spool.write_progress(RUNNING)
        yield


@contextmanager
def serving(spool: Spool, folder: Path, address: tuple[str, int]) -> Iterator[int]:
    """Serve the exporter's API and yield its port."""
    server = make_server(ApiHandler, Exporter(spool, folder / "job.json", "p", TOKEN), address)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def head(spool: Spool, tmp_path: Path) -> Iterator[Head]:
    with serving(spool, tmp_path, ("127.0.0.1", 0)) as port:
        yield Head("127.0.0.1", TOKEN, port, poll_seconds=0.05)


@pytest.fixture
def trainer(spool: Spool) -> Iterator[Callable[[StopMode], None]]:
    """Return a trainer that ends on a certain kind of stop request."""
    threads = []

    def train(obeyed: StopMode) -> None:
        def run() -> None:
            deadline = time.monotonic() + HELD
            while time.monotonic() < deadline:
                request = spool.stop_request(1)
                if request is not None and request.mode is obeyed:
                    spool.update_progress(phase=Phase.ENDED)
                    return
                time.sleep(0.01)

        threads.append(threading.Thread(target=run))
        threads[-1].start()

    yield train
    for thread in threads:
        thread.join()


def asked(spool: Spool) -> StopMode | None:
    request = spool.stop_request(1)
    return request.mode if request else None


def test_the_hook_returns_at_once_when_nothing_runs(spool: Spool) -> None:
    assert stop_here(spool, StopMode.AFTER_STEP, HELD)
    spool.write_progress(Progress(pod_uid="p", phase=Phase.ENDED, attempt=1))
    assert stop_here(spool, StopMode.AFTER_STEP, HELD)
    assert asked(spool) is None


@pytest.mark.usefixtures("running")
def test_the_hook_asks_and_waits_for_the_end(spool: Spool, trainer: Callable[[StopMode], None]) -> None:
    trainer(StopMode.ABORT_ROLLOUT)
    assert stop_here(spool, StopMode.ABORT_ROLLOUT, HELD)
    assert asked(spool) is StopMode.ABORT_ROLLOUT


def test_a_run_whose_launcher_is_dead_is_not_waited_for(spool: Spool) -> None:
    with head_lock(spool.root, 0):
        spool.write_progress(RUNNING)
    assert stop_here(spool, StopMode.AFTER_STEP, HELD)
    assert asked(spool) is None


@pytest.mark.usefixtures("running")
def test_a_run_that_does_not_stop_in_time_is_ended(spool: Spool, trainer: Callable[[StopMode], None]) -> None:
    trainer(StopMode.IMMEDIATE)
    assert not stop_here(spool, StopMode.AFTER_STEP, 0.1)
    assert asked(spool) is StopMode.IMMEDIATE
    progress = spool.progress()
    assert progress is not None
    assert progress.phase is Phase.ENDED


@pytest.mark.usefixtures("running")
def test_the_time_counts_from_the_first_request(spool: Spool) -> None:
    spool.request_stop(StopRequest(attempt=1, mode=StopMode.AFTER_STEP))
    long_ago = time.time() - HELD
    os.utime(spool.attempt_folder(1) / SpoolFile.STOP, (long_ago, long_ago))
    late = threading.Timer(2.0, lambda: spool.update_progress(phase=Phase.ENDED))
    late.start()
    # Waiting again would show the end.
    assert not stop.stop(Here(spool), StopMode.AFTER_STEP, HELD)
    late.join()


@pytest.mark.usefixtures("running")
def test_a_worker_asks_the_head_and_waits_for_its_end(
    spool: Spool, head: Head, trainer: Callable[[StopMode], None]
) -> None:
    trainer(StopMode.AFTER_STEP)
    assert stop.stop(head, StopMode.AFTER_STEP, HELD)
    assert asked(spool) is StopMode.AFTER_STEP


@pytest.mark.usefixtures("running")
def test_a_worker_leaves_the_end_of_what_does_not_stop_to_the_head(spool: Spool, head: Head) -> None:
    assert not stop.stop(head, StopMode.AFTER_STEP, 0.3)
    assert asked(spool) is StopMode.AFTER_STEP


def test_a_worker_of_a_finished_run_goes_at_once(spool: Spool, head: Head) -> None:
    assert stop.stop(head, StopMode.AFTER_STEP, HELD)
    spool.write_progress(Progress(pod_uid="p", phase=Phase.ENDED, attempt=1))
    assert stop.stop(head, StopMode.AFTER_STEP, HELD)
    assert asked(spool) is None


@pytest.mark.parametrize("deaf", [Head("127.0.0.1", TOKEN, 9), Head("", TOKEN), Head("no-such-host.invalid", TOKEN)])
def test_a_worker_does_not_wait_for_a_head_that_is_gone(monkeypatch: pytest.MonkeyPatch, deaf: Head) -> None:
    monkeypatch.setattr(stop, "SILENT_SECONDS", 0.1)
    assert stop.stop(deaf, StopMode.AFTER_STEP, HELD)


@pytest.mark.usefixtures("running")
def test_a_worker_without_the_token_does_not_wait(monkeypatch: pytest.MonkeyPatch, spool: Spool, head: Head) -> None:
    monkeypatch.setattr(stop, "SILENT_SECONDS", 0.1)
    assert stop.stop(Head(head.address, "wrong", head.port), StopMode.AFTER_STEP, HELD)
    assert asked(spool) is None


def test_the_heads_address_is_the_one_of_the_pods_start(tmp_path: Path) -> None:
    file = tmp_path / "head"
    assert head_address(file, "the-name") == "the-name"
    file.write_text("")
    assert head_address(file, "the-name") == "the-name"
    file.write_text("10.244.1.7      sums-head-svc.team.svc.cluster.local\n")
    assert head_address(file, "the-name") == "10.244.1.7"


def masks(*, caught: int = 0, blocked: int = 0) -> str:
    """Return the lines about signals of a /proc/<pid>/status."""
    return f"Name:\tbash\nSigBlk:\t{blocked:016x}\nSigIgn:\t0000000000004000\nSigCgt:\t{caught:016x}\n"


SIGTERM_BIT = 1 << (signal.SIGTERM - 1)


def test_the_hook_waits_until_process_1_has_a_handler(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(masks(caught=1 << (signal.SIGCHLD - 1)))
    assert not await_listener(status, 0.2)
    later = tmp_path / "later"
    later.write_text(masks(caught=SIGTERM_BIT))
    # Written at once, as /proc is read: a file that is being written is empty at first.
    installs = threading.Timer(0.2, lambda: later.replace(status))
    installs.start()
    assert await_listener(status, HELD)
    assert status.read_text() == masks(caught=SIGTERM_BIT)
    installs.join()


def test_an_init_that_fetches_its_signals_listens(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(masks(blocked=SIGTERM_BIT))
    assert await_listener(status, 0)


@pytest.mark.parametrize("text", [None, "", "Name:\tbash\n"])
def test_an_unreadable_status_is_not_waited_for(tmp_path: Path, text: str | None) -> None:
    status = tmp_path / "status"
    if text is not None:
        status.write_text(text)
    assert await_listener(status, 0)


LISTEN_LATE = """
import signal, sys
print("deaf", flush=True)
sys.stdin.readline()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
sys.stdin.readline()
"""


def test_what_a_real_process_catches_shows() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", LISTEN_LATE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        status = Path(f"/proc/{child.pid}/status")
        assert not await_listener(status, 0)
        child.stdin.write("now\n")
        child.stdin.flush()
        assert await_listener(status, HELD)
        child.terminate()
        assert child.wait(HELD) == 7


@pytest.fixture
def process_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the status file of a process 1 that does not handle the signal yet."""
    status = tmp_path / "process-one"
    status.write_text(masks())
    monkeypatch.setattr(stop, "PROCESS_ONE", status)
    return status


def test_the_command_line_of_a_hook_waits_for_process_1(
    monkeypatch: pytest.MonkeyPatch, spool: Spool, process_one: Path
) -> None:
    monkeypatch.setenv("RLJOB_SPOOL", str(spool.root))
    later = process_one.with_name("later")
    later.write_text(masks(caught=SIGTERM_BIT))
    installs = threading.Timer(0.5, later.rename, [process_one])
    installs.start()
    assert main(["stop", "--mode", "AfterStep", "--wait", "0.1"]) == 0
    assert process_one.read_text() == masks(caught=SIGTERM_BIT)
    installs.join()


@pytest.mark.usefixtures("running")
def test_the_command_line_of_the_heads_hook(
    monkeypatch: pytest.MonkeyPatch, spool: Spool, process_one: Path, trainer: Callable[[StopMode], None]
) -> None:
    trainer(StopMode.IMMEDIATE)
    process_one.write_text(masks(caught=SIGTERM_BIT))
    monkeypatch.setenv("RLJOB_SPOOL", str(spool.root))
    assert main(["stop", "--mode", "AbortRollout", "--wait", "0.1"]) == 1
    request = json.loads((spool.attempt_folder(1) / "stop.json").read_text())
    assert request == {"attempt": 1, "mode": "Immediate"}


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("port", [Port.API.value, 18_091], ids=["a network of its own", "the node's network"])
def test_the_command_line_of_a_workers_hook(
    monkeypatch: pytest.MonkeyPatch,
    spool: Spool,
    tmp_path: Path,
    process_one: Path,
    trainer: Callable[[StopMode], None],
    port: int,
) -> None:
    trainer(StopMode.ABORT_ROLLOUT)
    process_one.write_text(masks(caught=SIGTERM_BIT))
    # The ports are fixed, so other runs of this test on the machine need another address.
    address = f"127.66.{os.getpid() // 256 % 256}.{os.getpid() % 256}"
    (tmp_path / "head").write_text(f"{address} head\n")
    monkeypatch.setenv("FQ_RAY_IP", "no-such-host.invalid")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    if port != Port.API:
        monkeypatch.setenv("RLJOB_API_PORT", str(port))
    arguments = ["stop", "--mode", "AbortRollout", "--wait", str(HELD), "--head-file", str(tmp_path / "head")]
    with serving(spool, tmp_path, (address, port)):
        assert main(arguments) == 0
    assert asked(spool) is StopMode.ABORT_ROLLOUT


SERVE = """
import os, pathlib, sys
from rljob_runtime.exporter import server
make, server.FAREWELL_SECONDS = server.make_server, 0.1
def on_loopback(handler, exporter, address):
    made = make(handler, exporter, ("127.0.0.1", 0))
    print(made.server_address[1], flush=True)
    return made
server.make_server = on_loopback
sys.exit(server.serve(os.environ, pathlib.Path(sys.argv[1]), float(sys.argv[2])))
"""


def start_exporter(spool: Spool, outlive_seconds: float) -> tuple[subprocess.Popen[str], int]:
    arguments = [sys.executable, "-c", SERVE, str(spool.root), str(outlive_seconds)]
    started = subprocess.Popen(arguments, env=os.environ | {"RAY_AUTH_TOKEN": TOKEN}, stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    return started, int(started.stdout.readline())


@pytest.mark.usefixtures("running")
def test_the_exporter_serves_on_until_the_run_has_saved(spool: Spool) -> None:
    exporter, port = start_exporter(spool, HELD)
    with exporter:
        exporter.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            exporter.wait(1)
        assert Head("127.0.0.1", TOKEN, port).progress() == RUNNING
        spool.update_progress(phase=Phase.ENDED)
        assert exporter.wait(HELD) == 0


@pytest.mark.usefixtures("running")
def test_the_exporter_of_a_job_that_saves_nothing_goes_at_once(spool: Spool) -> None:
    exporter, _ = start_exporter(spool, 0)
    with exporter:
        exporter.send_signal(signal.SIGTERM)
        assert exporter.wait(HELD) == 0


@pytest.mark.parametrize("mode", [StopMode.AFTER_STEP, StopMode.ABORT_ROLLOUT, StopMode.IMMEDIATE])
def test_a_run_whose_first_step_has_not_begun_ends_at_once_and_leaves_its_folder_to_others(
    tmp_path: Path, mode: StopMode
) -> None:
    words = [sys.executable, "-m", "runtime.tests.stalling_process", str(tmp_path / "spool"), str(tmp_path), mode]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == ExitCode.STOPPED, done.stderr
    assert Outcome.from_json(done.stdout.splitlines()[-1]).reason == "StoppedBeforeStart"
    assert (tmp_path / "checkpoints" / OWNER_FILE).stat().st_mtime == 0, "given back"


def test_a_run_whose_first_step_has_begun_is_left_to_its_trainer(tmp_path: Path) -> None:
    Spool(tmp_path / "spool").note_begun(1)
    folders = [str(tmp_path / "spool"), str(tmp_path)]
    words = [sys.executable, "-m", "runtime.tests.stalling_process", *folders, StopMode.AFTER_STEP]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(5 * HARD_STOP_POLL_SECONDS)
        Spool(tmp_path / "spool").request_stop(StopRequest(attempt=1, mode=StopMode.IMMEDIATE))
        assert process.wait(60) == ExitCode.STOPPED
        assert (
            Outcome.from_json((process.stdout or io.BytesIO()).read().splitlines()[-1]).reason != "StoppedBeforeStart"
        )


def test_a_stop_after_the_end_does_not_change_the_outcome(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = preflight.Attempt(1, "sums-uid01-1-1", "pod", spool.root)
    launched = launch.Launch(attempt, JOB, spool, launch.Patience(), Mirror(JOB, 1), VerlTrainer())
    launch.begin(launched)
    failed = Outcome(int(ExitCode.BAD_CONFIG), "ModelMissing", "no model", last_step=0)
    launch.end(launched, failed)
    spool.request_stop(StopRequest(attempt=1, mode=StopMode.AFTER_STEP))
    monkeypatch.setattr(launch, "leave", lambda ending: pytest.fail(f"left by {ending.outcome.reason}"))
    launch.watch_for_hard_stop(launched)
    progress = spool.progress()
    assert progress is not None
    assert progress.outcome == failed


@dataclass
class Trainer:
    """A trainer whose loop ended on a stop request."""

    global_steps: int
    abandoned_step: int | None
    total_training_steps: int = 40
    stopped_by: StopMode | None = StopMode.ABORT_ROLLOUT
    matched: Match | None = None
    evaluation: dict[str, float] | None = None


@pytest.mark.parametrize(
    ("saved", "abandoned", "told"),
    [
        (2, None, "stopped at once, at step 2; step 2 is saved"),
        (2, 3, "stopped after step 2, and the rollout of step 3 was abandoned; step 2 is saved"),
        (None, 1, "stopped after step 0, and the rollout of step 1 was abandoned; nothing is saved"),
    ],
)
def test_a_stop_says_whether_it_met_a_rollout(
    spool: Spool, saved: int | None, abandoned: int | None, told: str
) -> None:
    attempt = preflight.Attempt(1, "sums-uid01-1-1", "pod", spool.root)
    launched = launch.Launch(attempt, JOB, spool, launch.Patience(), Mirror(JOB, 1), VerlTrainer())
    launch.begin(launched)
    spool.update_progress(checkpoint_step=saved)
    outcome = launch.outcome_of(launched, result_of(Trainer(saved or 0, abandoned)))
    assert (outcome.exit_code, outcome.message) == (ExitCode.STOPPED, told)
    assert outcome.reason == ("StoppedWithoutCheckpoint" if saved is None else "Stopped")


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (0, "evaluated the model on data.validation: mean score 0.5"),
        (40, "evaluated the checkpoint of step 40 on data.validation: mean score 0.5"),
    ],
)
def test_an_evaluation_says_what_it_scored(spool: Spool, step: int, told: str) -> None:
    attempt = preflight.Attempt(1, "sums-uid01-1-1", "pod", spool.root)
    launched = launch.Launch(attempt, JOB, spool, launch.Patience(), Mirror(JOB, 1), VerlTrainer())
    scored = Result(step, evaluation={VALIDATION_SCORE: 0.5})
    outcome = launch.outcome_of(launched, scored)
    assert (outcome.exit_code, outcome.reason, outcome.message) == (ExitCode.DONE, "Evaluated", told)
