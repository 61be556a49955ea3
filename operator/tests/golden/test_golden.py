"""Golden manifests: every change of rendered objects is visible in review, byte by byte.

RLJOB_UPDATE_GOLDEN=1 pytest operator/tests/golden rewrites them. A change means that the same spec renders differently:
increase `labels.RENDERER_VERSION` with it, once a version has been released.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import BUILT_IN_RECIPES, EXAMPLES, UID, validate

from rljob.core.manifest_facts import identity
from rljob.launchers import LAUNCHER
from rljob.render import configmap
from rljob.render.export import build_export
from rljob.render.initializer import build_initializer, initializers
from rljob.render.names import export_name
from rljob.render.podgroup import NEWEST_FIELDS
from rljob.render.ports import PortBlock
from rljob.render.raycluster import build_token_secret

FOLDER = Path(__file__).parent
FLAGSHIPS = [
    EXAMPLES / "qwen3-235b.yaml",
    EXAMPLES / "deepseek-v3.yaml",
    *sorted((EXAMPLES / "recipes").glob("*.yaml")),
]
"""Manifests of users, based on recipes of the chart."""
ASCEND = sorted((EXAMPLES / "ascend").glob("*.yaml"))
"""The shapes of Ascend clusters."""
BLOCK = PortBlock(20_000)
JOBS = sorted([*(FOLDER / "jobs").glob("*.yaml"), *FLAGSHIPS, *ASCEND], key=lambda path: path.name)
GENERATION = 1
USERS = ("warm", "log-shipper")
"""Containers of templates in the jobs, whose resources are the user's."""


def render(manifest: dict[str, Any]) -> str:
    """Return every object that the operator creates for a job, in order of creation."""
    job = identity(manifest | {"metadata": {"namespace": "team", "uid": UID} | manifest["metadata"]})
    checked = validate(job.name, manifest["spec"], BUILT_IN_RECIPES)
    spec, violations = checked.spec, checked.violations
    assert spec is not None, violations
    block = BLOCK if spec.network.mode == "Host" else None
    job_config = LAUNCHER.job_config(job, spec, GENERATION)
    config = configmap.build_cluster_config(
        job, spec, GENERATION, job_config, block=block, pod_group_fields=NEWEST_FIELDS
    )
    cluster = config["data"].pop(configmap.RAYCLUSTER_KEY)
    group = config["data"].pop(configmap.POD_GROUP_KEY, None)
    # Shown as an object for readability; a unit test checks that the text in the ConfigMap is canonical.
    config["data"][configmap.RAYCLUSTER_KEY] = "the RayCluster below"
    if group is not None:
        config["data"][configmap.POD_GROUP_KEY] = "the PodGroup below"
    documents = [
        configmap.build_snapshot(job, configmap.Snapshot(spec), GENERATION),
        *(build_initializer(job, spec, initializer) for initializer in initializers(spec)),
        build_token_secret(job, GENERATION),
        config,
        {"job.json": json.loads(config["data"][configmap.JOB_KEY])},
        *([json.loads(group)] if group is not None else []),
        json.loads(cluster),
        *(
            []
            if spec.export is None
            else [build_export(job, spec, spec.export, export_name(job, 10, "golden"), 10, None)]
        ),
    ]
    return "---\n".join(yaml.dump(each, Dumper=_Plain, sort_keys=False, width=120) for each in documents)


class _Plain(yaml.SafeDumper):
    """YAML without anchors, so that each object is complete."""

    def ignore_aliases(self, data: object) -> bool:
        """Never alias."""
        del data
        return True


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job_renders_to_its_golden_manifests(path: Path) -> None:
    golden, rendered = FOLDER / path.name, render(yaml.safe_load(path.read_text()))
    if os.environ.get("RLJOB_UPDATE_GOLDEN"):
        golden.write_text(rendered)
    assert rendered == golden.read_text()


def test_every_golden_file_belongs_to_a_job() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.yaml")) == [path.name for path in JOBS]


def pods(value: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - JSON
    """Return every pod spec below a manifest."""
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield value
        for member in value.values():
            yield from pods(member)
    elif isinstance(value, list):
        for member in value:
            yield from pods(member)


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_every_container_of_ours_has_requests_and_limits(path: Path) -> None:
    """A ResourceQuota on limits.cpu, for example, refuses a pod with a single container that has no such limit."""
    documents = list(yaml.safe_load_all((FOLDER / path.name).read_text()))
    made = [pod for each in documents if each.get("kind") in ("RayCluster", "Job") for pod in pods(each["spec"])]
    assert made
    for pod in made:
        # Containers of the user are passed on as they are.
        ours = [each for each in (*pod["containers"], *pod.get("initContainers", ())) if each["name"] not in USERS]
        lacking = {
            (each["name"], kind, resource)
            for each in ours
            for kind in ("requests", "limits")
            for resource in ("cpu", "memory")
            if resource not in each["resources"][kind]
        }
        assert lacking == set()
