"""The commands of `rljob`, also as `kubectl rljob`. They read files, and use a cluster only through kubectl.

Each command is a module of `rljob.cli.verbs`. Exit codes are those of `rljob.cli.exits`.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from rljob.cli.arguments import Parser, read, split_name
from rljob.cli.completion import complete
from rljob.cli.errors import UsageError
from rljob.cli.exits import Exit
from rljob.cli.terminal import printable_output
from rljob.cli.verbs import (
    apply,
    check_image,
    completion,
    conformance,
    dashboard,
    delete,
    describe,
    diff,
    doctor,
    events,
    exec,  # noqa: A004 - the name of the command
    explain,
    export,
    list,  # noqa: A004 - as above
    logs,
    plan,
    quota,
    recipes,
    render,
    report,
    restart,
    resume,
    run,
    samples,
    status,
    steps,
    stop,
    suspend,
    top,
    trace,
    usage,
    validate,
    version,
)

VERBS = (
    *(validate, render, explain, diff, plan, run),
    *(apply, list, status, top, describe, events, logs, steps, samples, dashboard, exec, report, trace, export),
    *(suspend, resume, stop, restart, delete),
    *(recipes, quota, usage),
    *(doctor, check_image, conformance, version, completion),
)
"""In the order of `rljob --help`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As on standard error, no character ends a command: a file's name may be no UTF-8, a terminal may be ASCII.
        sys.stdout.reconfigure(errors="replace")
    with printable_output():
        return _run_command(arguments)


def _run_command(arguments: Sequence[str] | None) -> int:
    parser = build_parser()
    complete(parser)
    chosen = read(parser, arguments)
    try:
        if chosen.reads_spec:
            from rljob.cli.accelerators import accelerator_table  # noqa: PLC0415 - loads the API types

            # From here on the table itself.
            chosen.accelerators = accelerator_table(chosen.accelerators or [])
        if hasattr(chosen, "name"):
            chosen.namespace, chosen.name = split_name(chosen.name, chosen.namespace)
        return int(chosen.run(chosen))
    except UsageError as error:
        print(f"rljob: {error}", file=sys.stderr)
        return error.code
    except BrokenPipeError:
        # The reader, for example `head`, has closed the pipe.
        sys.stderr.close()
        return Exit.SUCCESS
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def build_parser() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="rljob", description="Manage reinforcement-learning training jobs on Kubernetes.")
    parser.examples = (
        ("validate -f job.yaml", "check a job before any NPU is spent"),
        ("COMMAND --help", "show arguments and examples of a command"),
    )
    parser.add_argument(
        "--version",
        action=_PrintVersion,
        nargs=0,
        help="print the versions of rljob, of its API and of the software that it was made for",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for verb in VERBS:
        verb.add(commands)
    return parser


class _PrintVersion(argparse.Action):
    """Prints the versions, in lines."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:  # noqa: ANN401 - of argparse
        """Print and exit."""
        from rljob.cli.known_launchers import VERSIONS  # noqa: PLC0415 - loads the rules of verl
        from rljob.cli.verbs.version import version_page  # noqa: PLC0415 - as above

        print(version_page(VERSIONS))
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
