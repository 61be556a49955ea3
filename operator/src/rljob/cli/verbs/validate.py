"""`rljob validate`: check manifests as the operator does."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rljob.cli import output
from rljob.cli.arguments import Commands, Parser, file_command
from rljob.cli.exits import Exit
from rljob.cli.output import DATA, data_page

if TYPE_CHECKING:
    from rljob.cli.manifests import JobManifest
    from rljob.core.validation.validate import Checked


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    file_command(
        commands,
        "validate",
        "check RLJobs as the operator does, and report all violations at once",
        _validate,
        outputs=output.FORMS,
        exits={Exit.NEGATIVE: "a job is invalid"},
        examples=(
            ("validate -f job.yaml", "check a job without a cluster"),
            (
                "validate -f jobs/ --cluster -o json",
                "check a folder with recipes, nodes, claims and policies of the cluster, for a program",
            ),
        ),
    )


def _validate(chosen: argparse.Namespace) -> int:
    from rljob.cli.judged import chosen_files, complain, judge, with_cluster, with_dry_run

    files = chosen_files(chosen)
    judged = with_dry_run(with_cluster(judge(files, chosen), files, chosen), chosen)
    if chosen.output in DATA:
        print(data_page([_verdict(job, checked) for job, checked in judged], chosen.output))
    else:
        complain(judged)
        for job, checked in judged:
            if checked.spec is not None:
                print(f"{job.source}: {job.name} is valid")
    return 0 if all(checked.spec is not None for _, checked in judged) else Exit.NEGATIVE


def _verdict(job: JobManifest, checked: Checked) -> dict[str, Any]:
    return {
        "source": job.source,
        "namespace": job.namespace,
        "job": job.name,
        "valid": checked.spec is not None,
        "violations": [{"field": each.field, "message": each.message} for each in checked.violations],
        "warnings": [{"field": each.field, "message": each.message} for each in checked.warnings],
    }
