"""Run the stages of `make test`: lanes side by side, each lane in order, every stage with a deadline and a log.

`scripts.test` holds the table and calls `run`. The lane MAIN is shown as it goes; the others write to their logs only,
and only the end of a log that failed is shown. A stage runs when all that it comes after passed; what cannot run is
skipped and the rest goes on, so that one run tells all that is broken. Processes are started in sessions of their own
and only those are ever ended.
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
WHY_LINES = 80
KILL_GRACE_SECONDS = 20.0
# Of pytest's output: the errors, where they were raised, and the rows of its short summary.
_WHY = re.compile(r"^(?:E {3}|(?:FAILED|ERROR) |\S+\.py:\d+: )")
# pytest's last line: "==== 3 passed, 1 skipped in 0.12s ====".
_CLOSING = re.compile(r"^=+ (?P<text>.*\b(?:passed|failed|error|errors|skipped|deselected|no tests ran)\b.*) =+$")


@dataclass(frozen=True)
class Stage:
    """One command of the test run."""

    name: str
    what: str
    command: tuple[str, ...]
    minutes: float
    """Deadline, counted from the start of the stage."""
    lane: str = MAIN
    after: tuple[str, ...] = ()
    """Stages that must have passed."""
    settles: tuple[str, ...] = ()
    """Stages that must have ended, in whatever way: what cleans up runs after a failure too."""
    last: bool = False
    """Cleans up: it gets its minutes even when the others have used up the budget."""


class Verdict(enum.StrEnum):
    """How a stage ended."""

    PASSED = "passed"
    FAILED = "FAILED"
    LATE = "TOO LATE"
    SKIPPED = "skipped"


@dataclass
class Result:
    """The end of one stage."""

    verdict: Verdict
    seconds: float = 0.0
    note: str = ""


@dataclass
class _Run:
    """The state that lanes share."""

    stages: Sequence[Stage]
    deadline: float
    results: dict[str, Result] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    stopping: bool = False

    def settle(self, name: str, result: Result) -> None:
        with self.changed:
            self.results[name] = result
            self.changed.notify_all()


def run(stages: Sequence[Stage], *, budget_minutes: float) -> bool:
    """Run all stages and print the table of results; whether all passed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    # Who ends this program means its stages too: they have sessions of their own and would go on.
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
            broken = _wait_for_others(state, stage)
            if broken:
                _say(f"{stage.name}: skipped, {broken}")
                state.settle(stage.name, Result(Verdict.SKIPPED, note=broken))
            else:
                state.settle(stage.name, _run_stage(state, stage))


def _wait_for_others(state: _Run, stage: Stage) -> str:
    """Wait until the stage may run; the reason when it never may."""
    names = {other.name for other in state.stages}
    needed = [name for name in stage.after if name in names]
    settled = [name for name in (*stage.after, *stage.settles) if name in names]
    started = time.monotonic()
    with state.changed:
        while True:
            if bad := [
                name for name in needed if name in state.results and state.results[name].verdict is not Verdict.PASSED
            ]:
                return f"needs {', '.join(bad)}"
            missing = [name for name in settled if name not in state.results]
            if not missing:
                return "the run was stopped" if state.stopping else ""
            if not state.changed.wait(HEARTBEAT_SECONDS) and stage.lane == MAIN:
                _say(f"{stage.name}: waits for {', '.join(missing)} ({_clock(time.monotonic() - started)})")


def _run_stage(state: _Run, stage: Stage) -> Result:
    shown = stage.lane == MAIN
    log_path = LOGS / f"{stage.name}.log"
    _say(f"{stage.name}: {stage.what}" + ("" if shown else f" (in the background, {log_path.relative_to(ROOT)})"))
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
        late = threading.Event()
        watchdog = threading.Timer(seconds, _end_late, (process, late))
        watchdog.daemon = True
        watchdog.start()
        note = _copy_output(process, log, shown=shown)
        code = process.wait()
        watchdog.cancel()
        del state.processes[stage.name]
    took = time.monotonic() - started
    if code == 0 and not late.is_set():
        _say(f"{stage.name}: passed in {_clock(took)}")
        return Result(Verdict.PASSED, took, note)
    if not shown:
        _show_tail(log_path)
    verdict = Verdict.LATE if late.is_set() else Verdict.FAILED
    _say(f"{stage.name}: {verdict} after {_clock(took)}, exit code {code}, whole log {log_path.relative_to(ROOT)}")
    return Result(verdict, took, note or f"exit code {code}")


def _copy_output(process: subprocess.Popen[str], log: TextIO, *, shown: bool) -> str:
    """Copy the output to the log, and to the terminal if shown; pytest's closing line, if there was one."""
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


def _end_late(process: subprocess.Popen[str], late: threading.Event) -> None:
    late.set()
    _end_group(process)


def _end_group(process: subprocess.Popen[str]) -> None:
    """End the session that we started: politely, then for good."""
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
        _end_group(process)


def _show_tail(path: Path) -> None:
    lines = path.read_text(errors="replace").splitlines()[-TAIL_LINES:]
    print(f"---- end of {path.relative_to(ROOT)}\n" + "\n".join(lines) + "\n----", flush=True)


def _report(state: _Run, seconds: float) -> None:
    width = max(len(stage.name) for stage in state.stages)
    print("\n" + "stage".ljust(width) + "  result     time", flush=True)
    for stage in state.stages:
        result = state.results.get(stage.name, Result(Verdict.SKIPPED, note="never began"))
        lane = "" if stage.lane == MAIN else f"[{stage.lane}] "
        row = f"{stage.name.ljust(width)}  {result.verdict:<9}  {_clock(result.seconds):>5}  {lane}{result.note}"
        print(row.rstrip(), flush=True)
    passed = sum(result.verdict is Verdict.PASSED for result in state.results.values())
    print(f"{passed} of {len(state.stages)} stages passed in {_clock(seconds)}", flush=True)
    for name, result in state.results.items():
        if result.verdict in (Verdict.FAILED, Verdict.LATE):
            _tell_why(LOGS / f"{name}.log")


def _tell_why(path: Path) -> None:
    """Repeat why a stage failed: its own words are far above the table, and often cut off by who keeps the output."""
    lines = path.read_text(errors="replace").splitlines()
    why = list(dict.fromkeys(line for line in lines if _WHY.match(line)))
    shown = why if len(why) <= WHY_LINES else [*why[: WHY_LINES // 2], "...", *why[-WHY_LINES // 2 :]]
    shown = shown or lines[-WHY_LINES:]
    print(f"---- why, of {path.relative_to(ROOT)}\n" + "\n".join(shown) + "\n----", flush=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)
