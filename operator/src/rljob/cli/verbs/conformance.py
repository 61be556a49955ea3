"""`rljob conformance`: check a cluster by a run of its own."""

from __future__ import annotations

import argparse
from pathlib import Path

from rljob.cli import output
from rljob.cli.arguments import Commands, Parser, command, count
from rljob.cli.exits import Exit


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = command(
        commands,
        "conformance",
        "check on the cluster that this release does what it claims, with a small job of its own; exit code 1 if not",
        _conformance,
        reads_spec=True,
        outputs=output.FORMS,
        namespace="namespace to create the job in; default: the namespace of the context",
        exits={Exit.NEGATIVE: "a claim does not hold"},
        examples=(
            ("conformance", "run on two CPU devices"),
            ("conformance --class atlas-a2 --image registry.example/verl:1", "run on a whole node of this class"),
        ),
    )
    made.add_argument(
        "--class", dest="accelerator_class", default="cpu", metavar="CLASS", help="accelerator class; default: cpu"
    )
    made.add_argument("--image", help="runtime image; default for class cpu: that of the quickstart")
    made.add_argument(
        "--image-pull-secret", action="append", default=[], metavar="NAME", help="Secret for its registry; repeatable"
    )
    made.add_argument(
        "--devices", type=count, metavar="N", help="devices to use; default: a whole node, with class cpu 2"
    )
    made.add_argument("--steps", type=count, default=40, metavar="N", help="steps to train, at least 16; default: 40")
    made.add_argument("--node", metavar="NAME", help="run head and worker on this node")
    made.add_argument("--storage-class", metavar="NAME", help="StorageClass of the volume; default: the cluster's")
    made.add_argument(
        "--access-mode",
        choices=("ReadWriteMany", "ReadWriteOnce"),
        default="ReadWriteMany",
        help="access mode of the volume; ReadWriteOnce needs --node; default: ReadWriteMany",
    )
    made.add_argument("--queue", metavar="NAME", help="queue of Kueue, or of Volcano with --gang Volcano")
    made.add_argument("--gang", choices=("Volcano", "Kueue"), help="scheduler that starts the pods together")
    made.add_argument("--report", type=Path, metavar="FILE", help="write the result as JSON, to attach to a report")
    made.add_argument("--keep", action="store_true", help="do not delete what the run created")
    made.add_argument("--list", action="store_true", help="print the claims, and use no cluster")


def _conformance(chosen: argparse.Namespace) -> int:
    from rljob.cli.conformance.conformance import conformance
    from rljob.cli.known_launchers import VERSIONS

    return conformance(chosen, VERSIONS)
