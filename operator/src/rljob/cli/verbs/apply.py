"""`rljob apply`: check manifests, and apply them to the cluster."""

from __future__ import annotations

import argparse

from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, file_command
from rljob.cli.errors import UsageError
from rljob.cli.exits import Exit

APPLY_SECONDS = 120


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = file_command(
        commands,
        "apply",
        "check manifests as `rljob validate --cluster` does, and apply them with all other objects of the files",
        _apply,
        outputs=output.FORMS,
        exits={Exit.NEGATIVE: "a job is invalid; nothing was applied"},
        examples=(
            ("apply -f job.yaml", "create the job, or change it"),
            ("apply -f - < job.yaml", "the same, from standard input"),
            ("apply -f job.yaml --dry-run", "let the API server check it too, and change nothing"),
        ),
    )
    made.set_defaults(cluster=True)
    made.add_argument("--dry-run", action="store_true", help="change nothing; the API server checks the manifests")


def _apply(chosen: argparse.Namespace) -> int:
    from rljob.cli.judged import complain, judge, read_sources, with_hardware
    from rljob.cli.manifests import STDIN, read_standard_input

    # It can be read once, and kubectl reads it too.
    given = read_standard_input() if STDIN in chosen.file else None
    files = read_sources(chosen.file, chosen, given)
    unnamed = next((job for job in files.jobs if not job.is_named), None)
    if unnamed is not None:
        raise UsageError(
            f"{unnamed.source}: {unnamed.name} gets its name when it is created, so it cannot be applied; set "
            "metadata.name, or use `kubectl create -f`"
        )
    judged = with_hardware(judge(files, chosen), chosen)
    complain(judged)
    if any(checked.spec is None for _, checked in judged):
        return Exit.NEGATIVE
    words = ["apply", *(word for source in chosen.file for word in ("--filename", source))]
    words += ["--dry-run=server"] if chosen.dry_run else []
    form = chosen.output if chosen.output in output.DATA else None
    words += ["--output", form] if form else []
    place = kubectl.Place(chosen.namespace, chosen.context)
    print(kubectl.run(words, place, text=given, seconds=APPLY_SECONDS).strip())
    return 0
