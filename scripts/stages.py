"""Run the stages of `make test`: lanes in parallel, each lane in order, every stage with a limit and a log.

`scripts.test` holds the table and calls `run`. The output of the lane MAIN is shown live. The other lanes write only to
their logs, and the end of such a log is shown if its stage fails. A stage runs when every stage it depends on has
passed. A stage that cannot run is skipped and the others still run, so that one run reports everything that is broken.
Each process is started in its own session, and no other processes are ended.

It is not make, tox, nox or doit, because none of them runs a cleanup after failures, interruption and the end of the
time, within a deadline of the whole run, nor counts the CPU time of each stage.
"""

from __future__ import annotations

import contextlib
import enum
import os
import re
import signal
import subprocess
import sys
import threading
import time
import timeit
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "test"
BYTE_CODE = ROOT / "build" / "byte-code"
MAIN = "main"
HEARTBEAT_SECONDS = 30.0
TAIL_LINES = 60
ERROR_LINES = 80
# SIGINT lets pytest end what its fixtures started, and `scripts.in_image` delete its pod.
SIGINT_GRACE_SECONDS = 20.0
GRACE_SECONDS = 5.0
POLL_SECONDS = 0.05
SHORT_STAGE_SECONDS = 300.0
LIMIT_FACTOR = 10.0
# Time of the whole run that only the stages that clean up may use.
CLEANUP_MINUTES = 6.0
# The usual times in the table hold for a machine on which this loop takes this long.
LOOP_ITERATIONS = 10_000_000
REFERENCE_LOOP_SECONDS = 0.13
# Fields of /proc/<pid>/stat, counted from the state that follows the command name.
PARENT_FIELD, SESSION_FIELD, START_FIELD = 1, 3, 19
# Lines of pytest's output with the errors, where they were raised, and the rows of its short summary.
_ERROR = re.compile(r"^(?:E {3}|(?:FAILED|ERROR) |\S+\.py:\d+: )")
# pytest's last line: "==== 3 passed, 1 skipped in 0.12s ====".
_CLOSING = re.compile(r"^=+ (?P<text>.*\b(?:passed|failed|error|errors|skipped|deselected|no tests ran)\b.*) =+$")
_TESTS = re.compile(r"\b(\d+) (?:passed|failed|errors?|xfailed|xpassed)\b")


@dataclass(frozen=True)
class Stage:
    """One command of the test run."""

    name: str
    description: str
    command: tuple[str, ...]
    usual: float
    """Seconds that it takes at most on an idle machine with the reference loop, rounded up to half a minute."""
    lane: str = MAIN
    after: tuple[str, ...] = ()
    """Stages that must have passed before this one runs."""
    after_end_of: tuple[str, ...] = ()
    """Stages that must have ended before this one runs, passed or not: cleanup runs after failures too."""
    last: bool = False
    """The stage cleans up: it runs even if the others have used up their time or the run was interrupted."""


class Verdict(enum.StrEnum):
    """Outcome of a stage."""

    PASSED = "passed"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED OUT"
    STOPPED = "stopped"
    SKIPPED = "skipped"


@dataclass
class Result:
    """Result of one stage."""

    verdict: Verdict
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of the stage's processes on this machine. What containers of the cluster use is not in it."""
    note: str = ""

    @property
    def tests(self) -> int:
        """The number of tests that ran, by pytest's closing line."""
        return sum(map(int, _TESTS.findall(self.note)))


@dataclass
class _Run:
    """State shared by the lanes."""

    stages: Sequence[Stage]
    end: float
    """When the whole run must be over, cleanup included."""
    results: dict[str, Result] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    processes: dict[Stage, subprocess.Popen[str]] = field(default_factory=dict)
    stopping: bool = False
    lanes_left: int = 0

    def finish(self, name: str, result: Result) -> None:
        with self.changed:
            self.results[name] = result
            self.changed.notify_all()

    def seconds_left(self, stage: Stage) -> float:
        """Return the limit of a stage that starts now; none is left at zero."""
        left = self.end - time.monotonic() - (0.0 if stage.last else CLEANUP_MINUTES * 60)
        return min(left, stage.usual * LIMIT_FACTOR) if stage.usual < SHORT_STAGE_SECONDS else left


