"""Stacks of hanging processes, with real processes and real signals. Other processes are not disturbed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rljob_runtime import ray_cluster
from rljob_runtime.contract import STALL_SECONDS, ExitCode, Outcome, Phase, Progress, StopMode
from rljob_runtime.stacks import gather as gathering
from rljob_runtime.stacks import stall
from rljob_runtime.stacks.frames import Kind, place_of, ranges, summarize, threads
from rljob_runtime.stacks.gather import Stack, ask, catches, gather
from rljob_runtime.stacks.register import SUFFIX, VARIABLE, root, start_ticks

ROOT = Path(__file__).parents[2]
NAME = "sums-uid01-1-attempt-1"
WAIT_SECONDS = 30.0
QUESTIONS_ASKED = 300
"""When asked by the signal, CPython 3.11 crashes within fifty requests."""
Hang = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv(VARIABLE, NAME)


@pytest.fixture
def hang(tmp_path: Path) -> Iterator[Hang]:
    running: list[subprocess.Popen[str]] = []

    def start(how: str, **variables: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "runtime.tests.hanging_process", how]
        with (tmp_path / f"{how}.err").open("w") as log:
            process = subprocess.Popen(
                words,
                cwd=ROOT,
                env={**os.environ, **variables},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "hangs\n"
        return process

    yield start
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_every_process_returns_its_stack(hang: Hang) -> None:
    waiting, reading = hang("wait", RANK="0"), hang("read", RANK="1")
    stacks = {stack.pid: stack for stack in gather(NAME, "node-a", WAIT_SECONDS)}
    assert set(stacks) == {waiting.pid, reading.pid}
    assert "in wait_for_a_partner" in stacks[waiting.pid].text
    told = stacks[reading.pid]
    place = place_of(told)
    assert place.kind is Kind.USER_CODE
    assert place.frame is not None
    assert place.frame.function == "read_from_nobody"
    assert (told.node, told.rank, told.state) == ("node-a", 1, "S (sleeping)")
    assert told.title.endswith("-m runtime.tests.hanging_process read")
    assert told.logs == {"read.err": "a line of the log\n"}
    assert waiting.poll() is None
    assert reading.poll() is None


def test_a_process_that_is_busy_survives_every_question(hang: Hang, tmp_path: Path) -> None:
    process = hang("calculate")
    (file,) = (tmp_path / "rljob-stacks" / NAME).glob(f"*{SUFFIX}")
    for _ in range(QUESTIONS_ASKED):
        size, deadline = file.stat().st_size, time.monotonic() + WAIT_SECONDS
        ask(file)
        while file.stat().st_size == size and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert process.poll() is None
    (stack,) = gather(NAME, "node-a", WAIT_SECONDS)
    assert place_of(stack).kind is Kind.USER_CODE


def test_a_process_that_holds_the_interpreter_answers_the_signal(hang: Hang) -> None:
    process = hang("hold")
    (stack,) = gather(NAME, "node-a", 2.0)
    place = place_of(stack)
    assert place.frame is not None
    assert place.frame.function == "hold_the_interpreter"
    assert process.poll() is None


def test_asking_again_gives_the_new_stack_only(hang: Hang) -> None:
    hang("wait")
    for _ in range(2):
        (stack,) = gather(NAME, "node-a", WAIT_SECONDS)
        assert stack.text.count("in wait_for_a_partner") == 1


def test_a_forked_process_answers_for_itself(hang: Hang) -> None:
    parent = hang("fork")
    stacks = gather(NAME, "node-a", WAIT_SECONDS)
    assert len(stacks) == 2
    assert parent.pid in {stack.pid for stack in stacks}
    assert [("fork_and_wait" in s.text, "wait_for_a_partner" in s.text) for s in stacks].count((True, True)) == 1


def test_a_process_that_is_stopped_is_reported_without_a_stack(hang: Hang) -> None:
    process = hang("wait", RANK="3")
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    (stack,) = gather(NAME, "node-a", 0.5)
    assert (stack.text, place_of(stack).kind) == ("", Kind.SILENT)
    assert summarize([stack]) == f"rank 3 (pid {process.pid} on node-a) did not answer, state T (stopped)"


def test_a_process_that_does_not_catch_the_signal_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            folder = tmp_path / "rljob-stacks" / NAME
            folder.mkdir(parents=True)
            assert root() / NAME == folder
            (folder / f"{stranger.pid}-{start_ticks(stranger.pid)}.stack").touch()
            assert not catches(stranger.pid)
            assert gather(NAME, "node-a", 1.0) == []
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_pid_that_was_reused_by_another_process_is_left_alone(hang: Hang, tmp_path: Path) -> None:
    process = hang("wait")
    (file,) = (tmp_path / "rljob-stacks" / NAME).glob(f"*{SUFFIX}")
    file.rename(file.with_name(f"{process.pid}-1.stack"))
    (file.parent / "999999999-1.stack").touch()
    (file.parent / "nonsense.stack").touch()
    assert gather(NAME, "node-a", 1.0) == []


def test_a_stack_and_a_log_are_bounded(hang: Hang, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "STACK_BYTES", 40)
    monkeypatch.setattr(gathering, "LOG_BYTES", 5)
    hang("read")
    (stack,) = gather(NAME, "node-a", WAIT_SECONDS)
    assert (len(stack.text), stack.logs) == (40, {"read.err": " log\n"})


def test_a_process_outside_of_a_run_registers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)
    code = "import rljob_runtime.stacks.register as r; r.register(); print(r._open)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "{}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_cannot_register_logs_it_and_continues(tmp_path: Path) -> None:
    (tmp_path / "rljob-stacks").write_text("a file in the way")
    code = "import rljob_runtime.stacks.register as r; r.register(); print('continues')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "continues\n"
    assert "this process cannot return its stacks" in done.stderr


# Interpreting stacks.

SITE = "/opt/venv/lib/python3.11/site-packages"
IN_RAY = f'  File "{SITE}/ray/_private/worker.py", line 999 in main_loop\n'
MAIN_IDLE = (
    f'Current thread 0x00007f01 (most recent call first):\n{IN_RAY}  File "x/default_worker.py", line 3 in <module>\n'
)
IDLE = f"Current thread 0x00007f01 (most recent call first):\n{IN_RAY}"
IN_ALL_REDUCE = f"""Thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "{SITE}/tqdm/_monitor.py", line 60 in run

