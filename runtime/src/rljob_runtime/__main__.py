"""Command line of the runtime image, called by the operator's pods and submissions.

python -m rljob_runtime launch          entrypoint of the Ray job
python -m rljob_runtime exporter        the head's sidecar
python -m rljob_runtime collect         copies the logs of all nodes to the log volume
python -m rljob_runtime stop            the preStop hook of head and workers
python -m rljob_runtime export          the container that exports a checkpoint
python -m rljob_runtime fetch-code      the init container of pods whose code is in Git
python -m rljob_runtime copy-runtime    the init container of pods whose image need not have the runtime
python -m rljob_runtime initialize      an initializer that downloads or converts
python -m rljob_runtime check-image     whether this image can run jobs, for people
python -m rljob_runtime requirements    packages that a machine without the image needs, for pip install --no-deps
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from rljob_runtime.contract import PodVariable, Port, StopMode, exporter_port, head_paths

SIGNALLED = 128


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand. Each subcommand imports only what it needs."""
    options = parser().parse_args(arguments)
    spool = Path(os.environ.get(PodVariable.SPOOL) or head_paths().spool)
    if options.command in ("requirements", "copy-runtime"):
        print(printed(options), end="")  # noqa: T201 - its purpose, and the container's log
        return 0
    if options.command == "check-image":
        from rljob_runtime.image_check.facts import Launcher
        from rljob_runtime.image_check.report import check_image

        return check_image(Launcher(options.launcher), options.output, deep=options.deep)
    if options.command in ("exporter", "collect"):
        return beside_the_run(options, spool)
    if options.command == "await-listener":
        from rljob_runtime import stop

        return 0 if stop.await_listener(stop.PROCESS_ONE) else 1
    if options.command == "stop":
        return 0 if stopped(options, spool) else 1
    if options.command in ("initialize", "export", "fetch-code"):
        return run_helper(options)
    from rljob_runtime.launch import Patience, launch, leave

    patience = Patience(options.devices_wait_seconds, options.predecessor_wait_seconds)
    return leave(launch(os.environ, patience))


def run_helper(options: argparse.Namespace) -> int:
    """Run the program of a container that ends by itself."""
    if options.command == "export":
        from rljob_runtime.export.command import export, termination_log

        return export(options.request, termination_log())
    # The kernel ends process 1 of a container by no signal that it has no handler for: a deleted pod would work on
    # until its grace period has passed. Both programs may be killed at any time, so nothing is left to be done.
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(SIGNALLED + number))
    if options.command == "initialize":
        from rljob_runtime.initializers.command import initialize

        return initialize(options.request, os.environ)
    from rljob_runtime.fetch_code import CodeRequest, fetch_code

    wanted = CodeRequest(options.url, options.revision, options.folder, options.sub_path, options.seconds)
    return fetch_code(wanted, os.environ)


def beside_the_run(options: argparse.Namespace, spool: Path) -> int:
    """Serve the run's progress, or collect its logs."""
    if options.command == "collect":
        from rljob_runtime.collection.command import run

        code = run(os.environ, spool, options.seconds, live=options.live)
        sys.stdout.flush()
        # Without the exit handlers of Ray, which may wait for a cluster that is broken.
        os._exit(code)
    from rljob_runtime.exporter.server import serve

    return serve(os.environ, spool, options.outlive_seconds)


def printed(options: argparse.Namespace) -> str:
    """Run a subcommand that cannot fail without an exception, and return what it prints."""
    if options.command == "requirements":
        return (Path(__file__).parent / "requirements-cpu.txt").read_text()
    from rljob_runtime.copy_runtime import SOURCE, copy_runtime

    return copy_runtime(SOURCE, options.folder, with_verl=options.with_verl) + "\n"


def stopped(options: argparse.Namespace, spool: Path) -> bool:
    """Run the preStop hook of this pod; return whether the run ended in time."""
    from rljob_runtime import stop
    from rljob_runtime.spool.spool import Spool

    if options.head_file is None:
        ended = stop.stop_here(Spool(spool), options.mode, options.wait)
    else:
        address = stop.head_address(options.head_file, os.environ.get(stop.HEAD_NAME, ""))
        head = stop.Head(address, os.environ.get(PodVariable.TOKEN, ""), exporter_port(os.environ, Port.API))
        ended = stop.stop(head, options.mode, options.wait)
    # The kubelet sends SIGTERM as soon as the hook returns.
    stop.await_listener(stop.PROCESS_ONE)
    return ended


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    root = argparse.ArgumentParser(prog="rljob_runtime", description=__doc__)
    commands = root.add_subparsers(dest="command", required=True)
    run = commands.add_parser("launch", help="run one attempt; the Ray job's entrypoint")
    run.add_argument("--devices-wait-seconds", type=float, default=300.0, help="wait for the nodes' devices")
    run.add_argument("--predecessor-wait-seconds", type=float, default=60.0, help="wait for an earlier run to end")
    out = commands.add_parser("export", help="export a checkpoint; the container of a Job")
    out.add_argument("request", help="what to export, as the JSON of contract/export.py")
    export = commands.add_parser("exporter", help="serve metrics and progress; the head's sidecar")
    export.add_argument(
        "--outlive-seconds", type=float, default=0.0, help="keep serving after SIGTERM while a run saves"
    )
    logs = commands.add_parser("collect", help="copy the newest attempt's logs of all nodes to the log volume")
    logs.add_argument("--seconds", type=float, default=120.0, help="time limit")
    logs.add_argument("--live", action="store_true", help="the run continues: save its stacks, export devices' logs")
    halt = commands.add_parser("stop", help="ask the trainer to stop and wait for it; the preStop hook")
    halt.add_argument("--mode", type=StopMode, default=StopMode.AFTER_STEP, choices=list(StopMode))
    halt.add_argument(
        "--wait", type=float, required=True, metavar="SECONDS", help="limit, counted from the first stop request"
    )
    halt.add_argument("--head-file", type=Path, help="on a worker: file with the head's address")
    commands.add_parser(
        "await-listener",
        help="wait until process 1 of this container handles SIGTERM; the preStop hook of the exporter",
    )
    fetch = commands.add_parser("fetch-code", help="fetch one commit of a Git repository; an init container")
    fetch.add_argument("--url", required=True)
    fetch.add_argument("--revision", required=True, help="full hash of the commit")
    fetch.add_argument("--folder", type=Path, required=True, help="target; its contents are replaced")
    fetch.add_argument("--sub-path", default="", help="folder in the repository (default: its root)")
    fetch.add_argument("--seconds", type=float, default=600.0, help="time limit for all attempts together")
    copy = commands.add_parser("copy-runtime", help="copy the runtime of this image to a folder; an init container")
    copy.add_argument("folder", type=Path, help="target, an empty volume")
    copy.add_argument("--with-verl", action="store_true", help="copy verl too, for a job that verl trains")
    first = commands.add_parser("initialize", help="download a model or a data set, or convert weights")
    first.add_argument("request", help="what to do, as the contract has it (InitializerRequest)")
    commands.add_parser("requirements", help="print the packages of the CPU image, pinned")
    image = commands.add_parser("check-image", help="report whether this image can run jobs")
    image.add_argument("-o", "--output", default="table", choices=["table", "json"])
    image.add_argument("--deep", action="store_true", help="import what a run imports as well; takes a minute or more")
    image.add_argument(
        "--launcher",
        default="Verl",
        choices=["Verl", "Command"],
        help="launcher that decides the exit code: 0, 3 or 64",
    )
    return root


if __name__ == "__main__":
    raise SystemExit(main())
