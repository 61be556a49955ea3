"""The arguments of the commands of `rljob`.

All commands are built by `_command`, so that -f, -n, --context, --accelerators and -o mean the same everywhere.
"""

from __future__ import annotations

import argparse
import difflib
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rljob.api.v1alpha1 import GROUP
from rljob.cli import export, output, plan_arguments, usage
from rljob.cli.errors import UsageError
from rljob.cli.render import STAND_IN_UID

SHORTEST_INTERVAL = 0.5
USAGE = 2
RESOURCES = frozenset({"rljob", "rljobs", "rlj", f"rljob.{GROUP}", f"rljobs.{GROUP}"})
"""What kubectl writes in front of a name."""
Commands = argparse._SubParsersAction  # noqa: SLF001 - the only name of this type
NAMESPACE_OF_FILES = "namespace of jobs whose manifest states none; default: default"
NAMESPACE_OF_JOBS = "namespace of the job; default: the namespace of the context"


class Parser(argparse.ArgumentParser):
    """Reports an error in one line that says what to do."""

    def error(self, message: str) -> NoReturn:
        """Print the line and exit."""
        self.exit(USAGE, f"{self.prog}: {_with_fix(message)}; `{self.prog} --help` shows all arguments\n")


class _PrintVersion(argparse.Action):
    """Prints the versions, in lines."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:  # noqa: ANN401 - of argparse
        """Print and exit."""
        print(self.const)
        parser.exit()


def parse(arguments: Sequence[str] | None, version: str) -> argparse.Namespace:
    """Parse the command line, and exit with code 2 if it is wrong."""
    chosen, rest = build_parser(version).parse_known_args(arguments)
    own: Parser = chosen.parser
    if hasattr(chosen, "files"):
        # `plan memory` has always accepted its files without -f too, in any place.
        words = [word for word in rest if word == "-" or not word.startswith("-")]
        rest = [word for word in rest if word not in words]
        chosen.file = [*(chosen.file or []), *chosen.files, *words]
        if not chosen.file:
            own.error("the following arguments are required: -f/--file")
    if rest:
        own.error(_unknown(rest, own))
    return chosen


def split_name(text: str, namespace: str | None) -> tuple[str | None, str]:
    """Return namespace and name of a job, written as `top` and `status` print it or as `kubectl -o name` does."""
    place, slash, name = text.partition("/")
    if not slash or place in RESOURCES:
        return namespace, name or place
    if namespace not in (None, place):
        raise UsageError(f"{text} contradicts --namespace {namespace}; leave out one of them")
    return place, name


def build_parser(version: str = "") -> Parser:
    """Return the parser of all commands."""
    parser = Parser(prog="rljob", description="Manage reinforcement-learning training jobs on Kubernetes.")
    parser.add_argument(
        "--version",
        action=_PrintVersion,
        nargs=0,
        const=version,
        help="print the versions of rljob, of its API and of the software that it was made for",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_file_commands(commands)
    _add_plan(commands)
    _add_looks(commands)
    _add_cluster_commands(commands)
    export.add_arguments(
        _command(commands, "export", "export a checkpoint of an RLJob", outputs=(output.TABLE, *output.DATA))
    )
    _add_check_image(commands)
    _add_conformance(commands)
    return parser


def _command(
    commands: Commands[Parser],
    name: str,
    help_text: str,
    *,
    outputs: Sequence[str] = (),
    namespace: str = NAMESPACE_OF_JOBS,
) -> Parser:
    """Add a command with the options that all commands have."""
    command = commands.add_parser(name, help=help_text, description=f"{help_text[0].upper()}{help_text[1:]}.")
    command.set_defaults(parser=command)
    command.add_argument("-n", "--namespace", help=namespace)
    command.add_argument("--context", help="context of the kubeconfig to use")
    command.add_argument(
        "--accelerators",
        action="append",
        type=Path,
        metavar="FILE",
        help="file with accelerator classes of the cluster: the operator's ConfigMap, or the chart value of that name; "
        "used by commands that read a spec",
    )
    if outputs:
        command.add_argument(
            "-o", "--output", choices=outputs, default=outputs[0], help=f"format of the output; default: {outputs[0]}"
        )
    return command


def _file_command(
    commands: Commands[Parser], name: str, help_text: str, *, outputs: Sequence[str] = (), required: bool = True
) -> Parser:
    """Add a command that reads manifests."""
    command = _command(commands, name, help_text, outputs=outputs, namespace=NAMESPACE_OF_FILES)
    command.add_argument(
        "-f",
        "--file",
        required=required,
        action="append",
        metavar="FILE",
        help="file or folder with jobs and recipes; - for standard input; repeatable",
    )
    command.add_argument(
        "--cluster", action="store_true", help="read recipes that are not in the files from the cluster"
    )
    return command


def _add_file_commands(commands: Commands[Parser]) -> None:
    """Add the commands that read manifests."""
    _file_command(
        commands,
        "validate",
        "check RLJobs as the operator does, and report all violations at once",
        outputs=(output.TEXT, *output.DATA),
    )
    show = _file_command(
        commands,
        "render",
        "print the objects that the operator would create: RayCluster and job.json",
        outputs=(output.YAML, output.JSON),
    )
    show.add_argument("--part", choices=("all", "raycluster", "job"), default="all", help="print only this part")
    show.add_argument(
        "--uid", default=STAND_IN_UID, help="UID of the RLJob, from which the names of its objects are derived"
    )
    show.add_argument(
        "--runtime-image",
        metavar="IMAGE",
        help="image whose runtime is injected into jobs with runtime.injection Auto; default: with --cluster, that of "
        "the installed operator",
    )
    why = _file_command(
        commands,
        "explain",
        "show where the value of each field comes from: job, recipe, default or decision",
        outputs=(output.TABLE, *output.DATA),
    )
    why.add_argument(
        "path",
        nargs="?",
        default="",
        metavar="PATH",
        help="show only this field and the fields below it, such as trainer.steps or any path that validate prints",
    )
    change = _file_command(
        commands,
        "diff",
        "show what a manifest would change in its running job, and when; exit code 1 if anything",
        outputs=(output.TABLE, *output.DATA),
    )
    change.add_argument(
        "--against",
        action="append",
        metavar="FILE",
        help="compare with the jobs of these files instead of the cluster; repeatable",
    )
    run = _file_command(
        commands,
        "run",
        "train on this machine, without Kubernetes; Ctrl-C saves a checkpoint, and the same command resumes",
    )
    run.add_argument("--local", action="store_true", help="run in a private Ray on this machine")
    run.add_argument(
        "--workdir", type=Path, metavar="FOLDER", help="folder that is kept between runs; default: .rljob/<job>"
    )
    run.add_argument(
        "--volume", action="append", default=[], metavar="NAME=FOLDER", help="folder to use for a volume; repeatable"
    )
    run.add_argument("--code", type=Path, metavar="FOLDER", help="folder to use for code.mountPath")


def _add_plan(commands: Commands[Parser]) -> None:
    """Add the commands that estimate what a job needs."""
    planning = commands.add_parser("plan", help="estimate what a job needs and how long it takes")
    topics = planning.add_subparsers(dest="topic", required=True, metavar="TOPIC")
    memory, rollout, layouts = (
        _file_command(topics, name, help_text, outputs=(output.TABLE, *output.DATA), required=name != "memory")
        for name, help_text in plan_arguments.TOPICS.items()
    )
    plan_arguments.add(memory, rollout, layouts)


def _add_cluster_commands(commands: Commands[Parser]) -> None:
    """Add the commands about queues, usage and causes."""
    _command(
        commands,
        "quota",
        "show the cards of each team in Kueue: used, guaranteed and borrowed cards, and waiting jobs",
        outputs=(output.TABLE, *output.DATA),
        namespace="show only the jobs of this namespace; default: all namespaces",
    )
    used = _command(
        commands,
        "usage",
        "show card-hours of a month by team or job, held and productive; also as CSV",
        outputs=(output.TABLE, output.CSV, *output.DATA),
        namespace="namespace of the jobs; default: the namespace of the context",
    )
    used.add_argument("--month", metavar="YYYY-MM", help="month in UTC; default: the current one")
    _add_all_namespaces(used)
    used.add_argument(
        "--prometheus",
        metavar="URL",
        help="Prometheus to query; default: use the statuses of the jobs that still exist",
    )
    used.add_argument(
        "--by", choices=usage.KINDS, default=usage.KINDS[0], help="what to sum by, with --prometheus; default: queue"
    )
    reason = _command(
        commands,
        "describe",
        "explain why an RLJob does not run: queue, quota, nodes, image or volume",
        outputs=(output.TEXT, *output.DATA),
    )
    _add_name(reason)


def _add_looks(commands: Commands[Parser]) -> None:
    """Add the commands that show jobs."""
    status = _command(
        commands,
        "status",
        "show the state of an RLJob; exit code 1 if it failed",
        outputs=(output.TEXT, *output.DATA),
    )
    _add_name(status)
    status.add_argument(
        "-w", "--watch", action="store_true", help="follow it until it ends; the exit code reflects how it ended"
    )
    looking = _command(
        commands,
        "top",
        "show every RLJob in a live table; press Ctrl-C to exit",
        outputs=(output.TABLE, *output.DATA),
        namespace="namespace of the jobs; default: the namespace of the context",
    )
    _add_all_namespaces(looking)
    looking.add_argument(
        "--once", action="store_true", help="print the table once, which is the default without a terminal"
    )
    for command in (status, looking):
        command.add_argument(
            "--interval", type=_interval, default=2.0, metavar="SECONDS", help="seconds between updates; default: 2"
        )
    logs = _command(
        commands,
        "logs",
        "copy the logs of a running job's nodes and devices, and its stacks, to its log volume",
        outputs=(output.TEXT, *output.DATA),
    )
    _add_name(logs)
    logs.add_argument("--collect", action="store_true", required=True, help="copy them; the run continues")
    report = _command(commands, "report", "write one HTML file about a run: plots, attempts, usage and configuration")
    _add_name(report)
    report.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="file to write; default: report.html",
    )
    where = report.add_mutually_exclusive_group()
    where.add_argument(
        "--records",
        type=Path,
        metavar="FOLDER",
        help="folder where observability.logPath is mounted; default: read the records in a pod",
    )
    where.add_argument("--prometheus", metavar="URL", help="use the metrics that this Prometheus has scraped")
    where.add_argument("--local", action="store_true", help="report on a run of `rljob run --local`")
    report.add_argument("--workdir", type=Path, metavar="FOLDER", help="folder of a local run; default: .rljob/NAME")
    report.add_argument(
        "--since", type=_hours, metavar="HOURS", help="how far back to query Prometheus for a deleted job, in hours"
    )


def _add_check_image(commands: Commands[Parser]) -> None:
    """Add the command that examines an image in a pod."""
    check = _command(
        commands,
        "check-image",
        "check in a pod whether an image can run jobs; exit code 0 fits, 3 degraded, 64 refused",
        outputs=(output.TABLE, *output.DATA),
        namespace="namespace to create the pod in; default: the namespace of the context",
    )
    check.add_argument("image", metavar="IMAGE", help="image to check")
    check.add_argument(
        "--class", dest="accelerator_class", metavar="CLASS", help="use a node of this accelerator class; default: any"
    )
    check.add_argument(
        "--launcher", choices=("Verl", "Command"), default="Verl", help="launcher that decides the exit code"
    )
    check.add_argument(
        "--image-pull-secret", action="append", default=[], metavar="NAME", help="Secret for its registry; repeatable"
    )
    check.add_argument(
        "--runtime-image", metavar="IMAGE", help="image with the runtime; default: that of the installed operator"
    )
    check.add_argument(
        "--run-as-user", type=_user, default=65532, metavar="UID", help="user ID of the containers; default: 65532"
    )
    check.add_argument(
        "--timeout", type=_seconds, default=300, metavar="TIME", help="limit, image pull included; default: 5m"
    )


def _add_conformance(commands: Commands[Parser]) -> None:
    """Add the command that checks a cluster by a run of its own."""
    check = _command(
        commands,
        "conformance",
        "check on the cluster that this release does what it claims, with a small job of its own; exit code 1 if not",
        outputs=(output.TABLE, output.JSON),
        namespace="namespace to create the job in; default: the namespace of the context",
    )
    check.add_argument(
        "--class", dest="accelerator_class", default="cpu", metavar="CLASS", help="accelerator class; default: cpu"
    )
    check.add_argument("--image", help="runtime image; default for class cpu: that of the quickstart")
    check.add_argument(
        "--image-pull-secret", action="append", default=[], metavar="NAME", help="Secret for its registry; repeatable"
    )
    check.add_argument(
        "--devices", type=_count, metavar="N", help="devices to use; default: a whole node, with class cpu 2"
    )
    check.add_argument("--steps", type=_count, default=40, metavar="N", help="steps to train, at least 16; default: 40")
    check.add_argument("--node", metavar="NAME", help="run head and worker on this node")
    check.add_argument("--storage-class", metavar="NAME", help="StorageClass of the volume; default: the cluster's")
    check.add_argument(
        "--access-mode",
        choices=("ReadWriteMany", "ReadWriteOnce"),
        default="ReadWriteMany",
        help="access mode of the volume; ReadWriteOnce needs --node; default: ReadWriteMany",
    )
    check.add_argument("--queue", metavar="NAME", help="queue of Kueue, or of Volcano with --gang Volcano")
    check.add_argument("--gang", choices=("Volcano", "Kueue"), help="scheduler that starts the pods together")
    check.add_argument("--report", type=Path, metavar="FILE", help="write the result as JSON, to attach to a report")
    check.add_argument("--keep", action="store_true", help="do not delete what the run created")
    check.add_argument("--list", action="store_true", help="print the claims, and use no cluster")


def _add_name(command: Parser) -> None:
    command.add_argument("name", metavar="NAME", help="name of the RLJob, or NAMESPACE/NAME")


def _add_all_namespaces(command: Parser) -> None:
    command.add_argument("-A", "--all-namespaces", action="store_true", help="the jobs of all namespaces")


def _interval(text: str) -> float:
    return _number(
        text, "seconds, such as 2", lambda number: number >= SHORTEST_INTERVAL, f"at least {SHORTEST_INTERVAL}"
    )


def _count(text: str) -> int:
    return int(_number(text, "devices, such as 2", lambda number: number >= 1 and number.is_integer(), "at least 1"))


def _hours(text: str) -> float:
    return _number(text, "hours, such as 12", lambda number: number > 0, "more than 0")


USER_MAX = 2**31 - 1
"""kubernetes v1.36.2, pkg/apis/core/validation: a user ID is from 0 to 2147483647."""


def _user(text: str) -> int:
    if not text.isdecimal() or int(text) > USER_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} must be a user ID, such as 1000")
    return int(text)


_UNITS = {"s": 1, "m": 60, "h": 3600}
TIMEOUT_MAX = 6 * 3600


def _seconds(text: str) -> int:
    found = re.fullmatch(r"(\d{1,5})([smh])", text)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 1 <= seconds <= TIMEOUT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} must be a time from 1s to 6h, such as 90s or 5m")
    return seconds


def _number(text: str, unit: str, fits: Callable[[float], bool], bound: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and fits(number)):
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of {unit}, and {bound}")
    return number


_CHOICE = re.compile(r"(?:argument )?(.*): invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)
_REQUIRED = "the following arguments are required: "
_MISSING = {
    "-f/--file": "pass a manifest with -f FILE, or -f - for standard input",
    "NAME": "name the RLJob; `rljob top` lists them",
    "IMAGE": "name the image to check",
    "COMMAND": "name a command, such as validate",
    "TOPIC": "name what to plan: memory, rollout or report",
}


def _with_fix(message: str) -> str:
    """Return an error of argparse with what to do about it (the texts of CPython 3.11 to 3.14, argparse.py)."""
    if found := _CHOICE.fullmatch(message):
        name, given, listed = found.groups()
        known = re.findall(r"[^', ]+", listed)
        near = difflib.get_close_matches(given, known, n=1)
        fix = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(known)}"
        return f"{name} {given!r} is not known; {fix}"
    if message.startswith(_REQUIRED):
        missing = [name.strip() for name in message.removeprefix(_REQUIRED).split(",")]
        fixes = [_MISSING[name] for name in missing if name in _MISSING]
        return "; ".join([f"{', '.join(missing)} is missing", *fixes])
    return message


def _unknown(rest: Sequence[str], parser: Parser) -> str:
    """Return what to do about arguments that a command does not have."""
    known = [option for action in parser._actions for option in action.option_strings]  # noqa: SLF001 - no other way
    word = rest[0].partition("=")[0]
    near = difflib.get_close_matches(word, known, n=1) if word.startswith("-") else []
    if near:
        return f"unknown argument {rest[0]}; did you mean {near[0]}?"
    if "-f" in known and not word.startswith("-"):
        return f"unexpected argument {rest[0]}; pass files with -f, as in -f {rest[0]}"
    return f"unknown argument {rest[0]}; leave it out"