Current thread 0x00007f01 (most recent call first):
  File "{SITE}/torch/_ops.py", line 1209 in __call__
  File "{SITE}/torch/distributed/distributed_c10d.py", line 2810 in all_reduce
  File "{SITE}/torch/distributed/c10d_logger.py", line 81 in wrapper
  File "{SITE}/verl/workers/fsdp_workers.py", line 700 in update_actor
{IN_RAY}"""
IN_REWARD = f"""Thread 0x00007f02 (most recent call first):
  File "{SITE}/tqdm/_monitor.py", line 60 in run

Current thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/socket.py", line 700 in readinto
  File "/code/reward.py", line 33 in ask_the_judge
  File "{SITE}/verl/workers/fsdp_workers.py", line 690 in update_actor
{IN_RAY}"""


def stack(pid: int, text: str, rank: int | None = None, title: str = "ray::Worker.update", node: str = "b") -> Stack:
    return Stack(node, pid, title, rank, "S (sleeping)", text)


def test_the_rank_that_never_entered_the_collective_is_named() -> None:
    ranks = [stack(100 + rank, IN_REWARD if rank == 3 else IN_ALL_REDUCE, rank) for rank in range(8)]
    others = [stack(7, IDLE, title="ray::Router"), stack(8, IDLE, 8), stack(9, IN_REWARD, title="ray::TaskRunner.run")]
    told = summarize([*others, *ranks])
    assert told == (
        "ranks 0-2, 4-7 wait in all_reduce (torch/distributed/distributed_c10d.py:2810); "
        "rank 3 (pid 103 on b) is in ask_the_judge (/code/reward.py:33); "
        "ray::TaskRunner.run (pid 9 on b) is in ask_the_judge (/code/reward.py:33); "
        "rank 8 (pid 8 on b) is idle; 1 process is idle"
    )


def test_code_that_only_runs_inside_of_a_wrapper_is_no_collective() -> None:
    inside = f"""Current thread 0x00007f01 (most recent call first):
  File "{SITE}/transformers/modeling.py", line 12 in forward
  File "{SITE}/torch/distributed/fsdp/fully_sharded_data_parallel.py", line 850 in forward
