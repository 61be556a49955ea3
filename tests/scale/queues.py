"""The chart's queues on a control plane of the tests: Kueue's objects, and the accelerator classes for the operator."""

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
    """Create the chart's objects for the queues and return them."""
    made = [item for item in render("--values", values) if item["kind"] in KINDS]
    for item in made:
        space = f"/namespaces/{item['metadata']['namespace']}" if "namespace" in item["metadata"] else ""
        if query and space:
            # A dry run creates no namespace.
            continue
        path = f"{GROUP}{space}/{KINDS[item['kind']]}/{item['metadata']['name']}"
        await client.ask("PATCH", f"{path}?fieldManager=scale&force=true{query}", json.dumps(item), "apply-patch+yaml")
    return made


def write_accelerators(values: Path, folder: Path) -> None:
    """Write the files of the chart's ConfigMap of accelerator classes to a folder that an operator can read."""
    folder.mkdir()
    for name, text in pick(render("--values", values), "ConfigMap", "rljob-operator-accelerators")["data"].items():
        (folder / name).write_text(text)
