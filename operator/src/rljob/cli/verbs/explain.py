"""`rljob explain`: show where the value of each field comes from."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rljob.cli import output
from rljob.cli.arguments import Commands, Parser, file_command
from rljob.cli.exits import Exit
from rljob.cli.output import DATA, data_page

if TYPE_CHECKING:
    from rljob.api import field_path
    from rljob.api.v1alpha1 import RLJobSpec
    from rljob.cli.explain import Explained
    from rljob.core.validation.validate import Checked


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = file_command(
        commands,
        "explain",
        "show where the value of each field comes from: job, recipe, default or decision",
        _explain,
        outputs=output.FORMS,
        exits={Exit.NEGATIVE: "a job is invalid"},
        examples=(
            ("explain -f job.yaml", "show every field with its source"),
            ("explain trainer.steps -f job.yaml --cluster", "show one field, with the recipes of the cluster"),
        ),
    )
    made.add_argument(
        "path",
        nargs="?",
        default="",
        metavar="PATH",
        help="show only this field and the fields below it, such as trainer.steps or any path that validate prints",
    )


def _explain(chosen: argparse.Namespace) -> int:
    from rljob.cli.explain import explain_document, explain_page, read_path
    from rljob.cli.judged import valid

    path = read_path(chosen.path)
    judged = valid(chosen)
    if judged is None:
        return Exit.NEGATIVE
    found = [(job, _explained(checked, checked.spec, path)) for job, checked in judged if checked.spec is not None]
    if chosen.output in DATA:
        print(
            data_page(
                [explain_document(job.namespace, job.name, explanation) for job, explanation in found], chosen.output
            )
        )
    else:
        several = len(found) > 1
        print(
            "\n\n".join((f"{job.name}:\n" if several else "") + explain_page(explanation) for job, explanation in found)
        )
    return 0


def _explained(checked: Checked, spec: RLJobSpec, path: field_path.Path) -> Explained:
    from rljob.cli.explain import Explained, explain
    from rljob.cli.known_launchers import LAUNCHER
    from rljob.core.spec.decisions import decide

    launcher = LAUNCHER(spec)
    rows = explain(checked, spec, decide(spec, launcher.questions), path)
    return Explained(rows) if path else Explained(rows, launcher.losses(spec), launcher.class_defaults(spec))
