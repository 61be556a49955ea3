"""`rljob steps`: the last steps of a run as a table."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rljob.cli import output
from rljob.cli.arguments import Commands, Parser, count, job_command
from rljob.cli.verbs.report import add_sources, gather

if TYPE_CHECKING:
    from rljob.reading.records import Record

STEPS = 10
HEADS = ("STEP", "ATTEMPT", "REWARD", "TIME", "TPS/CARD", "DP IDLE")
WIDE = ("FIRST DP IDLE", "ENDED")


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = job_command(
        commands,
        "steps",
        "show reward, seconds and throughput of the last steps; `-o json` has every recorded metric",
        _steps,
        reads_spec=True,
        outputs=(*output.FORMS, output.CSV),
        examples=(
            ("steps sums", "show the last ten steps"),
            ("steps sums --last 1000 -o csv", "export all steps"),
        ),
    )
    made.add_argument("--last", type=count, default=STEPS, metavar="N", help=f"steps to show; default: {STEPS}")
    add_sources(made)


def _steps(chosen: argparse.Namespace) -> int:
    import csv
    import io

    from rljob.cli.report.run import Wanted
    from rljob.cli.status import table
    from rljob.reading.records import kept

    run = gather(chosen, Wanted())
    steps = kept(run.records)[-chosen.last :]
    if chosen.output in output.DATA:
        rows = [{"step": each.step, "attempt": each.attempt, "metrics": dict(each.metrics)} for each in steps]
        place = {"namespace": run.namespace, "job": run.name}
        print(output.data_page([place | {"steps": rows}], chosen.output))
        return 0
    page = [(*HEADS, *(WIDE if chosen.output == output.WIDE else ()))]
    page += [_row(each, wide=chosen.output == output.WIDE) for each in steps]
    if chosen.output == output.CSV:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(page)
        print(text.getvalue().rstrip("\n"))
    else:
        print(table(page) if steps else f"no step is recorded yet ({run.source})")
    return 0


def _row(record: Record, *, wide: bool) -> tuple[str, ...]:
    import math
    from datetime import UTC, datetime

    from rljob.reading import figures
    from rljob_runtime.contract import StepMetric

    found = record.metrics.get
    ended = f"{datetime.fromtimestamp(record.time, UTC):%Y-%m-%dT%H:%M:%SZ}" if math.isfinite(record.time) else "-"
    return (
        str(record.step),
        str(record.attempt),
        figures.reward(found(StepMetric.REWARD)),
        figures.seconds(found(StepMetric.STEP_SECONDS)),
        figures.rate(found(StepMetric.STEP_TPS_PER_CARD)),
        figures.share(found(StepMetric.CLUSTER_IDLE)),
        *((figures.share(found(StepMetric.FIRST_DP_IDLE)), ended) if wide else ()),
    )
