"""`rljob doctor`: check what the commands and jobs need of a cluster, one line each with the fix."""

from __future__ import annotations

import argparse

from rljob.cli import output
from rljob.cli.arguments import Commands, Parser, command
from rljob.cli.exits import Exit
from rljob.cli.output import DATA, data_page


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    command(
        commands,
        "doctor",
        "check versions, operator, KubeRay, Kueue, Volcano, rights, nodes, storage, clocks; exit code 1 if one fails",
        _doctor,
        reads_spec=True,
        outputs=output.FORMS,
        namespace="namespace whose rights and claims are checked; default: the namespace of the context",
        exits={Exit.NEGATIVE: "a check failed"},
        examples=(
            ("doctor -n team-a", "check the cluster, and what you may do in a namespace"),
            ("doctor -o json", "the same for a program"),
        ),
    )


def _doctor(chosen: argparse.Namespace) -> int:
    from rljob.cli.doctor import Mark, findings
    from rljob.cli.status import table

    found = list(findings(chosen))
    if chosen.output in DATA:
        rows = [{"check": f.check, "result": f.mark.value, "message": f.message, "fix": f.fix} for f in found]
        print(data_page([{"checks": rows}], chosen.output, [f.check for f in found]))
    else:
        print(table([(f.mark.value, f.check, f"{f.message}; {f.fix}" if f.fix else f.message) for f in found]))
    return Exit.NEGATIVE if any(f.mark is Mark.FAILED for f in found) else Exit.SUCCESS
