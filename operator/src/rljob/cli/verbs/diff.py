"""`rljob diff`: show what a manifest would change."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, file_command
from rljob.cli.errors import UsageError
from rljob.cli.exits import Exit
from rljob.cli.output import DATA, data_page
from rljob.cli.verbs.apply import OVER

if TYPE_CHECKING:
    from rljob.cli.diff import Changes
    from rljob.cli.manifests import JobManifest


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = file_command(
        commands,
        "diff",
        "show what a manifest would change in its running job, and when; exit code 1 if anything",
        _diff,
        outputs=output.FORMS,
        exits={Exit.NEGATIVE: "something would change"},
        examples=(
            ("diff -f job.yaml --cluster", "compare with the running job, before `rljob apply`"),
            ("diff -f new.yaml --against old.yaml", "compare two files without a cluster"),
        ),
    )
    made.add_argument(
        "--against",
        action="append",
        metavar="FILE",
        help="compare with the jobs of these files instead of the cluster; repeatable",
    )


def _diff(chosen: argparse.Namespace) -> int:
    """Compare as `kubectl diff` does: exit code 1 if there is a difference."""
    from rljob.cli.judged import chosen_files

    if chosen.against:
        found = _against_files(chosen)
    else:
        found = [(job, _against_cluster(job, chosen)) for job in chosen_files(chosen).jobs]
    if chosen.output in DATA:
        print(data_page([changes.document(job.namespace, job.name) for job, changes in found], chosen.output))
    else:
        pages = [f"{job.name}:\n{changes.page}" for job, changes in found if changes]
        print("\n\n".join(pages) or "no difference")
    return Exit.NEGATIVE if any(changes for _, changes in found) else 0


def _against_files(chosen: argparse.Namespace) -> list[tuple[JobManifest, Changes]]:
    from rljob.cli.diff import against_file
    from rljob.cli.judged import chosen_files, complain, judge, read_sources

    before, after = judge(read_sources(chosen.against, chosen), chosen), judge(chosen_files(chosen), chosen)
    complain([*before, *after])
    earlier = {(job.namespace, job.name): checked.spec for job, checked in before}
    found = []
    for job, checked in after:
        # A single job on each side is compared whatever the names are.
        old = before[0][1].spec if len(before) == len(after) == 1 else earlier.get((job.namespace, job.name))
        if old is None or checked.spec is None:
            raise UsageError(f"{job.name}: both sides must have a valid RLJob with this name; correct or add it")
        found.append((job, against_file(old, checked.spec)))
    return found


def _against_cluster(job: JobManifest, chosen: argparse.Namespace) -> Changes:
    from rljob.cli.diff import against_job, applied_spec
    from rljob.cli.frozen import frozen_snapshot
    from rljob.cli.known_launchers import LAUNCHER
    from rljob.core.validation.validate import check
    from rljob.reading.frozen import snapshot_name

    if not job.is_named:
        raise UsageError(
            f"{job.source}: {job.name} gets its name when it is created, so there is no job to compare with; set "
            "metadata.name, or compare with a file by --against"
        )
    place = kubectl.Place(job.namespace, chosen.context)
    live = kubectl.get_job(job.name, place)
    name = snapshot_name(live)
    if name is None:
        raise UsageError(
            f"{job.name} has not started, so nothing is frozen yet; `rljob explain` shows the spec that it will use"
        )
    frozen = frozen_snapshot(live, name, place, chosen.accelerators)
    # The edit is merged over the recipes that were frozen with the job, as the operator does.
    now, wanted = (
        check(job.name, spec, frozen.recipes, launcher=LAUNCHER, accelerators=chosen.accelerators)
        for spec in (live.get("spec") or {}, applied_spec(live, job.spec))
    )
    if wanted.spec is None:
        raise UsageError(f"{job.source}: {job.name}: {'; '.join(map(str, wanted.violations))}")
    state = str((live.get("status") or {}).get("state"))
    return against_job(frozen.spec, now.spec or frozen.spec, wanted.spec, ended=state if state in OVER else "")
