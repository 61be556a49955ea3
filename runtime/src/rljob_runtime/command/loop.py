"""Run one attempt of a command to its end: start it, record its steps and saves, stop it.

The loop runs in the launcher's main thread. It never waits for the command: what the command writes is taken in small
parts, so a stop is seen within a second.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Protocol

from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.command import attempt_folders, placeholders, progress
from rljob_runtime.command.lines import FileTail
from rljob_runtime.command.process import Child
from rljob_runtime.command.progress import Parser, StepReport
from rljob_runtime.command.retention import Retention
from rljob_runtime.command.saved_watch import SavedWatch
from rljob_runtime.command.tensorboard import EventTail
from rljob_runtime.contract import (
    CommandConfig,
    CommandStop,
    JobConfig,
    Placeholder,
    ProgressSource,
    StartStage,
    StopMode,
)
from rljob_runtime.spool.step_metrics import VERL_TOKENS, Batch, RolloutWindow
from rljob_runtime.spool.stop_rules import Match, StopRules
from rljob_runtime.trainer import Result, Setup
from rljob_runtime.training_attempt import TrainingAttempt

POLL_SECONDS = 0.5
PROGRESS_PATH = "progress.path"
LAST_POLLS = 64
"""Polls of the file of records after the end of the command, each of at most lines.POLL_BYTES."""
MATCH_SECONDS = 1.0
"""CPU time of a match of the user's pattern, which would otherwise block the launcher."""
SLOW_MATCHES = 3
"""After these, the pattern is not used any more."""
TOKEN_KEYS = frozenset({VERL_TOKENS, "prompt_length/mean", "response_length/mean"})
"""What step_metrics.compute needs."""


class SlowPatternError(Exception):
    """Matching the pattern exceeded its time limit."""


class Tail(Protocol):
    """The steps in files that the command writes."""

    @property
    def offset(self) -> int:
        """Return the number of bytes that were read or skipped."""

    def poll(self) -> Iterable[StepReport | None]:
        """Return the steps since the last poll; None for what is not a step."""

    def rest(self) -> Iterable[StepReport | None]:
        """Return what may be incomplete until the command has ended."""


class ParsedTail:
    """The steps in the lines of one file."""

    def __init__(self, tail: FileTail, parse: Parser) -> None:
        self._tail, self._parse = tail, parse

    @property
    def offset(self) -> int:
        """See `Tail`."""
        return self._tail.offset

    def poll(self) -> Iterable[StepReport | None]:
        """See `Tail`."""
        return [self._parse(line) for line in self._tail.poll()]

    def rest(self) -> Iterable[StepReport | None]:
        """See `Tail`."""
        return [self._parse(self._tail.rest())]


