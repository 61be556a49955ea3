"""`rljob version` and `rljob --version`: the command, the stack that it was made for, and what the cluster has."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from rljob.api.group import API_VERSION
from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, command
from rljob.cli.output import DATA, data_page
from rljob.cli.status import table

DISTRIBUTION = "rljob"


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = command(
        commands,
        "version",
        "show the versions of this command, of the stack that it was made for, and of the operator in the cluster",
        _version,
        outputs=output.FORMS,
        namespace="not used: operators of all namespaces are shown",
        examples=(
            ("version", "compare the command with the installed operator"),
            ("version --client -o json", "show only the versions of the command, without a cluster"),
        ),
    )
    made.add_argument("--client", action="store_true", help="use no cluster")


def _version(chosen: argparse.Namespace) -> int:
    from rljob.cli.installation import SELECTOR, deployments
    from rljob.cli.known_launchers import VERSIONS

    own = versions(VERSIONS)
    read = () if chosen.client else deployments(SELECTOR, kubectl.Place(context=chosen.context))
    found = read or ()
    if chosen.output in DATA:
        installed = [{"namespace": each.namespace, "version": each.version, "image": each.image} for each in found]
        print(data_page([{"client": own, "operators": installed}], chosen.output, [f"rljob/{own['rljob']}"]))
        return 0
    print(table(list(own.items())))
    if not chosen.client:
        rows = [(f"operator in {each.namespace}", each.version, each.image) for each in found]
        wide = chosen.output == output.WIDE
        absent = "operator  not readable: ask an administrator for the permission to list Deployments"
        none = absent if read is None else "operator  not found in the cluster"
        print(table([row if wide else row[:2] for row in rows]) if rows else none)
    return 0


def version_page(stack: Mapping[str, str]) -> str:
    """Return one line per component."""
    return table(list(versions(stack).items()))


def versions(stack: Mapping[str, str]) -> dict[str, str]:
    """Return the version of each component."""
    return {DISTRIBUTION: own_version(), "API": API_VERSION, **stack}


def own_version(distribution: str = DISTRIBUTION) -> str:
    """Return the version of the installed package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed as a package"
