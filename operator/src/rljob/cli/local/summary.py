"""The summary at the end of a local run: reward curve, metrics, checkpoint and documentation of the run."""

from __future__ import annotations

from collections.abc import Iterator

from rljob.cli.curve import plot
from rljob.cli.errors import UsageError
from rljob.cli.local.folder import JobFolder
from rljob.cli.local.follow import Attempt
from rljob.cli.report.local import local_run
from rljob.cli.report.run import Wanted
from rljob.cli.report.write_report import write_report
from rljob.cli.status import table
from rljob.reading.records import figure_table, figures
from rljob_runtime.contract import ExitCode, Outcome, Progress, SpoolFile

REPORT = "report.html"


def tell_end(
    folder: JobFolder, attempt: Attempt, outcome: Outcome, progress: Progress | None, *, interrupted: bool
) -> None:
    """Print the summary of an attempt."""
    run = local_run(folder.root, Wanted())
    if outcome.exit_code == ExitCode.DONE and (steps := figures(run.records)):
        print()
        print(plot([step.reward for step in steps], title="reward (mean score per step) over steps"), end="\n\n")
        print(table(figure_table(steps)), end="\n\n")
    print(_verdict(outcome, progress, interrupted=interrupted))
    for label, place in _places(folder, attempt, progress):
        print(f"  {label:<12} {place}")
    if run.steps:
        try:
            print(f"  {'report':<12} {write_report(run, folder.root / REPORT)}")
        except UsageError as error:
            print(f"  no report: {error}")


def _verdict(outcome: Outcome, progress: Progress | None, *, interrupted: bool) -> str:
    if outcome.exit_code == ExitCode.DONE:
        return f"done: {outcome.message}"
    saved = progress.checkpoint_step if progress else None
    resume = f"step {saved} is saved; run the same command again to resume" if saved else "no step has been saved"
    if interrupted:
        return f"interrupted after step {outcome.last_step}; {resume}"
    return f"failed: {outcome.reason}: {outcome.message}\n{resume}"


def _places(folder: JobFolder, attempt: Attempt, progress: Progress | None) -> Iterator[tuple[str, object]]:
    yield "records", folder.attempt(attempt.number) / SpoolFile.STEPS
    yield "log", attempt.child.log
    if progress is not None and progress.checkpoint_step:
        state = folder.state()
        yield "checkpoint", f"{state.checkpoint_path}/global_step_{progress.checkpoint_step}"
