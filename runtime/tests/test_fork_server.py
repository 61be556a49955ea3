"""The fork server with real processes: what is forked looks, ends and dies as the process that was asked for."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.contract import AttemptVariable, Platform
from rljob_runtime.fork_server import client, forked, preload, start
from runtime.tests.conftest import MakeJob

RUN = "run-attempt-1"
WAIT_SECONDS = 60.0
REPORT = """
    import json, os, sys
    told = {"parent": os.getppid(), "pid": os.getpid(), "arguments": sys.argv[1:], "name": __name__,
            "folder": os.getcwd(), "path": sys.path[0], "rank": os.environ.get("RANK"), "group": os.getpgid(0),
            "said": sys.stdin.read(), "niceness": os.getpriority(os.PRIO_PROCESS, 0),
            "threads": os.environ.get("OMP_NUM_THREADS")}
    print(json.dumps(told), flush=True)
"""


@dataclass
class Node:
    """A node with a raylet, which is any process, and the environment of Ray's workers on it."""

    folder: Path
    raylet: subprocess.Popen[bytes]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def environ(self) -> dict[str, str]:
        own = {"TMPDIR": str(self.folder), client.VARIABLE: RUN, "OMP_NUM_THREADS": "1"}
        return {**os.environ, **own, preload.JOB_ID: "01000000", preload.RAYLET_PID: str(self.raylet.pid)}

    def script(self, text: str) -> Path:
        path = self.folder / "script.py"
        path.write_text(textwrap.dedent(text))
        return path

    def run(self, text: str, *arguments: str, **changed: str | None) -> subprocess.Popen[str]:
        """Start a script by the client; variables that are None are not set."""
        environ = {name: value for name, value in {**self.environ, **changed}.items() if value is not None}
        command = [*start.CLIENT, str(self.script(text)), *arguments]
        process = subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.started.append(process)
        return process

    def report(self, *arguments: str, **changed: str | None) -> dict[str, Any]:
        said, _ = self.run(REPORT, *arguments, **changed).communicate("hello", timeout=WAIT_SECONDS)
        told: dict[str, Any] = json.loads(said)
        return told

    @property
    def log(self) -> str:
        return next(self.folder.glob("rljob-fork-*/log")).read_text()


@pytest.fixture
def node() -> Iterator[Node]:
    # A socket's path has 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="fork-"))
    with subprocess.Popen(["sleep", "600"]) as raylet:
        made = Node(folder, raylet)
        yield made
        raylet.kill()
    for process in made.started:
        process.kill()
        process.communicate(timeout=WAIT_SECONDS)
    wait_until(lambda: not servers(folder))
    shutil.rmtree(folder)


def servers(folder: Path) -> list[int]:
    """Return the processes whose environment names the folder and whose command is the server's, forked or not."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (
                client.SERVER.encode() in (entry / "cmdline").read_bytes()
                and str(folder).encode() in (entry / "environ").read_bytes()
            ):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait_until(done: Any) -> None:  # noqa: ANN401 - a function without arguments
    deadline = time.monotonic() + WAIT_SECONDS
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def lives(pid: int) -> bool:
    """Report whether a process runs; one that waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_forked(told: Mapping[str, Any]) -> bool:
    return bool(told["parent"] != os.getpid())


def test_a_forked_script_sees_what_it_would_see_as_an_ordinary_process(node: Node) -> None:
    expected = subprocess.run(
        [sys.executable, str(node.script(REPORT)), "a", "b c"],
        env={**node.environ, "RANK": "3"},
        input="hello",
        capture_output=True,
        text=True,
        check=True,
    )
    ordinary = json.loads(expected.stdout)
    found = node.report("a", "b c", RANK="3")
    own = ("parent", "pid", "group")
    assert {name: value for name, value in found.items() if name not in own} == {
        name: value for name, value in ordinary.items() if name not in own
    }
    assert is_forked(found)
    assert found["group"] == found["pid"]


def test_all_processes_of_a_node_come_from_one_server(node: Node) -> None:
    first, second = node.report(RANK="0"), node.report(RANK="1")
    assert (first["rank"], second["rank"]) == ("0", "1")
    assert first["parent"] == second["parent"] != os.getpid()
    assert node.log.count(" modules") == 1


@pytest.mark.parametrize("status", [0, 7, -signal.SIGKILL, -signal.SIGSEGV])
def test_the_client_ends_as_the_process_ended(node: Node, status: int) -> None:
    end = f"sys.exit({status})" if status >= 0 else f"os.kill(os.getpid(), {-status})"
    process = node.run(f"import os, sys; {end}")
    process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == status


def test_a_signal_to_the_client_reaches_the_process(node: Node) -> None:
    process = node.run("""
        import signal, sys
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        print("waits", flush=True)
        signal.pause()
    """)
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    process.terminate()
    assert process.wait(WAIT_SECONDS) == 5


WAIT = """
    import os, subprocess, time
    print(os.getpid(), subprocess.Popen(["sleep", "600"]).pid, flush=True)
    time.sleep(600)
"""


def test_a_client_that_is_killed_takes_the_process_and_its_children_with_it(node: Node) -> None:
    process = node.run(WAIT)
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    assert all(lives(pid) for pid in pids)
    process.kill()
    wait_until(lambda: not any(lives(pid) for pid in pids))


