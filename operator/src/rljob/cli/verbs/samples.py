"""`rljob samples`: what the model answers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rljob.cli import output
from rljob.cli.arguments import Commands, Parser, job_command, step
from rljob.cli.errors import UsageError
from rljob.cli.verbs.report import add_sources, gather

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rljob.reading.samples import Recorded, SampleFile

SHORT = 600
"""Characters of a prompt and of an answer, where several are shown."""
INDENT = "    "
RECORDS = "observability.samples says which steps of a job that trains are recorded"
VALIDATES = "validations come with trainer.evaluateEverySteps, and observability.samples says what is recorded"


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = job_command(
        commands,
        "samples",
        "show recorded answers of the model with prompt and score; `-o json` has all that was recorded of them",
        _samples,
        reads_spec=True,
        outputs=(*output.FORMS, output.CSV),
        examples=(
            ("samples sums", "show the answers of the newest recorded step, the best first"),
            ("samples sums --step 40 --worst", "show the answer of step 40 with the lowest score, in full"),
            ("samples sums --validation -o csv", "export those of the newest validation"),
        ),
    )
    made.add_argument("--step", type=step, metavar="N", help="a recorded step; default: the newest one")
    made.add_argument("--validation", action="store_true", help="answers of a validation; default: of the rollout")
    which = made.add_mutually_exclusive_group()
    which.add_argument("--best", action="store_true", help="only the answer with the highest score")
    which.add_argument("--worst", action="store_true", help="only the answer with the lowest score")
    which.add_argument("--longest", action="store_true", help="only the longest answer")
    add_sources(made, prometheus=False)


def _samples(chosen: argparse.Namespace) -> int:
    from rljob.cli.report.run import Wanted
    from rljob.reading.samples import best_first, of_step, row
    from rljob_runtime.contract import SampleSource

    source = SampleSource.VALIDATION if chosen.validation else None

    def choose(found: list[SampleFile]) -> list[SampleFile]:
        try:
            return of_step(found, chosen.step, source)
        except LookupError as error:
            hint = VALIDATES if chosen.validation else RECORDS
            raise UsageError(f"{chosen.name}: {error}; {hint}") from error

    run = gather(chosen, Wanted(steps=False, samples=choose))
    found = _only(chosen, best_first(run.samples))
    if not found:
        why = "no answer of this step has a score" if run.samples else f"no answer is recorded ({run.source})"
        raise UsageError(f"{chosen.name}: {why}; {RECORDS}")
    if chosen.output in output.DATA:
        place = {"namespace": run.namespace, "job": run.name}
        print(output.data_page([place | {"samples": [row(each) for each in found]}], chosen.output))
    elif chosen.output == output.CSV:
        print(_csv(found))
    else:
        print(page(found, whole=len(found) == 1 or chosen.output == output.WIDE))
    return 0


def _only(chosen: argparse.Namespace, found: list[Recorded]) -> list[Recorded]:
    """Return the answers that are asked for, of those in the order of their scores."""
    scored = [each for each in found if each.sample.score is not None]
    if chosen.best:
        return scored[:1]
    if chosen.worst:
        return scored[-1:]
    if chosen.longest:
        return sorted(found, key=lambda each: each.sample.tokens or len(each.sample.answer))[-1:]
    return found


def _csv(found: Sequence[Recorded]) -> str:
    import csv
    import io
    import json

    from rljob.reading.samples import row

    rows = [row(each) | {"parts": json.dumps(each.sample.parts, ensure_ascii=False)} for each in found]
    text = io.StringIO()
    made = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    made.writeheader()
    made.writerows(rows)
    return text.getvalue().rstrip("\n")


def page(found: Sequence[Recorded], *, whole: bool) -> str:
    """Return answers below each other, each with a line of what is known of it."""
    return "\n\n".join(_shown(each, whole=whole) for each in found)


def _shown(each: Recorded, *, whole: bool) -> str:
    from rljob.reading.samples import facts
    from rljob_runtime.contract.samples import shortened

    sample = each.sample
    lines = [facts(each)]
    for label, text in (("prompt", sample.prompt), ("answer", sample.answer), ("right", sample.reference)):
        if text is not None:
            first, *more = (text if whole else shortened(text, SHORT)).strip("\n").split("\n")
            lines += (
                [f"  {label}  {first}"] if not more else [f"  {label}", *(f"{INDENT}{line}" for line in (first, *more))]
            )
    return "\n".join(lines)
