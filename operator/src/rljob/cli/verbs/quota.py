"""`rljob quota`: show the shares of teams in Kueue."""

from __future__ import annotations

import argparse
from typing import Any

from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, command


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    command(
        commands,
        "quota",
        "show the cards of each team in Kueue: used, guaranteed and borrowed cards, and waiting jobs",
        _quota,
        outputs=output.FORMS,
        namespace="show only the jobs of this namespace; default: all namespaces",
        examples=(("quota", "show all teams"), ("quota -n team-a", "show only the jobs of one namespace")),
    )


def _quota(chosen: argparse.Namespace) -> int:
    """Print the shares of all teams, and the jobs of all namespaces or of one."""
    from rljob.cli import quota

    place = kubectl.Place(chosen.namespace, chosen.context)

    def read(plural: str, *options: str) -> list[dict[str, Any]]:
        return kubectl.list_items(f"{plural}.kueue.x-k8s.io", place, *options)

    where = () if chosen.namespace else ("--all-namespaces",)
    seen = quota.Kueue(
        cluster_queues=read("clusterqueues"),
        local_queues=read("localqueues", *where),
        flavors=read("resourceflavors"),
        workloads=read("workloads", *where),
    )
    print(quota.quota_page(seen, chosen.output))
    return 0