def run(stages: Sequence[Stage], *, budget_minutes: float) -> bool:
    """Run all stages, print the table of results, and return whether all passed.

    SIGINT and SIGTERM end what runs, and the stages that clean up still run; a second signal ends those too.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    loop = min(timeit.repeat(f"for _ in range({LOOP_ITERATIONS}): pass", number=1, repeat=3))
    started = time.monotonic()
    # Stages run in their own sessions, so they would outlive this program if a signal ended it directly. A shell that
    # starts it in the background makes it ignore SIGINT, which its stages would inherit.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    state = _Run(stages=stages, end=started + budget_minutes * 60)
    lanes = list(dict.fromkeys(stage.lane for stage in stages))
    state.lanes_left = len(lanes)
    for lane in lanes:
        threading.Thread(target=_run_lane, args=(state, lane), daemon=True).start()
    try:
        _wait_for_lanes(state)
    except KeyboardInterrupt:
        _stop(state)
    _report(state, time.monotonic() - started, loop)
    return [result.verdict for result in state.results.values()] == [Verdict.PASSED] * len(stages)


def _wait_for_lanes(state: _Run) -> None:
    """Wait until all lanes have ended. Thread.join of Python 3.11 forgets a thread if a signal interrupts it."""
    with state.changed:
        while state.lanes_left:
            state.changed.wait()


def _stop(state: _Run) -> None:
    """End what runs, and wait for the stages that clean up."""
    try:
        _print("interrupted: ending what runs, then cleaning up; a second signal ends the cleanup too")
        _end_all(state, last=False)
        _wait_for_lanes(state)
    except KeyboardInterrupt:
        # From here on, a third signal would leave processes behind.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        _end_all(state, last=True)
        _wait_for_lanes(state)


def _end_all(state: _Run, *, last: bool) -> None:
    with state.changed:
        state.stopping = True
        if last:
            state.end = time.monotonic()
        running = [process for stage, process in state.processes.items() if last or not stage.last]
        state.changed.notify_all()
    threads = [threading.Thread(target=end_session, args=(process.pid,), daemon=True) for process in running]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _run_lane(state: _Run, lane: str) -> None:
    try:
        for stage in state.stages:
            if stage.lane == lane:
                obstacle = _wait_for_others(state, stage)
                if obstacle:
                    _print(f"{stage.name}: skipped, {obstacle}")
                    state.finish(stage.name, Result(Verdict.SKIPPED, note=obstacle))
                else:
                    state.finish(stage.name, _run_stage(state, stage))
    finally:
        with state.changed:
            state.lanes_left -= 1
            state.changed.notify_all()


def _wait_for_others(state: _Run, stage: Stage) -> str:
    """Wait until the stage can run. Return the reason if it cannot run at all."""
    names = {other.name for other in state.stages}
    needed = [name for name in stage.after if name in names]
    awaited = [name for name in (*stage.after, *stage.after_end_of) if name in names]
    started = time.monotonic()
    with state.changed:
        while True:
            if state.stopping and not stage.last:
                return "the run was stopped"
            if bad := [
                name for name in needed if name in state.results and state.results[name].verdict is not Verdict.PASSED
            ]:
                return f"needs {', '.join(bad)}"
            missing = [name for name in awaited if name not in state.results]
            if not missing:
                return "" if state.seconds_left(stage) > 0 else "the time of the run is over"
            if not state.changed.wait(HEARTBEAT_SECONDS) and stage.lane == MAIN:
                _print(f"{stage.name}: waiting for {', '.join(missing)} ({_clock(time.monotonic() - started)})")


def _run_stage(state: _Run, stage: Stage) -> Result:
    shown = stage.lane == MAIN
    log_path = LOGS / f"{stage.name}.log"
    _print(
        f"{stage.name}: {stage.description}"
        + ("" if shown else f" (in the background, log: {log_path.relative_to(ROOT)})")
    )
    started = time.monotonic()
    with log_path.open("w") as log:
        process = _start(state, stage)
        if process is None:
            return Result(Verdict.SKIPPED, note="the run was stopped")
        timed_out = threading.Event()
        watchdog = threading.Timer(max(0.0, state.seconds_left(stage)), _end_at_limit, (process, timed_out))
        watchdog.daemon = True
        watchdog.start()
        note = _copy_output(process, log, shown=shown)
        code, cpu_seconds = _wait(process)
        watchdog.cancel()
        with state.changed:
            del state.processes[stage]
    took = time.monotonic() - started
    if code == 0 and not timed_out.is_set():
        _print(f"{stage.name}: passed in {_clock(took)}")
        return Result(Verdict.PASSED, took, cpu_seconds, note)
    verdict = Verdict.TIMED_OUT if timed_out.is_set() else Verdict.STOPPED if state.stopping else Verdict.FAILED
    if not shown and verdict is not Verdict.STOPPED:
        _show_tail(log_path)
    _print(f"{stage.name}: {verdict} after {_clock(took)}, exit code {code}, full log: {log_path.relative_to(ROOT)}")
    return Result(verdict, took, cpu_seconds, note or f"exit code {code}")


def _start(state: _Run, stage: Stage) -> subprocess.Popen[str] | None:
    """Start the process of a stage, unless the run was stopped in the meantime."""
    with state.changed:
        if state.stopping and not stage.last:
            return None
        process = subprocess.Popen(
            stage.command if stage.lane == MAIN else ("nice", "-n", "5", *stage.command),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
            env=_environment(),
        )
        state.processes[stage] = process
        return process


def _environment() -> dict[str, str]:
    """Return the environment of stages. They keep byte code, which is much of what pytest's collection costs.

    Images and CI often set PYTHONDONTWRITEBYTECODE; a folder of its own keeps the byte code out of the tree.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONUNBUFFERED": "1", "PYTHONPYCACHEPREFIX": str(BYTE_CODE)}


