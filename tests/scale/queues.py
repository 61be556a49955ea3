"""The chart's queues on a control plane of the tests: Kueue's objects, and the rows that the operator is told."""

from __future__ import annotations

import json
from pathlib import Path

from tests.chart.helm import pick, render
from tests.scale.client import Client, Manifest

GROUP = "/apis/kueue.x-k8s.io/v1beta2"
KINDS = {
    "ClusterQueue": "clusterqueues",
    "Cohort": "cohorts",
    "LocalQueue": "localqueues",
    "ResourceFlavor": "resourceflavors",
    "Topology": "topologies",
    "WorkloadPriorityClass": "workloadpriorityclasses",
}


async def apply(client: Client, values: Path, query: str = "") -> list[Manifest]:
    """Create what the chart makes of the queues; gives the objects."""
    made = [item for item in render("--values", values) if item["kind"] in KINDS]
    for item in made:
        space = f"/namespaces/{item['metadata']['namespace']}" if "namespace" in item["metadata"] else ""
        if query and space:
            # A dry run makes no namespace.
            continue
        path = f"{GROUP}{space}/{KINDS[item['kind']]}/{item['metadata']['name']}"
        await client.ask("PATCH", f"{path}?fieldManager=scale&force=true{query}", json.dumps(item), "apply-patch+yaml")
    return made


def write_accelerators(values: Path, folder: Path) -> None:
    """Put the files of the chart's ConfigMap of accelerator classes where an operator may read them."""
    folder.mkdir()
    for name, text in pick(render("--values", values), "ConfigMap", "rljob-operator-accelerators")["data"].items():
        (folder / name).write_text(text)
