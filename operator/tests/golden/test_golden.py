"""Golden manifests: every change of rendered objects is visible in review, byte by byte.

RLJOB_UPDATE_GOLDEN=1 pytest operator/tests/golden rewrites them. A change means that the same spec renders differently:
increase `labels.RENDERER_VERSION` with it, once a version has been released.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import BUILT_IN_RECIPES, EXAMPLES, UID, validate

from rljob.core.manifest_facts import identity
from rljob.launchers import LAUNCHER
from rljob.render import configmap
from rljob.render.initializer import build_initializer, initializers
from rljob.render.podgroup import NEWEST_FIELDS
from rljob.render.ports import PortBlock
from rljob.render.raycluster import build_token_secret

FOLDER = Path(__file__).parent
FLAGSHIPS = [EXAMPLES / "qwen3-235b.yaml", EXAMPLES / "deepseek-v3.yaml"]
"""Manifests of users, based on recipes of the chart."""
ASCEND = sorted((EXAMPLES / "ascend").glob("*.yaml"))
"""The shapes of Ascend clusters."""
BLOCK = PortBlock(20_000)
JOBS = sorted([*(FOLDER / "jobs").glob("*.yaml"), *FLAGSHIPS, *ASCEND], key=lambda path: path.name)
GENERATION = 1


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
