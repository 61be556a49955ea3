"""`rljob check-image`: check in a pod whether an image can run jobs."""

from __future__ import annotations

import argparse

from rljob.cli import output
from rljob.cli.arguments import Commands, Parser, command, seconds, user
from rljob.cli.exits import Exit


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = command(
        commands,
        "check-image",
        "check in a pod whether an image can run jobs; exit code 0 fits, 3 untried or degraded, 64 refused",
        _check_image,
        reads_spec=True,
        outputs=output.FORMS,
        namespace="namespace to create the pod in; default: the namespace of the context",
        exits={
            Exit.DEGRADED: "the image runs jobs with restrictions, or has what this project has not tried",
            Exit.REFUSED: "the image cannot run jobs",
        },
        examples=(
            ("check-image registry.example/verl:1 --class atlas-a2", "check on a node of this class"),
            ("check-image registry.example/verl:1 --class atlas-a2 --deep", "import there what a run imports"),
            ("check-image registry.example/own:1 --launcher Command", "judge for jobs that run a command"),
        ),
    )
    made.add_argument("image", metavar="IMAGE", help="image to check")
    made.add_argument(
        "--class", dest="accelerator_class", metavar="CLASS", help="use a node of this accelerator class; default: any"
    )
    made.add_argument(
        "--deep", action="store_true", help="import what a run imports as well; a minute or more beside the image pull"
    )
    made.add_argument(
        "--launcher", choices=("Verl", "Command"), default="Verl", help="launcher that decides the exit code"
    )
    made.add_argument(
        "--image-pull-secret", action="append", default=[], metavar="NAME", help="Secret for its registry; repeatable"
    )
    made.add_argument(
        "--runtime-image", metavar="IMAGE", help="image with the runtime; default: that of the installed operator"
    )
    made.add_argument(
        "--run-as-user", type=user, default=65532, metavar="UID", help="user ID of the containers; default: 65532"
    )
    made.add_argument(
        "--timeout", type=seconds, metavar="TIME", help="limit, image pull included; default: 5m, with --deep 20m"
    )


def _check_image(chosen: argparse.Namespace) -> int:
    from rljob.cli.check_image.check_image import check_image

    return check_image(chosen)
