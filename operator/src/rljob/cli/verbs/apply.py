"""`rljob apply`: check manifests, and apply them to the cluster."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from rljob.api.group import GROUP
from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, file_command
from rljob.cli.errors import UsageError
from rljob.cli.exits import Exit

if TYPE_CHECKING:
    from rljob.cli.manifests import JobManifest

APPLY_SECONDS = 120
OVER = ("Succeeded", "Failed", "Stopped")
"""States in which a job does not begin again by an edit, as an invalid one does."""
READ_AFTER_THE_END = ("cleanup", "export", "evaluation")
"""Sections of the spec that the operator reads of a job that has ended."""


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
    from rljob.cli.judged import complain, judge, read_sources, with_cluster
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
    judged = with_cluster(judge(files, chosen), files, chosen)
    complain(judged)
    if any(checked.spec is None for _, checked in judged):
        return Exit.NEGATIVE
    words = ["apply", *(word for source in chosen.file for word in ("--filename", source))]
    words += ["--dry-run=server"] if chosen.dry_run else []
    form = chosen.output if chosen.output in output.DATA else None
    words += ["--output", form] if form else []
    place = kubectl.Place(chosen.namespace, chosen.context)
    warnings: list[str] = []
    told = kubectl.run(words, place, text=given, seconds=APPLY_SECONDS, warnings=warnings).strip()
    print(told)
    print(*warnings, sep="\n", end="\n" if warnings else "", file=sys.stderr)
    for job in (job for job, _ in judged if f"rljob.{GROUP}/{job.name} created" not in told):
        _warn_of_end(job, kubectl.Place(job.namespace, chosen.context))
    return 0


def _warn_of_end(job: JobManifest, place: kubectl.Place) -> None:
    """Say on standard error that a job has ended, so that nearly nothing that was applied has an effect."""
    try:
        state = str((kubectl.get_job(job.name, place).get("status") or {}).get("state"))
    except UsageError:
        return  # by --dry-run it does not exist, or the user may not read it
    if state in OVER:
        name = f"{job.namespace}/{job.name}"
        print(
            f"{name} has ended as {state}: of its spec, only {', '.join(READ_AFTER_THE_END)} are still read; to train, "
            f"`rljob delete {name}` and apply it again, or use another name",
            file=sys.stderr,
        )
