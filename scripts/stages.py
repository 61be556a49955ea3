"""Run the stages of `make test`: lanes in parallel, each lane in order, every stage with a deadline and a log.

`scripts.test` holds the table and calls `run`. The output of the lane MAIN is shown live. The other lanes write only to
their logs, and the end of such a log is shown if its stage fails. A stage runs when every stage it depends on has
passed. A stage that cannot run is skipped and the others still run, so that one run reports everything that is broken.
Each process is started in its own session, and no other processes are ended.
"""

from __future__ import annotations

import enum
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "test"
MAIN = "main"
HEARTBEAT_SECONDS = 30.0
TAIL_LINES = 60
ERROR_LINES = 80
KILL_GRACE_SECONDS = 20.0
# Lines of pytest's output with the errors, where they were raised, and the rows of its short summary.
_ERROR = re.compile(r"^(?:E {3}|(?:FAILED|ERROR) |\S+\.py:\d+: )")
# pytest's last line: "==== 3 passed, 1 skipped in 0.12s ====".
_CLOSING = re.compile(r"^=+ (?P<text>.*\b(?:passed|failed|error|errors|skipped|deselected|no tests ran)\b.*) =+$")


@dataclass(frozen=True)
class Stage:
    """One command of the test run."""

    name: str
    description: str
    command: tuple[str, ...]
    minutes: float
    """Deadline, from the start of the stage."""
    lane: str = MAIN
    after: tuple[str, ...] = ()
    """Stages that must have passed before this one runs."""
    after_end_of: tuple[str, ...] = ()
    """Stages that must have ended before this one runs, passed or not: cleanup runs after failures too."""
    last: bool = False
    """The stage cleans up: it gets its full time even if the other stages have used up the budget."""


class Verdict(enum.StrEnum):
    """Outcome of a stage."""

    PASSED = "passed"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED OUT"
    SKIPPED = "skipped"


@dataclass
class Result:
    """Result of one stage."""

    verdict: Verdict
    seconds: float = 0.0
    note: str = ""


@dataclass
class _Run:
    """State shared by the lanes."""

    stages: Sequence[Stage]
    deadline: float
    results: dict[str, Result] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    stopping: bool = False

    def finish(self, name: str, result: Result) -> None:
        with self.changed:
            self.results[name] = result
            self.changed.notify_all()


def run(stages: Sequence[Stage], *, budget_minutes: float) -> bool:
    """Run all stages, print the table of results, and return whether all passed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    # Stages run in their own sessions, so they would outlive this program if SIGTERM ended it directly.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    state = _Run(stages=stages, deadline=started + budget_minutes * 60)
    lanes = list(dict.fromkeys(stage.lane for stage in stages))
    threads = [threading.Thread(target=_run_lane, args=(state, lane), daemon=True) for lane in lanes]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        _stop_all(state)
        raise
    _report(state, time.monotonic() - started)
    return all(result.verdict is Verdict.PASSED for result in state.results.values())


def _run_lane(state: _Run, lane: str) -> None:
    for stage in state.stages:
        if stage.lane == lane:
            obstacle = _wait_for_others(state, stage)
            if obstacle:
                _print(f"{stage.name}: skipped, {obstacle}")
                state.finish(stage.name, Result(Verdict.SKIPPED, note=obstacle))
            else:
                state.finish(stage.name, _run_stage(state, stage))


def _wait_for_others(state: _Run, stage: Stage) -> str:
    """Wait until the stage can run. Return the reason if it cannot run at all."""
    names = {other.name for other in state.stages}
    needed = [name for name in stage.after if name in names]
    awaited = [name for name in (*stage.after, *stage.after_end_of) if name in names]
    started = time.monotonic()
    with state.changed:
        while True:
            if bad := [
                name for name in needed if name in state.results and state.results[name].verdict is not Verdict.PASSED
            ]:
                return f"needs {', '.join(bad)}"
            missing = [name for name in awaited if name not in state.results]
            if not missing:
                return "the run was stopped" if state.stopping else ""
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
    seconds = stage.minutes * 60 if stage.last else max(1.0, min(stage.minutes * 60, state.deadline - started))
    command = stage.command if shown else ("nice", "-n", "5", *stage.command)
    with log_path.open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        state.processes[stage.name] = process
        timed_out = threading.Event()
        watchdog = threading.Timer(seconds, _end_at_deadline, (process, timed_out))
        watchdog.daemon = True
        watchdog.start()
        note = _copy_output(process, log, shown=shown)
        code = process.wait()
        watchdog.cancel()
        del state.processes[stage.name]
    took = time.monotonic() - started
    if code == 0 and not timed_out.is_set():
        _print(f"{stage.name}: passed in {_clock(took)}")
        return Result(Verdict.PASSED, took, note)
    if not shown:
        _show_tail(log_path)
    verdict = Verdict.TIMED_OUT if timed_out.is_set() else Verdict.FAILED
    _print(f"{stage.name}: {verdict} after {_clock(took)}, exit code {code}, full log: {log_path.relative_to(ROOT)}")
    return Result(verdict, took, note or f"exit code {code}")


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


def _end_at_deadline(process: subprocess.Popen[str], timed_out: threading.Event) -> None:
    timed_out.set()
    end_group(process)


def end_group(process: subprocess.Popen[str]) -> None:
    """End the session of a stage with SIGTERM, then with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        try:
            os.killpg(process.pid, number)
            process.wait(KILL_GRACE_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def _stop_all(state: _Run) -> None:
    state.stopping = True
    for process in list(state.processes.values()):
        end_group(process)


def _show_tail(path: Path) -> None:
    lines = path.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    print(f"---- end of {path.relative_to(ROOT)}\n" + "\n".join(lines) + "\n----", flush=True)


def _report(state: _Run, seconds: float) -> None:
    width = max(len(stage.name) for stage in state.stages)
    print("\n" + "stage".ljust(width) + "  result     time", flush=True)
    for stage in state.stages:
        result = state.results.get(stage.name, Result(Verdict.SKIPPED, note="not started"))
        lane = "" if stage.lane == MAIN else f"[{stage.lane}] "
        row = f"{stage.name.ljust(width)}  {result.verdict:<9}  {_clock(result.seconds):>5}  {lane}{result.note}"
        print(row.rstrip(), flush=True)
    passed = sum(result.verdict is Verdict.PASSED for result in state.results.values())
    print(f"{passed} of {len(state.stages)} stages passed in {_clock(seconds)}", flush=True)
    for name, result in state.results.items():
        if result.verdict in (Verdict.FAILED, Verdict.TIMED_OUT):
            _print_errors(LOGS / f"{name}.log")


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