class Loop:
    """One attempt of a command."""

    def __init__(self, setup: Setup, command: CommandConfig, start: Start, environ: Mapping[str, str]) -> None:
        job = setup.job
        self._job, self._command, self._start = job, command, start
        self._environ = environ
        self._attempt = TrainingAttempt(job, setup.attempt, setup.spool)
        self._folder = attempt_folders.folder_of(job, setup.attempt)
        self._values = placeholders.values_of(job, setup.attempt, start, self._folder)
        self._rules = StopRules(job.stop_rules)
        self._parse: Parser | None = None if command.progress is None else progress.parser_of(command.progress)
        self._slow = 0
        self._step = start.step
        self._recorded: float | None = None
        """Time of the last record."""
        self._records: Path | None = None
        """File or folder from which steps are learned."""
        self._asked: StopMode | None = None
        self._matched: Match | None = None
        self._shown: Path | None = None
        """The saved step that was reported last."""

    def run(self) -> Result:
        """Run the command to its end. Raises CommandFailedError if it fails."""
        try:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
            stop_file = stop_file_of(self._command, self._values)
            if stop_file is not None:
                stop_file.unlink(missing_ok=True)  # of an earlier attempt in this pod
            tail, watch = self._tail(), self._watch()
            self._attempt.resumed(self._start.step)
            return self._run(stop_file, tail, watch)
        finally:
            self._attempt.close()

    def _run(self, stop_file: Path | None, tail: Tail | None, watch: SavedWatch | None) -> Result:
        args = placeholders.arguments(self._command, self._values)
        reads = self._parse is not None and tail is None
        child = Child(args, self._command.working_dir, self._environ, reads=reads)
        # Only the command knows whether there is something to save, so every stop is passed on to it.
        self._attempt.spool.note_begun(self._attempt.attempt)
        status = None
        try:
            while (status := child.poll()) is None:
                self._report_start(tail)
                self._read(child, self._parsed(child.lines(POLL_SECONDS)), stop_file)
                self._read(child, tail.poll() if tail is not None else (), stop_file)
                self._obey(child, stop_file)
                self._show_saved(watch)
        finally:
            rest = list(child.close())
        self._read(child, self._parsed(rest), stop_file)
        self._read(child, _rest_of(tail), stop_file)
        if watch is not None:
            watch.finish()
        self._show_saved(watch)
        return self._result(child, status)

    def _report_start(self, tail: Tail | None) -> None:
        """Report, until a step is recorded, whether what steps are learned from exists."""
        if self._recorded is None and self._command.progress is not None:
            waits = tail is not None and self._records is not None and not self._records.exists()
            self._attempt.start.at(StartStage.WAITING_FOR_RECORDS if waits else StartStage.RUNNING_COMMAND)

    def _tail(self) -> Tail | None:
        told = self._command.progress
        if told is None or told.path is None or self._parse is None:
            return None
        path = Path(self._command.working_dir or ".") / placeholders.substitute(told.path, self._values, PROGRESS_PATH)
        self._records = path
        if told.source is ProgressSource.TENSORBOARD:
            return EventTail(path, frozenset((told.metrics or {}).values()))
        return ParsedTail(FileTail(path), self._parse) if told.source is ProgressSource.JSON_LINES else None

    def _watch(self) -> SavedWatch | None:
        layout, keep = self._command.checkpoint, None
        if self._job.checkpoint_path is None or layout is None or self._folder is None:
            return None
        if layout.keep:
            keep = Retention(layout.keep, self._folder, self._attempt.check_owner)
        return SavedWatch(Path(self._job.checkpoint_path), layout, keep)

    def _read(self, child: Child, reports: Iterable[StepReport | None], stop_file: Path | None) -> None:
        for report in reports:
            if report is None or self._matched is not None or not progress.is_next(report, self._step):
                continue
            self._matched = self._record(report)
            if self._matched is not None:
                how = CommandStop.NONE if self._matched.breaks_weights() else self._command.stop
                child.stop(how, stop_file, self._command.stop_seconds)

    def _parsed(self, lines: Iterable[str]) -> Iterator[StepReport | None]:
        return (self._parsed_line(line) for line in lines)

    def _parsed_line(self, line: str) -> StepReport | None:
        if self._parse is None:
            return None
        told = self._command.progress
        if told is None or told.source is not ProgressSource.PATTERN:
            return self._parse(line)
        try:
            with cpu_limit(MATCH_SECONDS):
                return self._parse(line)
        except SlowPatternError:
            self._slow += 1
            ends = self._slow >= SLOW_MATCHES
            self._parse = None if ends else self._parse
            self._attempt.note(
                f"launcher.command.progress.pattern took more than {MATCH_SECONDS:g} s for one line; "
                + ("it is not used any more, so no further step is recorded" if ends else "the line is skipped")
            )
            return None

    def _record(self, report: StepReport) -> Match | None:
        """Record a step. Return the stop rule that it matches, if any."""
        now = time.monotonic()
        steps, since = report.step - self._step, self._recorded
        names = self._command.progress.metrics if self._command.progress is not None else None
        seconds = None if since is None else (now - since) / steps
        metrics = progress.figures(report.metrics, names, seconds, self._job.cards)
        if metrics.keys() >= TOKEN_KEYS:
            metrics |= self._attempt.own_metrics(metrics, RolloutWindow(), Batch())
        self._step, self._recorded = report.step, now
        self._attempt.record(report.step, metrics)
        # After the record: the first step's time contains the start of the command.
        self._attempt.step_began()
        match = self._rules.observe(report.step, metrics)
        for warning in self._rules.warnings(metrics):
            self._attempt.note(warning)
        return match

    def _obey(self, child: Child, stop_file: Path | None) -> None:
        mode = self._attempt.stop_mode()
        if mode is not None:
            self._asked = mode
            child.stop(self._command.stop, stop_file, self._command.stop_seconds)

    def _show_saved(self, watch: SavedWatch | None) -> None:
        if watch is None or watch.found is None or watch.found[0].path == self._shown:
            return
        saved, size = watch.found
        self._shown = saved.path
        self._attempt.spool.update_progress(
            checkpoint_step=saved.step, checkpoint_time=saved.time, checkpoint_bytes=size
        )
        print(f"rljob: step {saved.step} is saved in {saved.path}", flush=True)  # noqa: T201

    def _result(self, child: Child, status: int) -> Result:
        total = self._job.total_steps
        if self._matched is not None:
            return Result(self._step, matched=self._matched)
        if self._asked is not None and (status != 0 or not 0 < total <= self._step):
            return Result(self._step, self._asked)
        if status != 0:
            if self._recorded is None:
                child.require_started(status)
            raise child.failure(status)
        if self._recorded is not None and self._step < total:
            self._attempt.note(f"the command ended by itself after step {self._step} of {total}")
        return Result(self._step)


