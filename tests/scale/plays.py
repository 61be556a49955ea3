"""The course of virtual runs: their number of steps, what they have saved when interrupted, and how they end.

A run reports like `rljob_runtime`: the contract's types, its exit codes and messages. A job saves every step, so
another cluster of the same job resumes at the last complete step.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rljob_runtime.contract import ExitCode, Outcome, Phase, Progress

START_SECONDS = 2.0
"""Time from the submission to the start of the first step."""
ENDLESS = 1_000_000
"""Steps of a run that does not end by itself."""
REWARD_STEPS = 500
"""The reward rises over this many steps."""
FAILURES = {
    ExitCode.FAILED: ("RunFailed", "RuntimeError: HCCL: the notify wait timed out"),
    ExitCode.BAD_CONFIG: ("BadConfig", "Key 'actor.optim.lrate' is not in struct"),
    ExitCode.ENVIRONMENT: ("NodeLost", "a node died under the run"),
}


@dataclass(frozen=True)
class Failure:
    """A driver failure that occurs once."""

    code: ExitCode
    at_step: int


@dataclass(frozen=True)
class Play:
    """The course of a job's runs."""

    steps: int
    step_seconds: float
    failure: Failure | None = None


@dataclass
class Book:
    """The content of a job's volume over all of its attempts."""

    saved_step: int = 0
    failed: bool = False


@dataclass
class Run:
    """One submission to one head."""

    pod_uid: str
    submission_id: str
    attempt: int
    came: float
    """Unix time."""
    play: Play
    book: Book
    first: int = field(init=False)
    """The step from which it resumed."""
    _has_failed: bool = False
    _stopped: float | None = None

    def __post_init__(self) -> None:
        """Resume from the saved step."""
        self.first = self.book.saved_step

    def stop(self, now: float) -> None:
        """End after the current step."""
        self._stopped = now

    def progress(self, now: float) -> Progress:
        """Return the progress that the exporter reports at a time, and save completed steps."""
        began = self.came + START_SECONDS
        last, outcome = self._end()
        if self._stopped is not None:
            at = self.first + max(0, int((self._stopped - began) / self.play.step_seconds))
            if at < last:
                last = at
                outcome = Outcome(int(ExitCode.STOPPED), "Stopped", f"stopped after step {at}", last_step=at)
        step = min(self.first + max(0, int((now - began) / self.play.step_seconds)), last)
        ended = step == last and now >= began
        done = step - self.first
        self.book.saved_step = max(self.book.saved_step, step)
        if ended and outcome.exit_code not in (ExitCode.DONE, ExitCode.STOPPED) and not self._has_failed:
            self._has_failed = self.book.failed = True
        phase = Phase.ENDED if ended else Phase.TRAINING if done else Phase.STARTING
        progress = Progress(
            pod_uid=self.pod_uid,
            phase=phase,
            attempt=self.attempt,
            submission_id=self.submission_id,
            step=step,
            total_steps=self.play.steps,
            observed_time=began + done * self.play.step_seconds,
            start_time=self.came,
            outcome=outcome if ended else None,
        )
        return self._with_figures(progress) if done else progress

    def _end(self) -> tuple[int, Outcome]:
        failure = self.play.failure
        due = self._has_failed or not self.book.failed
        if failure is None or not due or failure.at_step <= self.first:
            steps = self.play.steps
            return steps, Outcome(int(ExitCode.DONE), "Completed", f"trained {steps} steps", last_step=steps)
        reason, message = FAILURES[failure.code]
        return failure.at_step, Outcome(int(failure.code), reason, message, last_step=failure.at_step)

    def _with_figures(self, progress: Progress) -> Progress:
        return replace(
            progress,
            first_step=self.first + 1,
            checkpoint_step=progress.step,
            checkpoint_time=progress.observed_time,
            resumed_from_step=self.first,
            reward=min(progress.step / REWARD_STEPS, 1.0),
            response_tokens_mean=4096.0,
            tokens_per_second_per_card=850.5,
            first_dp_idle_ratio=0.05,
            cluster_idle_ratio=0.12,
            step_seconds=self.play.step_seconds,
        )
