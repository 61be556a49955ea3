"""`rljob run --local`: train on this machine."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from rljob.cli.arguments import Commands, Parser, file_command
from rljob.cli.errors import UsageError
from rljob.cli.exits import Exit


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = file_command(
        commands,
        "run",
        "train on this machine, without Kubernetes; Ctrl-C saves a checkpoint, and the same command resumes",
        _run,
        exits={Exit.NEGATIVE: "the job is invalid, or the run failed"},
        examples=(
            ("run --local -f job.yaml", "train in a private Ray; the same command resumes"),
            ("run --local -f job.yaml --volume data=/srv/data", "use a folder of this machine for the volume data"),
        ),
    )
    made.add_argument("--local", action="store_true", help="run in a private Ray on this machine")
    made.add_argument(
        "--workdir", type=Path, metavar="FOLDER", help="folder that is kept between runs; default: .rljob/<job>"
    )
    made.add_argument(
        "--volume", action="append", default=[], metavar="NAME=FOLDER", help="folder to use for a volume; repeatable"
    )
    made.add_argument("--code", type=Path, metavar="FOLDER", help="folder to use for code.mountPath")


def _run(chosen: argparse.Namespace) -> int:
    if not chosen.local:
        raise UsageError("`rljob run` trains on this machine: add --local, or use `kubectl apply` for a cluster")
    from rljob.cli.judged import chosen_files, complain, judge
    from rljob.cli.known_launchers import LAUNCHER
    from rljob.cli.local.prepare import LocalOptions

    # The other commands also run on Windows.
    from rljob.cli.local.run_local import run_local

    files = chosen_files(chosen)
    if len(files.jobs) > 1:
        names = ", ".join(job.name for job in files.jobs)
        raise UsageError(f"{len(files.jobs)} RLJobs ({names}); a local run takes a single one, so split the file")
    judged = judge(files, chosen)
    complain(judged)
    ((job, checked),) = judged
    if checked.spec is None:
        return Exit.NEGATIVE
    volumes = dict(_volume(text) for text in chosen.volume)
    code = chosen.code.absolute() if chosen.code else None
    given = LocalOptions(volumes, code, os.environ, LAUNCHER)
    # A job that gets its name from the cluster keeps its folder between runs, too.
    return run_local(job.name.rstrip("-*"), checked, files.others, chosen.workdir, given)


def _volume(text: str) -> tuple[str, Path]:
    name, _, folder = text.partition("=")
    if not folder:
        raise UsageError(f"--volume {text}: use NAME=FOLDER, such as --volume data=/srv/data")
    return name, Path(folder).absolute()
