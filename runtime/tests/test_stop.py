"""The preStop hooks: what is asked of whom, how long is waited; and that the exporter is there to tell of the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rljob_runtime import stop
from rljob_runtime.contract import Phase, Port, Progress, SpoolFile, StopMode, StopRequest
from rljob_runtime.exporter.server import ApiHandler, Exporter, make_server
from rljob_runtime.ray_cluster import head_lock
from rljob_runtime.spool import Spool
from rljob_runtime.stop import Head, Here, head_address, stop_here

TOKEN = "correct-horse"
RUNNING = Progress(pod_uid="p", phase=Phase.TRAINING, attempt=1, step=3)
HELD = 30.0
"""Seconds that a hook would wait in these tests if what they look for did not happen."""


@pytest.fixture
def running(spool: Spool) -> Iterator[None]:
    with head_lock(spool.root, 0):
        spool.write_progress(RUNNING)
        yield


@contextmanager
def serving(spool: Spool, folder: Path, address: tuple[str, int]) -> Iterator[int]:
    """Serve the exporter's API; gives its port."""
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
    """Give a trainer that ends when it is asked to in a certain way."""
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
    # Whoever waited once more would see the end.
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


@pytest.mark.usefixtures("running")
def test_the_command_line_of_the_heads_hook(spool: Spool, trainer: Callable[[StopMode], None]) -> None:
    trainer(StopMode.IMMEDIATE)
    arguments = [sys.executable, "-m", "rljob_runtime", "stop", "--mode", "AbortRollout", "--wait", "0.1"]
    environ = os.environ | {"RLJOB_SPOOL": str(spool.root)}
    assert subprocess.run(arguments, env=environ, check=False).returncode == 1
    request = json.loads((spool.attempt_folder(1) / "stop.json").read_text())
    assert request == {"attempt": 1, "mode": "Immediate"}


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("port", [Port.API.value, 20_010], ids=["a network of its own", "the node's network"])
def test_the_command_line_of_a_workers_hook(
    spool: Spool, tmp_path: Path, trainer: Callable[[StopMode], None], port: int
) -> None:
    trainer(StopMode.ABORT_ROLLOUT)
    (tmp_path / "head").write_text("127.66.0.1 head\n")
    arguments = [sys.executable, "-m", "rljob_runtime", "stop", "--mode", "AbortRollout", "--wait", str(HELD)]
    environ = os.environ | {"FQ_RAY_IP": "no-such-host.invalid", "RAY_AUTH_TOKEN": TOKEN}
    if port != Port.API:
        environ["RLJOB_API_PORT"] = str(port)
    with serving(spool, tmp_path, ("127.66.0.1", port)):
        ended = subprocess.run([*arguments, "--head-file", str(tmp_path / "head")], env=environ, check=False)
    assert ended.returncode == 0
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
