"""The guide "Share 128 cards between three teams", executed: values, commands and job are read from the page.

API server, scheduler, Kueue, KubeRay, the chart by helm, kubectl and `rljob` are real; the sixteen Atlas A3 nodes are
virtual. `SPEC` contains the rest of the job, which the page leaves out.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from rljob.render import labels
from scripts.site.blocks import Verdict, blocks
from tests.chart import helm
from tests.cluster import programs
from tests.scale import shapes
from tests.scale.client import Client, Manifest
from tests.scale.plane import ROOT, Plane, control_plane, install
from tests.scale.run import background

pytestmark = [pytest.mark.integration, pytest.mark.queue, pytest.mark.asyncio(loop_scope="module")]

PAGE = ROOT / "docs" / "guides" / "queues.md"
NODES, CARDS_A_NODE = 16, 8
PATIENCE_SECONDS = 900.0
LOOK_SECONDS = 1.0
SPEC: dict[str, Any] = {
    "runtime": {"image": "registry.example/rljob/runtime:a3"},
    "accelerator": {"class": "atlas-a3"},
    "head": {"template": {"cpu": "16", "memory": "64Gi"}},
    "model": {"path": "/shared/model"},
    "data": {"train": ["/shared/train.parquet"], "maxPromptTokens": 512, "maxResponseTokens": 1024},
    "reward": {"path": "/shared/reward.py"},
    "trainer": {"steps": 100, "globalBatchSize": 2560, "samplesPerPrompt": 8},
    "checkpoint": {"path": "/shared/checkpoints", "everySteps": 20},
}
SHARED = {
    "volumes": [{"name": "shared", "nfs": {"server": "nfs.example", "path": "/shared"}}],
    "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
}


@dataclass(frozen=True)
class Guide:
    """What a reader of the page copies from it."""

    values: str
    job: Manifest
    commands: tuple[str, ...]
    lookups: tuple[str, ...]
    """kubectl commands in the text."""
    table: str


def read_guide(text: str) -> Guide:
    """Parse the page: the values, the job, the commands, and the output that it shows.

    The section on Volcano describes an alternative, which is not executed here.
    """
    text = text.partition("\n## Volcano")[0]
    tested = [block for block in blocks(PAGE.name, text) if block.verdict is Verdict.TESTED]
    values, job = (block.text for block in tested if block.language == "yaml")
    commands = tuple(line for block in tested if block.language == "sh" for line in block.text.splitlines())
    (table,) = re.findall(r"^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return Guide(values, yaml.safe_load(job), commands, tuple(re.findall("`(kubectl [^`]+)`", plain)), table)


GUIDE = read_guide(PAGE.read_text())


@dataclass
class Seen:
    """Output of the page's commands, and the state of the cluster."""

    printed: dict[str, str] = field(default_factory=dict)
    """By command."""
    held: dict[str, set[str]] = field(default_factory=dict)
    """Job -> nodes of its workers."""
    states: dict[str, str] = field(default_factory=dict)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Seen]:
    """Execute the page on a cluster as it describes."""
    values = yaml.safe_load(GUIDE.values)["queues"]
    spaces = sorted({space for team in values["teams"].values() for space in team["namespaces"]})
    (flavor,) = values["flavors"].values()
    hardware = replace(shapes.A3, labels=shapes.A3.labels | flavor["nodeLabels"])
    async with control_plane() as plane, plane.client() as client:
        await install(client)
        for space in spaces:
            await client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
        await client.create_all("/api/v1/nodes", [*hardware.nodes(NODES), *shapes.PLAIN.nodes(1)])
        await plane.start_kueue()
        await plane.start_kuberay()
        shell = Shell(plane, tmp_path_factory.mktemp("reader"))
        # The plane already has the CRDs and runs the operator itself.
        release = f"{helm.RELEASE} charts/rljob-operator --namespace {helm.NAMESPACE}"
        await shell.run(f"helm install {release} --create-namespace --set crds.enabled=false")
        (shell.folder / "queues.yaml").write_text(GUIDE.values)
        found = Seen()
        upgrade, quota = GUIDE.commands
        async with background(plane.keep_operator()):
            await shell.run(upgrade)
            await _submit(client, found)
            for command in (quota, *GUIDE.lookups):
                found.printed[command] = await shell.run(command)
            await _take_down(client, found)
            yield found


class Shell:
    """A terminal in the checkout with the programs of the page on its PATH."""

    def __init__(self, plane: Plane, folder: Path) -> None:
        self.folder = folder
        for name, program in (("helm", helm.binary()), ("kubectl", programs.entry("kube") / "kubectl")):
            (folder / name).symlink_to(program)
        words = [str(folder), str(Path(sys.executable).parent), os.environ["PATH"]]
        self._environment = os.environ | {"PATH": ":".join(words), "KUBECONFIG": str(plane.state.admin_kubeconfig)}
        (folder / "charts").symlink_to(ROOT / "charts")

    async def run(self, command: str) -> str:
        """Run a command of the page and return its output."""
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return str(done.stdout)


