"""Losses of a run in the real Ray: nodes, of which several share an address, and processes whose node lives."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rljob_runtime import losses, lost_processes, ray_cluster
from rljob_runtime.contract import ExitCode
from rljob_runtime.losses import Losses
from rljob_runtime.outcomes import NODE_LOST, PROCESS_LOST, LossError, from_error

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("verl") is None, reason="verl is not installed here; the target `make test-image` runs it"
)
SECONDS = 90.0
ENDS = ("killed", "exit_actor", "exit", "signal")
NOTICED_SECONDS = 3.0
"""In which Ray has noticed the end of an actor."""
WORKER = {"num_cpus": 1, "resources": {"NPU": 2.0}}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Return a head without devices. The test adds nodes."""
    import ray
    from ray.cluster_utils import Cluster

    # Ray's sockets need a short path, and all files of this cluster their own folder.
    with tempfile.TemporaryDirectory(prefix="rln-", dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        try:
            ray.init(address=cluster.address)
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


def test_a_killed_node_is_lost_although_another_takes_its_place(cluster: Cluster) -> None:
    import ray

    def where() -> str:
        return str(ray.get_runtime_context().get_node_id())

    worker = cluster.add_node(**WORKER)
    nodes = ray_cluster.device_nodes()
    assert list(nodes) == [worker.node_id]
    (address,) = nodes.values()
    # The head has the same address, as with network.mode Host.
    assert ray_cluster.on_device_nodes(where, SECONDS) == {address: worker.node_id}
    assert ray_cluster.host_names() == {address: socket.gethostname()}
    assert ray_cluster.lost_nodes(nodes) == []
    cluster.remove_node(worker, allow_graceful=False)
    cluster.add_node(**WORKER)
    deadline = time.monotonic() + SECONDS
    while not (lost := ray_cluster.lost_nodes(nodes)):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert lost == list(nodes.values())
    assert ray_cluster.silent_nodes(nodes) == lost


def test_a_call_fails_before_ray_knows_that_the_node_is_dead_and_the_node_is_asked_itself(cluster: Cluster) -> None:
    import ray

    class Slow:
        def work(self, seconds: float) -> None:
            time.sleep(seconds)

    def kill() -> None:
        for pid in with_children(worker.all_processes["raylet"][0].process.pid):
            os.kill(pid, signal.SIGKILL)

    worker = cluster.add_node(**WORKER)
    nodes = ray_cluster.device_nodes()
    assert ray_cluster.silent_nodes(nodes) == []
    actor = ray.remote(resources={"NPU": 1.0})(Slow).remote()
    ray.get(actor.work.remote(0.0))
    killer = threading.Timer(1.0, kill)
    killer.start()
    with pytest.raises(ray.exceptions.RayError) as caught:
        ray.get(actor.work.remote(SECONDS), timeout=SECONDS)
    killer.join()
    # The address of the ended node is checked before Ray has counted five failures.
    assert ray_cluster.silent_nodes(nodes) == list(nodes.values())
    with pytest.raises(LossError, match=r"lost the worker at .*; then the run raised \w+Error: ") as blamed:
        Losses(nodes, dict.fromkeys(nodes.values(), "node-7"), lambda: None).blame(caught.value)
    assert (blamed.value.reason, blamed.value.suspect) == (NODE_LOST, "node-7")
    assert from_error(caught.value).exit_code == ExitCode.ENVIRONMENT


def actors() -> tuple[Any, Any]:
    """Return an actor that has created others, as the trainer does, and an actor of somebody else."""
    import ray

    class Worker:
        def end(self, how: str) -> None:
            if how == "exit_actor":
                ray.actor.exit_actor()
            if how == "exit":
                raise SystemExit(0)
            print("out of luck", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        def pid(self) -> int:
            return os.getpid()

    class Trainer:
        def __init__(self, kind: Any) -> None:
            self.workers = {name: kind.remote() for name in (*ENDS, "released")}

        def pid(self, name: str) -> int:
            return int(ray.get(self.workers[name].pid.remote()))

        def end(self, name: str) -> None:
            if name == "released":
                self.workers.pop(name)
            elif name == "killed":
                ray.kill(self.workers[name])
            else:
                ray.get(self.workers[name].end.remote(name))

    kind = ray.remote(num_cpus=0)(Worker)
    return ray.remote(num_cpus=0)(Trainer).remote(kind), kind.remote()


def test_a_process_that_died_by_itself_is_lost_with_its_last_lines(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setattr(losses, "POLL_SECONDS", 0.5)
    monkeypatch.setattr(losses, "PROCESS_REPORT_SECONDS", 0.5)
    monkeypatch.setattr(lost_processes, "LOG_SECONDS", SECONDS)
    node = cluster.add_node(**WORKER).node_id
    trainer, stranger = actors()
    pid = ray.get(trainer.pid.remote("signal"))
    ray.get([trainer.pid.remote(name) for name in ("killed", "released", *ENDS)])
    ray.get([trainer.end.remote(name) for name in ("killed", "released")])
    for call in (trainer.end.remote("exit_actor"), trainer.end.remote("exit"), stranger.end.remote("signal")):
        with pytest.raises(ray.exceptions.RayActorError):
            ray.get(call)
    time.sleep(NOTICED_SECONDS)
    name = trainer._actor_id.hex()
    assert lost_processes.find(name, ()) == []
    watched = Losses({node: "here"}, {}, lambda: name)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(watched.wait)
        with pytest.raises(ray.exceptions.RayActorError) as caught:
            ray.get(trainer.end.remote("signal"))
        loss = waiting.result(SECONDS)
    (lost,) = lost_processes.find(name, ())
    assert lost.pid == pid
    assert lost_processes.find(name, {lost.node}) == []
    outcome = from_error(loss, last_step=7)
    assert (outcome.exit_code, outcome.reason, outcome.last_step) == (ExitCode.ENVIRONMENT, PROCESS_LOST, 7)
    assert re.fullmatch(rf"Worker \(pid {pid} at \S+\) died; its last lines: out of luck", outcome.message)
    with pytest.raises(LossError, match=r"out of luck; then the run raised ActorDiedError") as blamed:
        Losses({node: "here"}, {}, lambda: name).blame(caught.value)
    assert blamed.value.reason == PROCESS_LOST


def with_children(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    found = [pid]
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found += with_children(int(folder.name))
    return found
