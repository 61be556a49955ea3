"""`rljob export`: ask for an export of a checkpoint, or show those of a job."""

from __future__ import annotations

import argparse

from rljob.cli import output
from rljob.cli.arguments import Commands, Parser, job_command

FORMS = "/folder, pvc:CLAIM[/folder], hf:owner/name or modelscope:owner/name"


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = job_command(
        commands,
        "export",
        "export a checkpoint of an RLJob to a folder, a claim or a model hub",
        _run,
        outputs=output.FORMS,
        examples=(
            ("export sums --to /data/export --wait 600", "export the last checkpoint to a folder, and wait for it"),
            ("export sums --step best --to hf:team/sums --secret hub", "push the best kept checkpoint to a hub"),
            ("export sums --list", "show the exports of a job"),
        ),
    )
    made.add_argument("--step", default="latest", help="step of the checkpoint, latest or best; default: latest")
    made.add_argument("--to", metavar="TARGET", help=f"{FORMS}; default: what spec.export says")
    made.add_argument("--secret", metavar="NAME", help="Secret with the key `token`, for a target on a hub")
    made.add_argument("--list", action="store_true", help="show the exports of the job, and ask for none")
    made.add_argument("--wait", type=float, metavar="SECONDS", help="wait for its end; exit code 1 if it fails")


def _run(chosen: argparse.Namespace) -> int:
    from rljob.cli.export import export

    return export(chosen)