def test_server_and_processes_end_after_the_raylet(node: Node) -> None:
    process = node.run(WAIT)
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    node.raylet.kill()
    node.raylet.wait()
    wait_until(lambda: not servers(node.folder) and not any(lives(pid) for pid in pids))
    assert process.wait(WAIT_SECONDS) != 0


def test_another_environment_than_that_of_the_imports_starts_an_ordinary_process(node: Node) -> None:
    assert is_forked(node.report())
    told = node.report(OMP_NUM_THREADS="8")
    assert not is_forked(told)
    assert told["threads"] == "8"
    assert "it differs in OMP_NUM_THREADS" in node.log


def test_libraries_that_were_imported_with_another_environment_fork_nothing(node: Node) -> None:
    environ = {name: value for name, value in node.environ.items() if name != preload.RAYLET_PID}
    start.begin({**environ, "OMP_NUM_THREADS": "8"})
    assert not is_forked(node.report())
    assert "libraries were imported with another OMP_NUM_THREADS" in node.log


def test_a_process_that_ray_did_not_start_is_an_ordinary_one(node: Node) -> None:
    assert not is_forked(node.report(RAY_JOB_ID=None))
    assert is_forked(node.report())


def test_a_worker_of_another_job_is_an_ordinary_process(node: Node) -> None:
    assert is_forked(node.report())
    assert not is_forked(node.report(RAY_JOB_ID="02000000"))


def test_a_server_that_was_begun_early_serves_the_first_worker(node: Node) -> None:
    start.begin_early(node.environ)
    wait_until(lambda: "libraries after" in node.log)
    assert is_forked(node.report())
    assert node.log.count("libraries after") == 1


def test_without_the_variable_nothing_is_started(node: Node) -> None:
    start.begin({})
    assert not is_forked(node.report(**{client.VARIABLE: ""}))
    assert not list(node.folder.glob("rljob-fork-*"))


def test_where_no_server_can_be_started_an_ordinary_process_begins(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(node.folder))
    client.folder(RUN).write_text("a file in the way")
    assert not is_forked(node.report())


SPAWN = """
    import multiprocessing, os, sys, time
    from rljob_runtime.fork_server import start
    start.install_spawn(os.environ)
    if __name__ == "__main__":
        process = multiprocessing.get_context("spawn").Process(target={target})
        process.start()
        print(os.getpid(), flush=True)
        {then}
"""


def test_what_multiprocessing_spawns_is_forked_and_joined(node: Node) -> None:
    target, then = "os.system, args=('echo $PPID; exit 3',)", "process.join(); print(process.exitcode)"
    said, _ = node.run(SPAWN.format(target=target, then=then)).communicate(timeout=WAIT_SECONDS)
    assert said.splitlines()[-1] == "0"
    assert "not forked" not in node.log


def test_a_spawned_process_does_not_outlive_who_spawned_it(node: Node) -> None:
    process = node.run(SPAWN.format(target="time.sleep, args=(600,)", then="time.sleep(600)"))
    assert process.stdout is not None
    owner = int(process.stdout.readline())
    # The server, the one that spawned and the one that was spawned.
    wait_until(lambda: len(servers(node.folder)) == 3)
    os.kill(owner, signal.SIGKILL)
    wait_until(lambda: len(servers(node.folder)) == 1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("RANK", True),
        ("RAY_RAYLET_NODE_ID", True),
        ("ASCEND_RT_VISIBLE_DEVICES", True),
        ("RLJOB_STACKS", True),
        ("RAY_JOB_ID", False),
        ("RAY_RAYLET_PID", False),
        ("VERL_PLATFORM", False),
        ("HF_HUB_OFFLINE", False),
        ("MY_RANK", False),
    ],
)
def test_what_may_differ_between_processes_is_what_no_import_reads(name: str, expected: bool) -> None:
    assert bool(client.PER_PROCESS.fullmatch(name)) is expected


def test_what_an_import_has_set_is_set_unless_the_process_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    environ: dict[str, str] = {"OLD": "1"}
    monkeypatch.setattr(os, "environ", environ)
    forked.take_environment({"OWN": "a", "BOTH": "b"}, {"BOTH": "x", "SET": "y"})
    assert environ == {"OWN": "a", "BOTH": "b", "SET": "y"}


def test_only_cpus_have_a_server(make_job: MakeJob) -> None:
    environ: dict[str, str] = {AttemptVariable.ATTEMPT: "2"}
    assert start.environment(make_job(platform=Platform.CPU), environ) == {client.VARIABLE: "sums-uid01-1-attempt-2"}
    assert start.environment(make_job(platform=Platform.NPU), environ) == {}


@pytest.mark.parametrize(
    ("runtime_env", "chosen"),
    [
        ({"env_vars": {"A": "b"}, "worker_process_setup_hook": "x"}, True),
        ({"py_executable": None}, True),
        ({"py_executable": "python -X dev"}, False),
        ({"pip": ["torch"]}, False),
    ],
)
def test_a_job_that_chooses_its_interpreter_keeps_it(runtime_env: dict[str, Any], chosen: bool) -> None:
    assert bool(start.interpreter(runtime_env, {client.VARIABLE: RUN})) is chosen
    assert start.interpreter(runtime_env, {}) is None
