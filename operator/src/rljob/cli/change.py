"""How a job is changed by `suspend`, `resume`, `stop` and `restart`: look at its state, patch it, wait on request."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rljob.api.patches import Patch
from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Example, Parser, Run, job_command, seconds
from rljob.cli.errors import UsageError
from rljob.cli.status import ENDED, has_checkpoints, status_document

SLACK_SECONDS = 20
"""More than kubectl needs to end a wait at its own deadline."""
WAIT_SECONDS = 600


@dataclass(frozen=True)
class Change:
    """A change that a user asks for."""

    patch: Patch
    does: str
    """What happens now, in words."""
    does_without_checkpoints: str
    """What happens now to a job that saves none."""
    waits_for: tuple[tuple[str, str], ...]
    """Fields of the status that --wait watches one after another, and the values that it waits for."""
    is_kept: tuple[str, ...]
    """Path of a field that the cluster drops if its CRD is older than this command."""
    nothing_in: Mapping[str, str] = field(default_factory=dict)
    """States of a job in which the change has no effect, and what to do instead."""


def add(
    commands: Commands[Parser],
    name: str,
    help_text: str,
    run: Run,
    *,
    examples: tuple[Example, ...],
) -> Parser:
    """Add a command that changes a job."""
    made = job_command(commands, name, help_text, run, outputs=output.FORMS, examples=examples)
    made.add_argument("--wait", action="store_true", help="wait until the job has reached its new state")
    made.add_argument(
        "--timeout", type=seconds, default=WAIT_SECONDS, metavar="TIME", help="limit of --wait; default: 10m"
    )
    return made


def apply(chosen: argparse.Namespace, change: Change) -> int:
    """Change the job and say what happens. A job that has ended is refused, because nothing would happen."""
    place = kubectl.Place(chosen.namespace, chosen.context)
    job = kubectl.get_job(chosen.name, place)
    state = str((job.get("status") or {}).get("state") or "Unknown")
    name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
    if state in ENDED:
        raise UsageError(
            f"{name} has ended as {state}, so `rljob {chosen.command}` would change nothing; create a new job"
        )
    if instead := change.nothing_in.get(state):
        raise UsageError(f"{name} is {state}, so `rljob {chosen.command}` would change nothing; {instead}")
    changed = kubectl.patch_job(chosen.name, change.patch, place)
    if _at(changed, change.is_kept) is None:
        raise kubectl.MissingKindError(
            f"{name}: the cluster's CRD has no field {'.'.join(change.is_kept)}, so nothing has changed; upgrade the "
            "chart rljob-operator to the release of this command (`rljob version`)"
        )
    if chosen.wait:
        for watched, value in change.waits_for:
            changed = _wait(chosen, watched, value, place)
    if chosen.output in output.DATA:
        print(output.data_page([status_document(changed)], chosen.output))
    else:
        now = (changed.get("status") or {}).get("state", state)
        does = change.does if has_checkpoints(job) else change.does_without_checkpoints
        print(f"{name}: {does}" if not chosen.wait else f"{name} is {now}")
    return 0


def _wait(chosen: argparse.Namespace, watched: str, value: str, place: kubectl.Place) -> dict[str, Any]:
    resource = f"rljobs.rljob.dev/{chosen.name}"
    words = ["wait", resource, "--for", f"jsonpath={{.status.{watched}}}={value}", "--timeout", f"{chosen.timeout}s"]
    try:
        kubectl.run(words, place, seconds=chosen.timeout + SLACK_SECONDS)
    except UsageError as error:
        raise UsageError(
            f"{chosen.name} has not reached {watched} {value} within {chosen.timeout} s: {error}; the change stands, "
            f"and `rljob status {chosen.name}` shows what the job does"
        ) from error
    return kubectl.get_job(chosen.name, place)


def _at(found: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
