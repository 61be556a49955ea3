"""The chart value `queues`.

Cards become devices, classes become node labels, and invalid values are rejected by name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rljob.cli.manifests import read_files
from rljob.cli.verbs.quota import DIES_PER_CARD
from rljob.render.accelerator_table import read_table
from rljob.render.accelerators import BUILT_IN, SUPER_POD, built_in_document
from scripts.site.blocks import Verdict
from scripts.site.blocks import blocks as document_blocks
from tests.chart.helm import CHART, ROOT, VALUES, Manifest, helm, pick, render

GUIDE = ROOT / "docs/guides/queues.md"
NPU = "huawei.com/Ascend910"
CARDS = 128
TEAMS = ("guests", "language", "vision")
MINIMAL = "queues.flavors.a3.class=atlas-a3,queues.teams.x.namespaces={x}"


def blocks() -> list[Any]:
    """Return the YAML blocks of the guide that are complete: values, and a job."""
    found = document_blocks(GUIDE.name, GUIDE.read_text())
    return [yaml.safe_load(each.text) for each in found if each.language == "yaml" and each.verdict is Verdict.TESTED]


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    path = tmp_path_factory.mktemp("guide") / "queues.yaml"
    path.write_text(yaml.safe_dump(blocks()[0]))
    return render("--values", path)


def quotas(manifests: list[Manifest], team: str, flavor: str = "a3") -> dict[str, str]:
    (group,) = pick(manifests, "ClusterQueue", team)["spec"]["resourceGroups"]
    (quota,) = (each for each in group["flavors"] if each["name"] == flavor)
    (found,) = (resource for resource in quota["resources"] if "/" in resource["name"])
    return {key: value for key, value in found.items() if key != "name"}


def test_without_teams_nothing_is_made() -> None:
    assert not [m for m in render() if m["apiVersion"].startswith("kueue")]


def test_the_guide_gives_away_all_cards_and_no_more(guide: list[Manifest]) -> None:
    dies = BUILT_IN["atlas-a3"].dies_per_card
    assert pick(guide, "ResourceFlavor", "a3")["metadata"]["annotations"] == {DIES_PER_CARD: str(dies)}
    assert sum(int(quotas(guide, team)["nominalQuota"]) for team in TEAMS) == CARDS * dies
    assert quotas(guide, "language") == {"nominalQuota": "96", "borrowingLimit": "96"}
    assert quotas(guide, "guests") == {"nominalQuota": "32", "lendingLimit": "0"}


def test_the_guides_job_waits_in_a_queue_that_the_guide_makes(guide: list[Manifest], tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(blocks()[1]))
    (job,) = read_files([str(path)]).jobs
    scheduling = job.spec["scheduling"]
    found = [m for m in guide if m["kind"] == "LocalQueue" and m["metadata"]["namespace"] == job.namespace]
    assert [m["metadata"]["name"] for m in found] == [scheduling["queueName"]]
    assert pick(guide, "WorkloadPriorityClass", scheduling["workloadPriorityClassName"])["value"] == 1000


def test_the_guides_command_names_the_chart_and_its_file() -> None:
    (command,) = re.findall(r"^(helm .*)$", GUIDE.read_text(), re.MULTILINE)
    words = command.split()
    assert (ROOT / words[3]).samefile(CHART)
    assert words[words.index("--values") + 1] == "queues.yaml"


def test_workers_are_sent_where_the_cards_are_and_heads_anywhere() -> None:
    manifests = render("--values", VALUES / "queues.yaml")
    assert pick(manifests, "ResourceFlavor", "a3")["spec"]["nodeLabels"] == {"servertype": "Ascend910A3-20"}
    assert pick(manifests, "ResourceFlavor", "a2")["spec"]["nodeLabels"] == {"servertype": "Ascend910B-20"}
    assert "spec" not in pick(manifests, "ResourceFlavor", "cce")
    assert "spec" not in pick(manifests, "ResourceFlavor", "rljob-common")
    (group,) = pick(manifests, "ClusterQueue", "vision")["spec"]["resourceGroups"]
    assert group["coveredResources"] == ["cpu", "memory", NPU, "huawei.com/ascend-1980"]
    cards = {
        flavor["name"]: [r["nominalQuota"] for r in flavor["resources"] if "/" in r["name"]]
        for flavor in group["flavors"]
    }
    assert cards == {"rljob-common": ["0", "0"], "a2": ["64", "0"], "a3": ["96", "0"], "cce": ["0", "0"]}
    assert next(iter(cards)) == "rljob-common", "heads would use the first flavor, and occupy the nodes with its cards"


def test_a_topology_is_rendered_for_kueue_and_for_the_operator() -> None:
    manifests = render("--values", VALUES / "queues.yaml")
    levels = [{"nodeLabel": SUPER_POD}, {"nodeLabel": "kubernetes.io/hostname"}]
    assert pick(manifests, "Topology", "a3")["spec"]["levels"] == levels
    flavors = {name: pick(manifests, "ResourceFlavor", name).get("spec", {}) for name in ("a2", "a3", "rljob-common")}
    assert [name for name, spec in flavors.items() if "topologyName" in spec] == ["a3"]
    table = yaml.safe_load(pick(manifests, "ConfigMap", "rljob-operator-accelerators")["data"]["20-values.yaml"])
    assert table == {"atlas-a3-superpod": {"topologyLevels": [SUPER_POD, "kubernetes.io/hostname"]}}
    assert read_table(built_in_document(), table)["atlas-a3-superpod"].super_pod_label == SUPER_POD


def test_a_class_of_the_values_counts_too() -> None:
    lab = "accelerators.lab.resource=x.y/npu,accelerators.lab.diesPerCard=4,accelerators.lab.devicesPerNode=8"
    words = f"{lab},queues.flavors.l.class=lab,queues.teams.x.namespaces={{x}},queues.teams.x.cards.l=3"
    assert quotas(render("--set", words), "x", "l") == {"nominalQuota": "12"}


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        (MINIMAL, "have servertype Ascend910A3-20 or Ascend910A3-24; set queues.flavors.a3.nodeLabels"),
        (
            "queues.flavors.a3.class=a3,queues.teams.x.namespaces={x}",
            "class a3 is not an accelerator class; use one of atlas-a2,",
        ),
        (
            "queues.flavors.n.class=cpu,queues.teams.x.namespaces={x},queues.teams.x.cards.m=1",
            "x.cards.m is not a flavor",
        ),
        ("queues.teams.x.cards.n=1", "missing property 'namespaces'"),
        (
            "queues.flavors.a.class=cpu,queues.flavors.a.topology={rack},queues.flavors.b.class=cpu",
            "queues.flavors.b.topology: flavors of class cpu must have the same levels",
        ),
        ("queues.flavors.n.class=cpu,queues.teams.x.namespaces={x},queues.teams.x.cards.n=-1", "minimum"),
        ("queues.teamz.x=1", "additional properties 'teamz' not allowed"),
    ],
)
def test_what_cannot_be_is_refused_by_name(setting: str, complaint: str) -> None:
    answer = helm("template", "x", CHART, "--set", setting)
    assert answer.code != 0
    assert complaint in answer.stderr
