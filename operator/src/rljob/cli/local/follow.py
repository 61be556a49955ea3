"""One attempt of a local run, from the start of the launcher to its end: progress, Ctrl-C, deadlines.

The launcher writes progress into the spool and reads stop requests there, as it does in a pod. There is no exporter,
because both are on one machine.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import FrameType

from rljob.api.lifecycle import Deadlines, Stop
from rljob.cli.local.folder import JobFolder, write
from rljob.cli.local.processes import Child
from rljob.cli.progress_line import Line, progress_line
from rljob.core import start_message, times
from rljob.core.attempts.sanitize import plausible
from rljob.core.status import metric
from rljob_runtime.contract import (
    COLLECT_SECONDS,
    STALL_SECONDS,
    ContractError,
    Outcome,
    Phase,
    Progress,
    SpoolFile,
    StartProgress,
    StopMode,
    StopRequest,
)

POLL_SECONDS = 0.3
IMMEDIATE_SECONDS = 20.0
"""The launcher checks for an immediate stop every second and then only has to disconnect from Ray."""
STALLED_SECONDS = IMMEDIATE_SECONDS + STALL_SECONDS + COLLECT_SECONDS
AT_ONCE = (StopMode.IMMEDIATE, StopMode.STALLED)
IMPATIENT = 2
"""Number of interrupts after which not even the launcher's own immediate stop is waited for."""
STARTING = "starting Ray, the trainer and the rollout engine; the first step takes a minute or two"
RESUMING = "resuming from step {step}"


