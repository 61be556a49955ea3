"""The topics of `rljob plan`: each plans the valid jobs of the files, prints the plans, and returns an exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.errors import UsageError
from rljob.cli.manifests import JobManifest
from rljob.cli.output import DATA, data_page
from rljob.cli.plan.memory import fits, plan_document, plan_memory, plan_table, shape_of
from rljob.cli.plan.page import rollout_page
from rljob.cli.plan.report import plan_report, report_document, report_table, with_cards
from rljob.cli.plan.rollout import Lengths, plan_rollout, rollout_document, rollout_table
from rljob.cli.report.write_report import write_page
from rljob.core.launcher import LauncherOf
from rljob.launchers.planned import PLANNED, Planned
from rljob_runtime.planning.shapes import Shape

FAILED = 1
Valid = Sequence[tuple[JobManifest, RLJobSpec]]


def _memory(chosen: argparse.Namespace, valid: Valid, shape: Shape | None, launcher: LauncherOf) -> int:
    """Estimate the memory of a die; exit code 1 if a phase does not fit."""
    planned = [(job, spec, plan_memory(job.name, spec, shape, launcher)) for job, spec in valid]
    if chosen.output in DATA:
        print(data_page([plan_document(job.namespace, job.name, plan) for job, _, plan in planned], chosen.output))
    else:
        print("\n\n".join(plan_table(job.name, spec, plan) for job, spec, plan in planned))
    return 0 if all(fits(plan) for _, _, plan in planned) else FAILED


def _planned(name: str, spec: RLJobSpec) -> Planned:
    """Return what the job's launcher offers the planner. Raise UsageError if it offers nothing."""
    if spec.launcher.type not in PLANNED:
        raise UsageError(f"{name}: launcher.type is {spec.launcher.type}, whose rollout and layouts are not known")
    return PLANNED[spec.launcher.type]


def _rollout(chosen: argparse.Namespace, valid: Valid, shape: Shape | None, launcher: LauncherOf) -> int:
    del launcher
    lengths = Lengths(chosen.trace, chosen.lengths, chosen.seed)
    planned = []
    for job, spec in valid:
        setup = _planned(job.name, spec).rollout_setup(spec, shape_of(job.name, spec, shape))
        planned.append((job, plan_rollout(job.name, setup, lengths)))
    if chosen.output in DATA:
        print(data_page([rollout_document(job.namespace, job.name, plan) for job, plan in planned], chosen.output))
    else:
        print("\n\n".join(rollout_table(job.name, plan) for job, plan in planned))
    if chosen.page:
        page = rollout_page([(job.name, plan) for job, plan in planned], datetime.now(UTC))
        write_page(chosen.page, page, "--page")
        print(f"rljob: wrote {chosen.page}", file=sys.stderr)
    return 0


def _report(chosen: argparse.Namespace, valid: Valid, shape: Shape | None, launcher: LauncherOf) -> int:
    del launcher
    lengths = Lengths(chosen.trace, chosen.lengths, chosen.seed)
    planned = []
    for job, given in valid:
        spec = with_cards(job.name, given, chosen.cards)
        facts = _planned(job.name, spec).layout_job(spec, shape_of(job.name, spec, shape))
        planned.append((job, plan_report(job.name, spec, facts, lengths)))
    if chosen.output in DATA:
        documents = [report_document(job.namespace, job.name, report, chosen.top) for job, report in planned]
        print(data_page(documents, chosen.output))
    else:
        print("\n\n".join(report_table(job.name, report, chosen.top) for job, report in planned))
    return 0


PLANNERS: dict[str, Callable[[argparse.Namespace, Valid, Shape | None, LauncherOf], int]] = {
    "memory": _memory,
    "rollout": _rollout,
    "report": _report,
}