"""
    assert place_of(stack(1, inside)).kind is Kind.BUSY


def test_users_code_is_listed_before_the_frameworks() -> None:
    driver = IN_REWARD.replace('File "/code/reward.py"', f'File "{SITE}/verl/main_ppo.py"')
    told = summarize([*(stack(pid, driver, title="driver") for pid in (1, 2)), stack(3, IN_REWARD, title="reward")])
    assert told.startswith("reward (pid 3 on b) is in ask_the_judge (/code/reward.py:33); driver (pid 1 on b), ")


def test_a_thread_that_waits_for_work_is_idle() -> None:
    polls = f'Thread 0x00007f02 (most recent call first):\n  File "{SITE}/zmq/sugar/poll.py", line 1 in poll\n'
    loop = f'  File "{SITE}/transfer_queue/controller.py", line 9 in _wait_connection\n'
    call = f'  File "{SITE}/transfer_queue/controller.py", line 9 in get_metadata\n'
    assert place_of(stack(1, polls + loop)).kind is Kind.IDLE
    assert place_of(stack(1, polls + call)).kind is Kind.BUSY
    # The same wait, for work and for a response.
    broadcast = polls + f'  File "{SITE}/vllm/distributed/device_communicators/shm_broadcast.py", line 1 in wait\n'
    executor = f'  File "{SITE}/vllm/v1/executor/multiproc_executor.py", line 2 in '
    assert place_of(stack(1, f"{broadcast}{executor}worker_busy_loop\n")).kind is Kind.IDLE
    assert place_of(stack(1, f"{broadcast}{executor}get_response\n")).kind is Kind.BUSY


def test_ranks_of_two_groups_are_distinguished_by_their_processes() -> None:
    same = [stack(1, IN_ALL_REDUCE, 0, "ray::Actor.update"), stack(2, IN_ALL_REDUCE, 0, "ray::Critic.update")]
    assert summarize(same).startswith("ray::Actor.update (pid 1 on b), ray::Critic.update (pid 2 on b) wait in")


def test_a_group_of_many_names_a_few_and_the_line_is_bounded() -> None:
    assert "and 6 more are in" in summarize([stack(pid, IN_REWARD) for pid in range(10)])
    many = [stack(pid, IN_REWARD.replace("line 33", f"line {pid}"), pid) for pid in range(200)]
    assert len(summarize(many)) <= 1000
    assert summarize([]) == "no process returned its stack"


def test_the_oldest_thread_comes_first() -> None:
    assert [frames[0].function for frames in threads(IN_ALL_REDUCE)] == ["__call__", "wait"]
    assert threads("what a program printed\\n") == []


def test_numbers_are_written_as_ranges() -> None:
    assert (ranges([5, 0, 1, 2]), ranges([7])) == ("0-2, 5", "7")


# The launcher's part.


def test_the_end_names_what_hangs_and_keeps_every_stack(hang: Hang, tmp_path: Path) -> None:
    process = hang("read", RANK="1")
    spool, volume = tmp_path / "spool", tmp_path / "volume"
    outcome = stall.outcome_of(NAME, 4, time.time() - 1800, [spool, volume])
    assert (outcome.exit_code, outcome.reason, outcome.last_step) == (ExitCode.STALLED, "Stalled", 4)
    assert outcome.message.startswith("no step for 180")
    assert " s after step 4: rank 1 (pid " in outcome.message
    assert "is in read_from_nobody (runtime/tests/hanging_process.py:" in outcome.message
    assert outcome.message.endswith(f"stacks of 1 process on 1 node are in {volume}/stacks")
    for target in (spool, volume):
        assert {file.name for file in (target / "stacks").iterdir()} == {
            "summary.txt",
            f"the-head-{process.pid}.txt",
        }
        text = (target / "stacks" / f"the-head-{process.pid}.txt").read_text()
        assert "in read_from_nobody" in text
        assert "--- end of read.err\na line of the log" in text


def test_a_volume_that_hangs_or_fails_costs_only_its_copy(
    hang: Hang, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hang("wait")
    (tmp_path / "file").write_text("")
    hanging = threading.Event()
    monkeypatch.setattr(stall, "WRITE_SECONDS", 0.5)
    written = stall.write

    def write(target: Path, line: str, stacks: list[Stack]) -> None:
        if target.name == "hanging":
            hanging.wait(WAIT_SECONDS)
        written(target, line, stacks)

    monkeypatch.setattr(stall, "write", write)
    outcome = stall.outcome_of(NAME, 0, time.time(), [tmp_path / "spool", tmp_path / "hanging", tmp_path / "file"])
    assert outcome.message.endswith(f"are in {tmp_path}/spool/stacks")
    assert "cannot save the stacks" in capsys.readouterr().err
    hanging.set()


def test_a_node_that_is_lost_costs_no_other_nodes_stacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def get(task: str) -> list[Stack]:
        if task == "lost":
            raise OSError("the node is gone")
        return [Stack(task, 1, "", None, "S (sleeping)", "")]

    names = ("head", "lost", "node-2")
    played = SimpleNamespace(
        nodes=lambda: [{"Alive": True, "NodeID": name, "NodeManagerAddress": name} for name in names],
        get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "head"),
        wait=lambda tasks, **_: (tasks, []),
        get=get,
    )
    monkeypatch.setitem(sys.modules, "ray", played)
    monkeypatch.setattr(ray_cluster, "pinned", lambda _, node: SimpleNamespace(remote=lambda *_: node))
    assert [stack.node for stack in ray_cluster.stacks_elsewhere(NAME, 1.0)] == ["node-2"]
    assert "the node is gone" in capsys.readouterr().err


def test_a_run_that_hangs_is_ended_by_its_launcher(tmp_path: Path) -> None:
    folders = [str(tmp_path / "spool"), str(tmp_path / "volume")]
    words = [sys.executable, "-m", "runtime.tests.stalling_process", *folders, StopMode.STALLED]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=4 * STALL_SECONDS)
    assert done.returncode == 67, done.stderr
    outcome = Outcome.from_json(done.stdout.splitlines()[-1])
    assert "train_for_ever (runtime/tests/stalling_process.py:" in outcome.message
    shown = Progress.from_json((tmp_path / "spool" / "current.json").read_bytes())
    assert (shown.phase, shown.outcome) == (Phase.ENDED, outcome)
    assert (tmp_path / "volume" / "sums-uid01-1" / "attempt-1" / "stacks" / "summary.txt").exists()