def _copy_output(process: subprocess.Popen[str], log: TextIO, *, shown: bool) -> str:
    """Copy the output to the log, and to the terminal if shown. Return pytest's closing line, or an empty string."""
    closing = ""
    for line in process.stdout or ():
        log.write(line)
        log.flush()
        if shown:
            sys.stdout.write(line)
            sys.stdout.flush()
        if found := _CLOSING.match(line.strip()):
            closing = found["text"]
    return closing


def _wait(process: subprocess.Popen[str]) -> tuple[int, float]:
    """Wait for a process. Return its exit code, and the CPU seconds of it and of its children."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


def _end_at_limit(process: subprocess.Popen[str], timed_out: threading.Event) -> None:
    timed_out.set()
    end_session(process.pid)


def end_session(leader: int) -> None:
    """End the leader of a session, all processes of the session, and those that they have started.

    Processes with sessions of their own get no SIGINT, because the process that started them may end them in order.
    """
    family = _family(leader)
    if leader in family:
        os.killpg(leader, signal.SIGINT)
        _wait_gone({leader: family[leader]}, SIGINT_GRACE_SECONDS)
    for number in (signal.SIGTERM, signal.SIGKILL):
        family |= _family(leader)
        for pid in _alive(family):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        _wait_gone(family, GRACE_SECONDS)


def _wait_gone(family: Mapping[int, str], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while _alive(family) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _alive(family: Mapping[int, str]) -> list[int]:
    """Return which of these processes still run; the kernel reuses numbers, so the start time must be the same."""
    table = _processes()
    return [pid for pid, start in family.items() if pid in table and table[pid][START_FIELD] == start]


def _family(leader: int) -> dict[int, str]:
    """Return the processes of a session and all that descend from them, with their start times."""
    table = _processes()
    pending = [pid for pid, fields in table.items() if fields[SESSION_FIELD] == str(leader)]
    children: dict[int, list[int]] = {}
    for pid, fields in table.items():
        children.setdefault(int(fields[PARENT_FIELD]), []).append(pid)
    family: dict[int, str] = {}
    while pending:
        pid = pending.pop()
        if pid not in family:
            family[pid] = table[pid][START_FIELD]
            pending += children.get(pid, [])
    return family


def _processes() -> dict[int, list[str]]:
    """Return what Linux says of every process that runs, zombies excluded."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The command name may contain spaces and brackets; the last bracket ends it.
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] not in "ZX":
            found[int(path.parent.name)] = fields
    return found


def _show_tail(path: Path) -> None:
    lines = path.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    print(f"---- end of {path.relative_to(ROOT)}\n" + "\n".join(lines) + "\n----", flush=True)


def _report(state: _Run, seconds: float, loop: float) -> None:
    """Print a row for each stage, then the errors, and one closing line; a time over its budget fails nothing."""
    width = max(len(stage.name) for stage in state.stages)
    print(f"\n{'stage':<{width}}  result       wall    CPU s  tests   budget", flush=True)
    over = []
    for stage in state.stages:
        result = state.results.get(stage.name, Result(Verdict.SKIPPED, note="not started"))
        budget = stage.usual * loop / REFERENCE_LOOP_SECONDS
        if result.seconds > budget:
            over.append(stage.name)
        lane = "" if stage.lane == MAIN else f"[{stage.lane}] "
        row = f"{stage.name:<{width}}  {result.verdict:<9}  {_clock(result.seconds):>6}  {result.cpu_seconds:>7.1f}"
        print(f"{row}  {result.tests or '':>5}  {_clock(budget):>7}  {lane}{result.note}".rstrip(), flush=True)
    loops = f"a loop of {LOOP_ITERATIONS:,} iterations took {loop:.2f} s here, {REFERENCE_LOOP_SECONDS} s for the table"
    print(f"budgets are the usual times of the table, scaled: {loops}", flush=True)
    for name, result in state.results.items():
        if result.verdict in (Verdict.FAILED, Verdict.TIMED_OUT):
            _print_errors(LOGS / f"{name}.log")
    passed = sum(result.verdict is Verdict.PASSED for result in state.results.values())
    late = f"; over budget: {', '.join(over)}" if over else ""
    print(f"{passed} of {len(state.stages)} stages passed in {_clock(seconds)}{late}", flush=True)


def _print_errors(path: Path) -> None:
    """Print the errors of a failed stage again: its own output is far above the table and is often truncated in CI."""
    lines = path.read_text(errors="replace").splitlines()
    errors = list(dict.fromkeys(line for line in lines if _ERROR.match(line)))
    shown = errors if len(errors) <= ERROR_LINES else [*errors[: ERROR_LINES // 2], "...", *errors[-ERROR_LINES // 2 :]]
    shown = shown or lines[-ERROR_LINES:]
    print(f"---- errors in {path.relative_to(ROOT)}\n" + "\n".join(shown) + "\n----", flush=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _print(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)