def stop_file_of(command: CommandConfig, values: Mapping[Placeholder, str]) -> Path | None:
    """Return the file that asks the command to stop; None if it is asked in another way."""
    if command.stop is not CommandStop.FILE or command.stop_file is None:
        return None
    file = placeholders.substitute(command.stop_file, values, "stop.file")
    return Path(command.working_dir or ".") / file


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Raise SlowPatternError after this CPU time. For the main thread; `re` checks for signals while it matches."""

    def abort(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signal module's signature
        raise SlowPatternError

    before = signal.signal(signal.SIGVTALRM, abort)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def require(job: JobConfig, command: CommandConfig, attempt: int) -> None:
    """Raise RefusedError (exit 64) for a command that can never run, before the cluster is waited for."""
    if command.progress is not None:
        progress.parser_of(command.progress)
        needed = {
            ProgressSource.JSON_LINES: "the file of the records",
            ProgressSource.TENSORBOARD: "the folder of its events",
        }
        if command.progress.source in needed and not command.progress.path:
            source = command.progress.source
            raise placeholders.refused(f"progress.path is missing; {source.value} needs {needed[source]}")
    if command.checkpoint is not None:
        attempt_folders.require_layout(command.checkpoint)
    if not command.args:
        raise placeholders.refused("args is empty; give the program and its arguments")
    if command.stop is CommandStop.FILE and not command.stop_file:
        raise placeholders.refused("stop.file is missing; mode File needs the file that the launcher creates")
    folder = attempt_folders.folder_of(job, attempt)
    for start in (Start(), Start(Path(os.sep), 0)):
        values = placeholders.values_of(job, attempt, start, folder)
        placeholders.arguments(command, values)
    values = placeholders.values_of(job, attempt, Start(), folder)
    stop_file_of(command, values)
    if command.progress is not None and command.progress.path:
        placeholders.substitute(command.progress.path, values, PROGRESS_PATH)


def _rest_of(tail: Tail | None) -> Iterator[StepReport | None]:
    if tail is None:
        return
    for _ in range(LAST_POLLS):
        offset = tail.offset
        yield from tail.poll()
        if tail.offset == offset:
            break
    yield from tail.rest()
