"""`rljob render`: print what the operator would create."""

from __future__ import annotations

import argparse
import sys

from rljob.cli import output
from rljob.cli.arguments import STAND_IN_UID, Commands, Parser, file_command
from rljob.cli.exits import Exit
from rljob.cli.output import data_page


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = file_command(
        commands,
        "render",
        "print the objects that the operator would create: RayCluster and job.json",
        _render,
        outputs=(output.YAML, output.JSON, output.NAME, output.TABLE, output.WIDE),
        exits={Exit.NEGATIVE: "a job is invalid"},
        examples=(
            ("render -f job.yaml", "print the RayCluster and job.json"),
            ("render -f job.yaml --part raycluster --cluster", "print the RayCluster with the image of the operator"),
        ),
    )
    made.add_argument("--part", choices=("all", "raycluster", "job"), default="all", help="print only this part")
    made.add_argument(
        "--uid", default=STAND_IN_UID, help="UID of the RLJob, from which the names of its objects are derived"
    )
    made.add_argument(
        "--runtime-image",
        metavar="IMAGE",
        help="image whose runtime is injected into jobs with runtime.injection Auto; default: with --cluster, that of "
        "the installed operator",
    )


def _render(chosen: argparse.Namespace) -> int:
    from rljob.cli import runtime_image
    from rljob.cli.judged import valid
    from rljob.cli.known_launchers import LAUNCHER
    from rljob.cli.render import object_table, render
    from rljob.render.names import JobIdentity

    image = chosen.runtime_image or (runtime_image.installed(chosen.context) if chosen.cluster else None)
    if image is not None:
        chosen.accelerators = chosen.accelerators.with_operator_image(image)
    judged = valid(chosen)
    if judged is None:
        return Exit.NEGATIVE
    specs = [(job, checked.spec) for job, checked in judged if checked.spec is not None]
    made = [
        render(JobIdentity(job.namespace, job.name, chosen.uid), spec, chosen.part, LAUNCHER) for job, spec in specs
    ]
    # job.json names no image.
    has_image = image is not None or chosen.part == "job"
    note = "" if has_image else runtime_image.note((spec for _, spec in specs), cluster=chosen.cluster)
    if chosen.output == output.YAML:
        head = f"# {note}\n" if note else ""
        print(head + "\n---\n".join(each.page for each in made))
        return 0
    if note:
        print(f"rljob: note: {note}", file=sys.stderr)
    documents = [document for each in made for document in each.documents]
    objects = [document for document in documents if "kind" in document]
    if chosen.output in (output.TABLE, output.WIDE):
        print(object_table(objects, wide=chosen.output == output.WIDE))
    else:
        print(data_page(documents if chosen.output == output.JSON else objects, chosen.output))
    return 0
