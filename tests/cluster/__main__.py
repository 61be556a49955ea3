"""The command line: `python -m tests.cluster <command>` from the root of the repository."""

import argparse
import os
import sys
from pathlib import Path

from tests.cluster import images, imagestore, kueue, leaks, lifecycle, npu, processes, programs
from tests.cluster.api import Api
from tests.cluster.errors import ClusterError
from tests.cluster.nodes import NO_CPU_MANAGER, STATIC_CPU_MANAGER, Node
from tests.cluster.paths import state

FAILED = 1
KUEUE = "kueue"


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        return int(_COMMANDS[chosen.command](chosen) or 0)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return 130


def _up(chosen: argparse.Namespace) -> None:
    _require_root()
    lifecycle.up(state(), node_count=chosen.nodes, npus=chosen.npus, cpu_manager=chosen.cpu_manager)
    if chosen.extra == KUEUE:
        kueue.install(Api(state()), lifecycle.running_nodes(state()))


def _down(chosen: argparse.Namespace) -> None:
    _require_root()
    lifecycle.down(state(), purge=chosen.purge)


def _addon(chosen: argparse.Namespace) -> None:
    nodes = lifecycle.running_nodes(state())
    if chosen.remove:
        kueue.remove(Api(state()))
    else:
        kueue.install(Api(state()), nodes)


def _status(_: argparse.Namespace) -> int:
    well, lines = lifecycle.status(state())
    print("\n".join(lines))
    return 0 if well else FAILED


def _leaks(_: argparse.Namespace) -> int:
    found = leaks.find(state()).lines()
    print("\n".join(found) if found else "nothing of the cluster is left on this machine")
    return FAILED if found else 0


def _build(chosen: argparse.Namespace) -> None:
    seconds = programs.build(chosen.names)
    print(f"built {len(seconds)} programs" if seconds else "nothing to build")


def _path(chosen: argparse.Namespace) -> None:
    programs.build([chosen.name])
    print(programs.entry(chosen.name))


def _kubeconfig(_: argparse.Namespace) -> None:
    path = state().admin_kubeconfig
    if not path.exists():
        raise ClusterError("no cluster has been started here; run `python -m tests.cluster up`")
    print(path)


def _npu(chosen: argparse.Namespace) -> None:
    node = Node(chosen.node, state())
    if chosen.verb == "list":
        print(npu.command(node, "list"))
        return
    if not chosen.device:
        raise ClusterError(f"name a device: `python -m tests.cluster npu {chosen.verb} Ascend910-0`")
    npu.set_health(node, chosen.device, healthy=chosen.verb == "healthy")


def _image(chosen: argparse.Namespace) -> None:
    _require_root()
    if chosen.verb == "build":
        for source in chosen.sources:
            named = images.TABLE.get(source)
            recipe = named or images.recipe_of_folder(Path(source), chosen.tag or "", chosen.build_arg)
            print(images.build(recipe).manifest.digest)
        return
    nodes = lifecycle.running_nodes(state())
    if chosen.verb == "load":
        images.load(chosen.names or images.LOADED, nodes)
        return
    for node in nodes:
        imagestore.ensure_image(node, images.built(chosen.tag))


def _logs(chosen: argparse.Namespace) -> None:
    print(processes.tail(lifecycle.log_of(state(), chosen.component), chosen.lines))


_COMMANDS = {
    "addon": _addon,
    "build": _build,
    "down": _down,
    "image": _image,
    "kubeconfig": _kubeconfig,
    "leaks": _leaks,
    "logs": _logs,
    "npu": _npu,
    "path": _path,
    "status": _status,
    "up": _up,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description="Run a local Kubernetes.")
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="compile missing programs")
    build.add_argument("names", nargs="*", help="default: all except those that are only built on request")
    up = commands.add_parser("up", help="start or repair the cluster")
    up.add_argument("--nodes", type=int, choices=(1, 2), help="number of nodes; default: unchanged, or 1")
    up.add_argument("--npus", type=int, help="NPUs per node; default: unchanged, or 4")
    policies = (NO_CPU_MANAGER, STATIC_CPU_MANAGER)
    up.add_argument(
        "--cpu-manager", choices=policies, help="CPU manager policy of the kubelets; default: unchanged, or none"
    )
    up.add_argument("--with", dest="extra", choices=(KUEUE,), help="also install what only some tests need")
    addon = commands.add_parser("addon", help="install or remove what only some tests need")
    addon.add_argument("name", choices=(KUEUE,))
    addon.add_argument("--remove", action="store_true", help="remove all objects of its kinds too")
    down = commands.add_parser("down", help="stop the cluster and remove it")
    down.add_argument("--purge", action="store_true", help="remove images, keys and logs too")
    commands.add_parser("status", help="show the state of all components; exit code 1 if one does not work")
    commands.add_parser("leaks", help="show what is left on the machine; exit code 1 if there is anything")
    commands.add_parser("kubeconfig", help="print the path of the admin's kubeconfig")
    path = commands.add_parser("path", help="print the folder of a program, after building it if necessary")
    path.add_argument("name")
    device = commands.add_parser("npu", help="make a fake NPU unhealthy or healthy, or list them")
    device.add_argument("verb", choices=("unhealthy", "healthy", "list"))
    device.add_argument("device", nargs="?", help="Ascend910-0, Ascend910-1, …")
    device.add_argument("--node", type=int, default=1)
    _add_image_commands(commands.add_parser("image", help="build images and import them into the nodes"))
    logs = commands.add_parser("logs", help="show the end of a component's log")
    logs.add_argument("component")
    logs.add_argument("--lines", type=int, default=100)
    return parser


def _add_image_commands(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True)
    build = verbs.add_parser("build", help="build an image unless an identical one is in the cache")
    build.add_argument("sources", nargs="+", help=f"a folder with a Dockerfile, or of {', '.join(images.TABLE)}")
    build.add_argument("--tag", help="required for a folder")
    build.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    bring = verbs.add_parser("import", help="import a built image into every node")
    bring.add_argument("tag")
    load = verbs.add_parser("load", help="build images of the table and import them into every node")
    load.add_argument("names", nargs="*", help=f"default: {' '.join(images.LOADED)}")


def _require_root() -> None:
    if os.geteuid() != 0:
        raise ClusterError("the cluster creates namespaces, mounts and cgroups: run this as root")


if __name__ == "__main__":
    sys.exit(main())