class Interrupts:
    """Counts Ctrl-C and similar signals; the main loop handles them where it is safe."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def caught(self) -> Iterator[Interrupts]:
        """Catch the signals in this context."""

        def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signal module's signature
            self.count += 1

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, note) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass
class Attempt:
    """A running launcher and the requests sent to it."""

    folder: JobFolder
    number: int
    child: Child
    stop: Stop
    deadlines: Deadlines
    steps_are_seen: bool = True
    """False for a command without progress, whose steps have no deadline."""
    begun: float = field(default_factory=time.monotonic)
    asked: StopMode | None = None
    asked_at: float = 0.0
    overdue: str = ""
    """The deadline that ended the attempt."""
    stalled: bool = False
    """Whether that deadline was the one between two steps, for which the launcher saves the stacks."""

    def progress(self) -> Progress | None:
        """Read the progress of this attempt; return None until the launcher has written it."""
        with contextlib.suppress(OSError, ContractError):
            found = Progress.from_json((self.folder.spool / SpoolFile.CURRENT).read_bytes())
            if found.attempt == self.number:
                return plausible(self._with_start(found), datetime.now(UTC))
        return None

    def _with_start(self, found: Progress) -> Progress:
        """Add what the start is doing, as the exporter does (rljob_runtime/spool/spool.py)."""
        if found.phase is Phase.STARTING:
            with contextlib.suppress(OSError, ContractError):
                content = (self.folder.attempt(self.number) / SpoolFile.START).read_bytes()
                return replace(found, start=StartProgress.from_json(content))
        return found

    def ask(self, mode: StopMode) -> None:
        """Write a stop request."""
        self.asked, self.asked_at = mode, time.monotonic()
        write(self.folder.attempt(self.number) / SpoolFile.STOP, StopRequest(self.number, mode).to_json())


def follow(attempt: Attempt, interrupts: Interrupts, line: Line) -> Progress | None:
    """Wait for the end of the launcher and return its last progress."""
    shown: tuple[str, int, str | None] = ("", -1, None)
    while attempt.child.exit_code is None:
        progress = attempt.progress()
        _hold_deadlines(attempt, progress)
        _pass_on(attempt, progress, interrupts)
        state, step = _state(attempt, progress), progress.step if progress else 0
        text = progress_line(time.monotonic() - attempt.begun, state, *_displayed(attempt, progress))
        stage = progress.start.stage if progress is not None and progress.start is not None else None
        moved = state != shown[0] or (step != shown[1] and step == 1) or stage != shown[2]
        line.draw(text, important=moved)
        shown = (state, step, stage)
        time.sleep(POLL_SECONDS)
    progress = attempt.progress()
    if progress is not None and progress.step:
        line.draw(progress_line(time.monotonic() - attempt.begun, "Ended", figures(progress)), important=True)
    line.end()
    return progress


def _pass_on(attempt: Attempt, progress: Progress | None, interrupts: Interrupts) -> None:
    """Turn interrupts into stop requests, and end a launcher that does not stop in time."""
    trains = progress is not None and progress.phase is Phase.TRAINING
    waited = time.monotonic() - attempt.asked_at
    if attempt.asked in AT_ONCE:
        bound = STALLED_SECONDS if attempt.asked is StopMode.STALLED else IMMEDIATE_SECONDS
        if waited > bound or interrupts.count > IMPATIENT:
            attempt.child.end(0)
    elif attempt.stalled:
        attempt.ask(StopMode.STALLED)
    elif attempt.overdue or interrupts.count > 1 or (interrupts.count == 1 and not trains and attempt.asked is None):
        # Before its first step an attempt has nothing to save.
        attempt.ask(StopMode.IMMEDIATE)
    elif attempt.asked is not None:
        if waited > attempt.stop.grace_seconds:
            attempt.ask(StopMode.IMMEDIATE)
    elif interrupts.count == 1:
        attempt.ask(StopMode.AFTER_STEP if attempt.stop.mode == "Auto" else StopMode(attempt.stop.mode))


def _hold_deadlines(attempt: Attempt, progress: Progress | None) -> None:
    if attempt.overdue:
        return
    run, deadlines = time.monotonic() - attempt.begun, attempt.deadlines
    if progress is None:
        if run > deadlines.start_seconds:
            attempt.overdue = f"the launcher did not report within deadlines.startSeconds {deadlines.start_seconds}"
    elif deadlines.active_seconds is not None and run > deadlines.active_seconds:
        attempt.overdue = f"deadlines.activeSeconds {deadlines.active_seconds} passed"
    elif attempt.steps_are_seen and time.time() - progress.observed_time > deadlines.progress_seconds:
        attempt.overdue = f"no step within deadlines.progressSeconds {deadlines.progress_seconds}"
        attempt.stalled = True


def _state(attempt: Attempt, progress: Progress | None) -> str:
    if attempt.asked is not None:
        return Phase.STOPPING.value
    return progress.phase.value if progress is not None else Phase.STARTING.value


def _displayed(attempt: Attempt, progress: Progress | None) -> tuple[dict[str, object], str]:
    """Return metrics, or a message until there are any."""
    if attempt.asked is StopMode.STALLED:
        return {}, f"{attempt.overdue}; saving the stacks of every process"
    if attempt.asked is StopMode.IMMEDIATE:
        return {}, "at once"
    if attempt.asked is not None:
        return {}, "saving after the current step; press Ctrl-C again to exit immediately"
    if progress is None:
        return {}, STARTING
    now = datetime.now(UTC)
    if (start := progress.start) is not None:
        said = start_message.words(start.stage, start_message.detail(start))
        return {}, start_message.live(said, times.from_unix(start.begun), now)
    if progress.step == 0:
        return {}, STARTING
    if progress.phase is Phase.STARTING:
        return {}, RESUMING.format(step=progress.step)
    return figures(progress), ""


def figures(progress: Progress) -> dict[str, object]:
    """Return what `status.progress` would hold, with the estimated end as a time of day."""
    pace = progress.median_step_seconds or progress.step_seconds or 0.0
    left = timedelta(seconds=(progress.total_steps - progress.step) * pace)
    shown: dict[str, object] = {
        "step": progress.step,
        "totalSteps": progress.total_steps,
        "reward": metric(progress.reward),
        "tokensPerSecondPerCard": metric(progress.tokens_per_second_per_card),
        "clusterIdleRatio": metric(progress.cluster_idle_ratio),
    }
    if left and progress.phase is Phase.TRAINING:
        shown["eta"] = (datetime.fromtimestamp(progress.observed_time, UTC) + left).astimezone().strftime("%H:%M:%S")
    return shown


def outcome_of(attempt: Attempt, progress: Progress | None) -> Outcome:
    """Return the launcher's own report, or one derived from its exit code."""
    reported = progress.outcome if progress is not None else None
    if attempt.asked is StopMode.STALLED and reported is not None:
        return reported
    if attempt.overdue:
        return Outcome(1, "DeadlineExceeded", attempt.overdue, last_step=progress.step if progress else 0)
    if reported is not None:
        return reported
    code = attempt.child.exit_code or 0
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
    tail = attempt.child.tail(15)
    return Outcome(code or 1, "DriverLost", f"the launcher {how} without a report; its log ends with\n{tail}")