async def _submit(client: Client, found: Seen) -> None:
    """Submit the jobs of the page's table in order, each when the previous one has the state shown there."""
    for line in _rows(GUIDE.table)["jobs"]:
        space, name = line[2].split("/")
        body = _job(space, name, round(float(line[3])))
        await client.ask("POST", f"/apis/rljob.dev/v1alpha1/namespaces/{space}/rljobs", body)
        wanted = {"Runs": "Starting", "Waits 1.": "Queued"}[line[1]]
        await _until(client, found, name, wanted, line[-1].removesuffix("…"))


def _job(space: str, name: str, cards: int) -> Manifest:
    """Complete the page's job with a number of cards."""
    nodes = cards // CARDS_A_NODE
    workers = {"name": "trainer", "nodes": nodes, "devicesPerNode": 16, "template": SHARED}
    metadata = GUIDE.job["metadata"] | {"name": name, "namespace": space}
    return GUIDE.job | {"metadata": metadata, "spec": SPEC | {"workerGroups": [workers]} | GUIDE.job["spec"]}


async def _until(client: Client, found: Seen, name: str, wanted: str, why: str) -> None:
    """Wait for the state of a job and, for a starting job, for the nodes of all its workers."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_SECONDS
    while True:
        jobs, _ = await client.list("/apis/rljob.dev/v1alpha1/rljobs")
        status = next(job.get("status") or {} for job in jobs if job["metadata"]["name"] == name)
        found.states[name] = str(status.get("state", ""))
        await _take_down(client, found)
        nodes = (status.get("resolved") or {}).get("nodes")
        # The operator reports Queued before Kueue has decided; the page shows Kueue's message.
        there = _why(status).startswith(why) if wanted == "Queued" else len(found.held.get(name, ())) == nodes
        if found.states[name] == wanted and there:
            return
        assert loop.time() < deadline, f"{name} is not {wanted}: {json.dumps(status)[:2000]}"
        await asyncio.sleep(LOOK_SECONDS)


def _why(status: Manifest) -> str:
    conditions = status.get("conditions") or ()
    return next((str(entry["message"]) for entry in conditions if entry["type"] == "Admitted"), "")


async def _take_down(client: Client, found: Seen) -> None:
    found.held = {}
    for pod in (await client.list(f"/api/v1/pods?labelSelector={labels.RAY_NODE_TYPE}=worker"))[0]:
        if pod["spec"].get("nodeName"):
            found.held.setdefault(pod["metadata"]["labels"][labels.JOB], set()).add(pod["spec"]["nodeName"])


def _rows(table: str) -> dict[str, list[list[str]]]:
    """Parse the output of `rljob quota`: columns are separated by two spaces, or start where their title starts."""
    parts = {}
    for name, part in zip(("shares", "jobs"), table.strip().split("\n\n"), strict=True):
        head, *lines = part.splitlines()
        starts = [found.start() for found in re.finditer(r"(?:^|(?<=  ))\S", head)]
        ends = [*starts[1:], None]
        cut = [[line[a:b].strip() for a, b in zip(starts, ends, strict=True)] for line in (head, *lines)]
        parts[f"{name} head"], parts[name] = cut[:1], cut[1:]
    return parts


async def test_the_page_shows_the_labels_of_the_nodes(seen: Seen) -> None:
    (label,) = yaml.safe_load(GUIDE.values)["queues"]["flavors"]["a3"]["nodeLabels"].values()
    assert seen.printed["kubectl get nodes -L servertype"].count(label) == NODES


async def test_the_chart_makes_the_teams_and_counts_in_devices(seen: Seen) -> None:
    shown = re.search("`(kubectl [^`]+)` shows ([0-9]+) for 64 cards", PAGE.read_text())
    assert shown is not None
    quotas = {
        flavor["name"]: resource["nominalQuota"]
        for group in yaml.safe_load(seen.printed[shown[1]])["spec"]["resourceGroups"]
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        if "/" in resource["name"]
    }
    assert quotas["a3"] == shown[2]


async def test_quota_prints_the_table_of_the_page(seen: Seen) -> None:
    shown, printed = _rows(GUIDE.table), _rows(seen.printed["rljob quota"])
    assert printed["shares head"] == shown["shares head"]
    assert printed["shares"] == shown["shares"]
    assert printed["jobs head"] == shown["jobs head"]
    since, why = (shown["jobs head"][0].index(title) for title in ("SINCE", "WHY"))
    for theirs, ours in zip(shown["jobs"], printed["jobs"], strict=True):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", ours[since])
        assert ours[why].startswith(theirs[why].removesuffix("…"))
        assert ours[:since] == theirs[:since]


async def test_what_runs_holds_its_cards_and_what_waits_holds_none(seen: Seen) -> None:
    rows = _rows(GUIDE.table)["jobs"]
    wanted = {line[2].split("/")[1]: round(float(line[3])) // CARDS_A_NODE for line in rows if line[1] == "Runs"}
    assert {name: len(nodes) for name, nodes in seen.held.items()} == wanted
    assert len(set().union(*seen.held.values())) == sum(wanted.values())
    assert seen.states[GUIDE.job["metadata"]["name"]] == "Queued"
