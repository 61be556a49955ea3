"""`rljob exec`: run a command in a pod of a job."""

from __future__ import annotations

import argparse
import subprocess

from rljob.cli import kubectl
from rljob.cli.arguments import Commands, Parser, job_command
from rljob.cli.errors import UsageError

ROLES = ("head", "worker")


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = job_command(
        commands,
        "exec",
        "run a command in the Ray container of the head or of a worker; the exit code is that of the command",
        _exec,
        examples=(
            ("exec sums -- ray status", "ask Ray for its resources"),
            ("exec sums --role worker --index 1 -- npu-smi info", "look at the NPUs of the second worker"),
            ("exec -t sums -- bash", "open a shell"),
        ),
    )
    made.add_argument("--role", choices=ROLES, default=ROLES[0], help="pod to use; default: head")
    made.add_argument("--index", type=_index, default=0, metavar="N", help="which worker, by name from 0; default: 0")
    made.add_argument(
        "-t",
        "--tty",
        action="store_true",
        help="connect the terminal as it is: control sequences of the program reach it",
    )
    made.passes_on = True
    made.add_argument("words", nargs="*", metavar="-- COMMAND", help="command with its arguments")


def _index(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5):
        raise argparse.ArgumentTypeError(f"{text[:16]!r} must be a number from 0")
    return int(text)


def _exec(chosen: argparse.Namespace) -> int:
    from rljob.cli.live_pods import live_pods, no_pod, place_of
    from rljob.reading.job_pods import CONTAINERS, identity

    if not chosen.words:
        raise UsageError(f"name a command after --, such as `rljob exec {chosen.name} -- ray status`")
    place = kubectl.Place(chosen.namespace, chosen.context)
    job = kubectl.get_job(chosen.name, place)
    own = place_of(job, place)
    pods = sorted(pod["metadata"]["name"] for pod in live_pods(identity(job), chosen.role, own))
    if not pods:
        raise no_pod(job, chosen.role, own)
    if chosen.index >= len(pods):
        raise UsageError(f"--index {chosen.index}: {chosen.name} has {len(pods)} running {chosen.role} pods, from 0")
    words = ["exec", pods[chosen.index], "--container", CONTAINERS[chosen.role]]
    words += ["--stdin", "--tty"] if chosen.tty else []
    words += ["--", *chosen.words]
    if chosen.tty:
        return subprocess.run(kubectl.command_line(words, own), check=False).returncode
    return kubectl.stream(words, own, show_errors=True)
