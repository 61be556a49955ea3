"""Prints the judgement as a table for people, or as JSON, and chooses the exit code."""

from __future__ import annotations

import json
import os
import shlex
import sys
import textwrap
from collections.abc import Mapping

from rljob_runtime.contract import ExitCode
from rljob_runtime.image_check.deep.plan import environment, plan
from rljob_runtime.image_check.deep.rows import judge_deep
from rljob_runtime.image_check.deep.run import run
from rljob_runtime.image_check.facts import Judgement, Launcher, Row, Verdict
from rljob_runtime.image_check.gather import gather
from rljob_runtime.image_check.judge import judge
from rljob_runtime.image_check.requirements import VERL
from rljob_runtime.image_check.verl_choice import choice_for

DEGRADED_EXIT = 3
"""Exit code of `check-image` for an image with a loss or untried. Not one of `ExitCode`: no run ends with it."""
WIDTH = 118


def check_image(launcher: Launcher, output: str, *, deep: bool, environ: Mapping[str, str] = os.environ) -> int:
    """Check the image of this process, print the result, and return the exit code for one launcher."""
    facts = gather(environ=environ)
    judgement = judge(facts)
    if deep:
        planned = plan(facts)
        # Also in an image that is refused: what else it lacks is worth knowing before the next one is built.
        variables = {**environ, **choice_for(judgement).environment(environ)}
        outcomes = run([each.module for each in planned], environment(facts, variables), say)
        judgement = judge_deep(facts, planned, outcomes)
    print(as_json(judgement) if output == "json" else as_text(judgement))  # noqa: T201 - its only purpose
    return exit_code(judgement.verdict(launcher))


def say(text: str) -> None:
    """Print a line of progress. Standard output is for the result."""
    print(f"rljob: {text}", file=sys.stderr, flush=True)  # noqa: T201 - its only purpose


def exit_code(verdict: Verdict) -> int:
    """Return 0, 3 or 64."""
    codes: dict[Verdict, int] = {Verdict.FITS: ExitCode.DONE, Verdict.REFUSED: ExitCode.BAD_CONFIG}
    return codes.get(verdict, DEGRADED_EXIT)


def headline(judgement: Judgement, launcher: Launcher) -> str:
    """Return the verdict for a launcher in words."""
    verdict = judgement.verdict(launcher)
    if launcher is Launcher.VERL and judgement.injects_verl and verdict is not Verdict.REFUSED:
        return f"{verdict} with the injected verl {VERL}"
    return verdict.value


def as_text(judgement: Judgement) -> str:
    """Return the table, and below it one paragraph for each launcher."""
    # Seams that are as expected would fill the screen.
    shown = [row for row in judgement.rows if ":" not in row.subject or _worst(row) is not Verdict.FITS]
    width = max(len(row.subject) for row in shown)
    lines = [f"{'':<{width}}  verdict   seen"]
    lines += [f"{row.subject:<{width}}  {_worst(row):<8}  {row.seen}" for row in shown]
    lines.append(f"{len(judgement.rows) - len(shown)} seams are as expected")
    for launcher in Launcher:
        lines += ["", f"launcher {launcher}: {headline(judgement, launcher)}"]
        for reason in judgement.reasons(launcher):
            lines += textwrap.wrap(reason, WIDTH, initial_indent="  - ", subsequent_indent="    ")
        if wanted := judgement.install(launcher):
            lines.append(f"  pip install {shlex.join(wanted)}")
    return "\n".join(lines)


def as_json(judgement: Judgement) -> str:
    """Return all rows, and for each launcher its verdict and the reasons."""
    return json.dumps(
        {
            "launchers": {
                launcher.value: {
                    "verdict": judgement.verdict(launcher),
                    "headline": headline(judgement, launcher),
                    "reasons": list(judgement.reasons(launcher)),
                    "install": list(judgement.install(launcher)),
                }
                for launcher in Launcher
            },
            "injectsVerl": judgement.injects_verl,
            "rows": [
                {
                    "subject": row.subject,
                    "seen": row.seen,
                    "verdicts": dict(row.verdicts),
                    "message": row.message,
                }
                for row in judgement.rows
            ],
        },
        indent=2,
    )


def _worst(row: Row) -> Verdict:
    return max(row.verdicts.values(), key=list(Verdict).index)
