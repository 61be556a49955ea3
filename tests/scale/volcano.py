"""Volcano for the control plane of `plane.py`: its CRDs, its scheduler, and the controller that opens its queues.

It is configured as in its chart, but without the webhooks, which are not part of the tests.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import yaml

from tests.cluster import programs
from tests.cluster.components import answers
from tests.scale.client import Client
from tests.scale.plane import CRDS, Plane, await_crds, free_port

SCHEDULER, CONTROLLERS = "volcano-scheduler", "volcano-controllers"
CONFIGURATION = {
    "actions": "enqueue, allocate, backfill",
    "tiers": [
        {"plugins": [{"name": "priority"}, {"name": "gang", "enablePreemptable": False}, {"name": "conformance"}]},
        {
            "plugins": [
                {"name": "overcommit"},
                {"name": "drf", "enablePreemptable": False},
                *({"name": name} for name in ("predicates", "proportion", "nodeorder", "binpack")),
            ]
        },
    ],
}
"""installer/helm/chart/volcano/config/volcano-scheduler.conf of v1.14.1."""


async def start_volcano(plane: Plane, client: Client) -> None:
    """Start Volcano. From now on PodGroups are served and its queues are open."""
    await asyncio.to_thread(programs.build, ["volcano"])
    crds = [yaml.safe_load(path.read_text()) for path in sorted(_bases().glob("*.yaml"))]
    for crd in crds:
        await client.ask("POST", CRDS, crd)
    await await_crds(client, [crd["metadata"]["name"] for crd in crds])
    # In a separate folder, because the scheduler watches it.
    folder = plane.folder / "volcano"
    folder.mkdir()
    (folder / "scheduler.yaml").write_text(yaml.safe_dump(CONFIGURATION))
    kubeconfig = f"--kubeconfig={plane.state.admin_kubeconfig}"
    for name, binary, words in (
        (CONTROLLERS, "controller-manager", ("--controllers=queue-controller",)),
        (SCHEDULER, "scheduler", (f"--scheduler-conf={folder / 'scheduler.yaml'}", f"--cache-dump-dir={folder}")),
    ):
        health = f"127.0.0.1:{free_port()}"
        probe = f"http://{health}/healthz"
        common = (kubeconfig, "--leader-elect=false", "--enable-healthz", f"--healthz-address={health}")
        plane.start(name, programs.binary("volcano", binary), *common, *words)
        await plane.wait(name, "answers /healthz", lambda probe=probe: answers(probe))  # type: ignore[misc]


def _bases() -> Path:
    return programs.entry("volcano") / "config/crd/volcano/bases"
