"""The topics of `rljob plan`: each plans the valid jobs of the files, prints the plans, and returns an exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.manifests import JobManifest
from rljob.cli.output import DATA, data_page
from rljob.cli.plan import fits, plan_document, plan_memory, plan_table
from rljob.cli.plan_report import plan_report, report_document, report_table, with_cards
from rljob.cli.plan_rollout import Lengths, plan_rollout, rollout_document, rollout_table
from rljob.cli.report.command import write_page
from rljob.cli.report.plan_page import rollout_page
from rljob.core.launcher import Launcher
from rljob_runtime.planning.shapes import Shape

FAILED = 1
Valid = Sequence[tuple[JobManifest, RLJobSpec]]


def _memory(chosen: argparse.Namespace, valid: Valid, shape: Shape | None, launcher: Launcher) -> int:
    """Estimate the memory of a die; exit code 1 if a phase does not fit."""
    planned = [(job, spec, plan_memory(job.name, spec, shape, launcher)) for job, spec in valid]
    if chosen.output in DATA:
        print(data_page([plan_document(job.namespace, job.name, plan) for job, _, plan in planned], chosen.output))
    else:
        print("\n\n".join(plan_table(job.name, spec, plan) for job, spec, plan in planned))
    return 0 if all(fits(plan) for _, _, plan in planned) else FAILED


def _rollout(chosen: argparse.Namespace, valid: Valid, shape: Shape | None, launcher: Launcher) -> int:
    lengths = Lengths(chosen.trace, chosen.lengths, chosen.seed)
    planned = [(job, plan_rollout(job.name, spec, shape, launcher, lengths)) for job, spec in valid]
    if chosen.output in DATA:
        print(data_page([rollout_document(job.namespace, job.name, plan) for job, plan in planned], chosen.output))
    else:
        print("\n\n".join(rollout_table(job.name, plan) for job, plan in planned))
    if chosen.page:
        page = rollout_page([(job.name, plan) for job, plan in planned], datetime.now(UTC))
        write_page(chosen.page, page, "--page")
        print(f"rljob: wrote {chosen.page}", file=sys.stderr)
    return 0


def _report(chosen: argparse.Namespace, valid: Valid, shape: Shape | None, launcher: Launcher) -> int:
    lengths = Lengths(chosen.trace, chosen.lengths, chosen.seed)
    planned = [
        (job, plan_report(job.name, with_cards(job.name, spec, chosen.cards), shape, launcher, lengths))
        for job, spec in valid
    ]
    if chosen.output in DATA:
        documents = [report_document(job.namespace, job.name, report, chosen.top) for job, report in planned]
        print(data_page(documents, chosen.output))
    else:
        print("\n\n".join(report_table(job.name, report, chosen.top) for job, report in planned))
    return 0


TOPICS: dict[str, Callable[[argparse.Namespace, Valid, Shape | None, Launcher], int]] = {
    "memory": _memory,
    "rollout": _rollout,
    "report": _report,
}
