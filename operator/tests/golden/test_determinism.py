"""Frozen data renders to the same bytes in another process, so a restarted operator does not change anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml
from builders import BUILT_IN_RECIPES, IDENTITY, SPECS_OF_EXAMPLES, validate

from rljob.launchers import LAUNCHER
from rljob.render import configmap
from rljob.render.metadata import canonical_json

GENERATION = 1
IN_ANOTHER_PROCESS = """
import json, sys
from rljob.launchers import LAUNCHER
from rljob.render import configmap
from rljob.render.accelerators import BUILT_IN
from rljob.render.metadata import canonical_json
from rljob.render.names import JobIdentity

job = JobIdentity(*sys.argv[1:])
for line in sys.stdin:
    frozen = configmap.read_snapshot(json.loads(line), BUILT_IN)
    config = LAUNCHER(frozen.spec).job_config(job, frozen.spec, 1)
    print(json.dumps(canonical_json(configmap.build_cluster_config(job, frozen.spec, 1, config))))
"""


def frozen_of(path: Path) -> list[configmap.Snapshot]:
    jobs = [document for document in yaml.safe_load_all(path.read_text()) if document["kind"] == "RLJob"]
    checked = [validate(job["metadata"]["name"], job["spec"], BUILT_IN_RECIPES) for job in jobs]
    return [configmap.Snapshot(each.spec, each.recipes) for each in checked if each.spec is not None]


def rendered(frozen: configmap.Snapshot) -> str:
    config = LAUNCHER(frozen.spec).job_config(IDENTITY, frozen.spec, GENERATION)
    return canonical_json(configmap.build_cluster_config(IDENTITY, frozen.spec, GENERATION, config))


def test_snapshots_render_to_the_same_bytes_in_a_new_process() -> None:
    snapshots = [(path.stem, frozen) for path in SPECS_OF_EXAMPLES for frozen in frozen_of(path)]
    given = [canonical_json(configmap.build_snapshot(IDENTITY, frozen, GENERATION)) for _, frozen in snapshots]
    there = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS, IDENTITY.namespace, IDENTITY.name, IDENTITY.uid],
        input="".join(f"{json.dumps(json.loads(text))}\n" for text in given),
        env=os.environ | {"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answers = [json.loads(line) for line in there.stdout.splitlines()]
    assert len(answers) == len(snapshots) > 10
    differ = [name for (name, frozen), answer in zip(snapshots, answers, strict=True) if answer != rendered(frozen)]
    assert differ == []
