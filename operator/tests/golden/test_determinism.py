"""What was frozen renders to the same bytes in another process: an operator that is restarted goes on as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from builders import BUILT_IN_RECIPES, IDENTITY, SPECS_OF_EXAMPLES

from rljob.core.validation.validate import validate
from rljob.launchers import verl
from rljob.render import configmap
from rljob.render.metadata import canonical_json

GENERATION = 1
IN_ANOTHER_PROCESS = """
import json, sys
from rljob.render import configmap
from rljob.render.metadata import canonical_json
from rljob.render.names import JobIdentity
from rljob.launchers import verl

job, frozen = JobIdentity(*sys.argv[1:]), configmap.read_snapshot(json.load(sys.stdin))
config = verl.job_config(job, frozen.spec, 1)
sys.stdout.write(canonical_json(configmap.build_cluster_config(job, frozen.spec, 1, config)))
"""


def frozen_of(path: Path) -> list[configmap.Snapshot]:
    jobs = [document for document in yaml.safe_load_all(path.read_text()) if document["kind"] == "RLJob"]
    checked = [validate(job["metadata"]["name"], job["spec"], BUILT_IN_RECIPES) for job in jobs]
    return [configmap.Snapshot(each.spec, each.recipes) for each in checked if each.spec is not None]


@pytest.mark.parametrize("path", SPECS_OF_EXAMPLES, ids=lambda path: path.stem)
def test_a_snapshot_renders_to_the_same_bytes_in_a_new_process(path: Path) -> None:
    for frozen in frozen_of(path):
        here = configmap.build_cluster_config(
            IDENTITY, frozen.spec, GENERATION, verl.job_config(IDENTITY, frozen.spec, GENERATION)
        )
        there = subprocess.run(
            [sys.executable, "-c", IN_ANOTHER_PROCESS, IDENTITY.namespace, IDENTITY.name, IDENTITY.uid],
            input=canonical_json(configmap.build_snapshot(IDENTITY, frozen, GENERATION)),
            env=os.environ | {"PYTHONHASHSEED": "7"},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert there.stdout == canonical_json(here)
