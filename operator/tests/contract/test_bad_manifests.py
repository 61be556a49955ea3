"""Invalid manifests on a real API server: the schema rejects them, or Validated is False with the corpus's message.

A server-side dry run stores nothing and triggers no events. refused_by_schema.txt lists the manifests that the schema
rejects (RLJOB_WRITE_GOLDEN=1 writes it); the core rejects all of them (`unit/core/validation/test_corpus.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders import Json, decide, job, small_spec, wrote
from contract.conftest import CRDS, KUBECONFIG
from corpus import BAD
from corpus.good import GOOD

from rljob.api.texts import write_texts
from rljob.core.observed import Observed
from tests.cluster import programs

KUBECTL = programs.entry("kube") / "kubectl"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
]
REFUSALS = Path(__file__).parent / "refused_by_schema.txt"


def kubectl(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(KUBECTL), "--kubeconfig", KUBECONFIG, *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module", autouse=True)
def crds() -> None:
    """Install the CRDs of this checkout, as the chart does."""
    done = kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    assert done.returncode == 0, done.stderr
    ready = kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", str(CRDS))
    assert ready.returncode == 0, ready.stderr


def dry_run(specs: dict[str, Json]) -> dict[str, str]:
    """Create all objects without storing them; return the server's message for each that it rejects."""
    items: list[dict[str, Any]] = [
        {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": name}, "spec": spec}
        for name, spec in specs.items()
    ]
    text = "\n---\n".join(json.dumps(item) for item in items)
    done = kubectl(
        "create", "--dry-run=server", "--validate=strict", "-o", "name", "-n", "default", "-f", "-", text=text
    )
    taken = {line.rpartition("/")[2] for line in done.stdout.split()}
    return {name: done.stderr for name in specs if name not in taken}


def names(keys: list[str]) -> dict[str, str]:
    """Give each entry a valid name."""
    return {key: f"bad-{index}" for index, key in enumerate(keys)}


def test_every_bad_manifest_is_refused_by_the_schema_or_becomes_invalid() -> None:
    known = names(list(BAD))
    refused = dry_run({known[key]: bad.spec for key, bad in BAD.items()})
    by_schema = [key for key in BAD if known[key] in refused]
    for key in set(BAD) - set(by_schema):
        status = wrote(decide(Observed(job(BAD[key].spec), snapshot=None)))
        (validated,) = [condition for condition in status.conditions if condition.type == "Validated"]
        assert validated.status == "False", key
        assert f"{BAD[key].field}: " in validated.message, key
        assert BAD[key].message in validated.message, key
    if os.environ.get("RLJOB_WRITE_GOLDEN"):
        REFUSALS.write_text("\n".join(by_schema) + "\n")
    # A schema that becomes laxer or stricter is detected here.
    assert by_schema == REFUSALS.read_text().splitlines()


def test_every_good_manifest_passes_the_schema() -> None:
    known = names(list(GOOD))
    assert dry_run({known[key]: write_texts(small_spec(change)) for key, change in GOOD.items()}) == {}
