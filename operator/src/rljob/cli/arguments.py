"""The arguments of the commands of `rljob`."""

from __future__ import annotations

import argparse
from pathlib import Path

from rljob.cli import quota, usage
from rljob.cli.plan import OUTPUTS
from rljob.cli.render import STAND_IN_UID

SHORTEST_INTERVAL = 0.5


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="rljob", description="Manage reinforcement-learning training jobs on Kubernetes."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add_file_commands(commands)
    _add_plan(commands)
    _add_looks(commands)
    _add_cluster_commands(commands)
    return parser


def _add_file_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands that read manifests."""
    validating = commands.add_parser(
        "validate", help="check RLJobs as the operator does, and report all violations at once"
    )
    show = commands.add_parser(
        "render", help="print the objects that the operator would create: RayCluster and job.json"
    )
    why = commands.add_parser(
        "explain", help="show where the value of each field comes from: job, recipe, default or decision"
    )
    why.add_argument("path", nargs="?", default="", help="show only this field and the fields below it")
    change = commands.add_parser(
        "diff", help="show what a manifest would change in its running job, and when; exit code 1 if anything"
    )
    change.add_argument(
        "--against", action="append", help="compare with the jobs of these files instead of the cluster"
    )
    run = commands.add_parser(
        "run", help="train on this machine, without Kubernetes; Ctrl-C saves a checkpoint, and the same command resumes"
    )
    for command in (validating, show, why, change, run):
        command.add_argument(
            "-f",
            "--file",
            required=True,
            action="append",
            help="files or folders with jobs and recipes; - for stdin",
        )
        command.add_argument(
            "--cluster", action="store_true", help="read recipes that are not in the files from the cluster"
        )
        command.add_argument("--context", help="context of the kubeconfig to use")
        command.add_argument(
            "--accelerators",
            action="append",
            type=Path,
            metavar="FILE",
            help="file with accelerator classes of the cluster: the operator's ConfigMap, or the chart value of "
            "that name",
        )
    show.add_argument("--part", choices=("all", "raycluster", "job"), default="all")
    show.add_argument(
        "--uid", default=STAND_IN_UID, help="UID of the RLJob, from which the names of its objects are derived"
    )
    run.add_argument("--local", action="store_true", help="run in a private Ray on this machine")
    run.add_argument(
        "--workdir", type=Path, metavar="FOLDER", help="folder that is kept between runs; default: .rljob/<job>"
    )
    run.add_argument(
        "--volume", action="append", default=[], metavar="NAME=FOLDER", help="folder to use for a volume; repeatable"
    )
    run.add_argument("--code", type=Path, metavar="FOLDER", help="folder to use for code.mountPath")


def _add_plan(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands that estimate resource needs."""
    planning = commands.add_parser("plan", help="estimate a job's resource needs")
    topics = planning.add_subparsers(dest="topic", required=True)
    memory = topics.add_parser(
        "memory", help="estimate the memory of a die in each phase of a step; exit code 1 if it does not fit"
    )
    memory.add_argument("file", nargs="+", help="files or folders with jobs and recipes; - for stdin")
    memory.add_argument("--model-config", type=Path, metavar="FILE", help="config.json of a model that is not built in")
    memory.add_argument("-o", "--output", choices=OUTPUTS, default=OUTPUTS[0])
    memory.add_argument(
        "--cluster", action="store_true", help="read recipes that are not in the files from the cluster"
    )
    memory.add_argument("--context", help="context of the kubeconfig to use")


def _add_cluster_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands about queues, usage and causes."""
    shares = commands.add_parser(
        "quota", help="show the cards of each team in Kueue: used, guaranteed and borrowed cards, and waiting jobs"
    )
    shares.add_argument("-n", "--namespace", help="show only the jobs of this namespace; default: all namespaces")
    shares.add_argument("--context", help="context of the kubeconfig to use")
    shares.add_argument("-o", "--output", choices=quota.FORMATS, default=quota.FORMATS[0])
    used = commands.add_parser(
        "usage", help="show card-hours of a month by team or job, held and productive; also as CSV"
    )
    used.add_argument("--month", metavar="YYYY-MM", help="month in UTC; default: the current one")
    used.add_argument("-n", "--namespace", help="namespace of the jobs (default: the namespace of the context)")
    used.add_argument("-A", "--all-namespaces", action="store_true")
    used.add_argument("--context", help="context of the kubeconfig to use")
    used.add_argument(
        "--prometheus",
        metavar="URL",
        help="Prometheus to query; default: use the statuses of the jobs that still exist",
    )
    used.add_argument(
        "--by", choices=usage.KINDS, default=usage.KINDS[0], help="what to sum by, with --prometheus; default: queue"
    )
    used.add_argument("-o", "--output", choices=usage.FORMATS, default=usage.FORMATS[0])
    reason = commands.add_parser(
        "describe", help="explain why an RLJob does not run: queue, quota, nodes, image or volume"
    )
    reason.add_argument("name")
    reason.add_argument("-n", "--namespace", help="namespace of the job (default: the namespace of the context)")
    reason.add_argument("--context", help="context of the kubeconfig to use")


def _add_looks(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands that show jobs."""
    status = commands.add_parser("status", help="show the state of an RLJob; exit code 1 if it failed")
    status.add_argument("name")
    status.add_argument(
        "-w", "--watch", action="store_true", help="follow it until it ends; the exit code reflects how it ended"
    )
    looking = commands.add_parser("top", help="show every RLJob in a live table; press Ctrl-C to exit")
    looking.add_argument("-A", "--all-namespaces", action="store_true")
    looking.add_argument(
        "--once", action="store_true", help="print the table once, which is the default without a terminal"
    )
    report = commands.add_parser(
        "report", help="write one HTML file about a run: plots, attempts, usage and configuration"
    )
    report.add_argument("name")
    report.add_argument("-o", "--output", type=Path, default=Path("report.html"), metavar="FILE")
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
        "--since", type=float, metavar="HOURS", help="how far back to query Prometheus for a deleted job, in hours"
    )
    for command in (status, looking, report):
        command.add_argument("-n", "--namespace", help="namespace of the job (default: the namespace of the context)")
        command.add_argument("--context", help="context of the kubeconfig to use")
    for command in (status, looking):
        command.add_argument(
            "--interval", type=_interval, default=2.0, metavar="SECONDS", help="seconds between updates; default: 2"
        )


def _interval(text: str) -> float:
    seconds = float(text)
    if not seconds >= SHORTEST_INTERVAL:
        raise argparse.ArgumentTypeError(f"{text}: the interval must be at least {SHORTEST_INTERVAL} s")
    return seconds
