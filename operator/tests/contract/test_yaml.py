"""The CLI reads YAML as the real kubectl does: the same cases through `kubectl label --local`, without a server."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
import yaml
from yaml_cases import DOCUMENTS, REFUSED, SCALARS, STRICTER

from rljob.api.yaml11 import load_all
from tests.cluster import programs

KUBECTL = programs.entry("kube") / "kubectl"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECTL.exists(), reason="kubectl is not built; `python -m tests.cluster build`"),
]
CASES = [*SCALARS, *DOCUMENTS]


def kubectl(text: str) -> Any:  # noqa: ANN401 - JSON
    """Return what kubectl reads from a manifest; None if it rejects the manifest."""
    command = [str(KUBECTL), "label", "--local", "-f", "-", "a=b", "-o", "json"]
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=60, check=False, env={"KUBECONFIG": "/dev/null"}
    )
    return json.loads(done.stdout, parse_int=number) if done.returncode == 0 else None


def number(digits: str) -> int | float:
    """Go prints a large fraction like an integer."""
    return int(digits) if -(2**63) <= int(digits) < 2**63 else float(digits)


def manifest(values: list[str]) -> str:
    lines = ["apiVersion: v1", "kind: ConfigMap", "metadata: {name: cases, labels: {a: b}}"]
    return "\n".join([*lines, *(f"case{index}: {value}" for index, value in enumerate(values)), ""])


def test_both_read_the_same() -> None:
    text = manifest(CASES)
    (ours,), theirs = load_all(text), kubectl(text)
    assert theirs is not None
    assert {case: ours[f"case{n}"] for n, case in enumerate(CASES)} == {
        case: theirs.get(f"case{n}") for n, case in enumerate(CASES)
    }
    assert json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)


@pytest.mark.parametrize("case", REFUSED)
def test_both_refuse(case: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load_all(manifest([case]))
    assert kubectl(manifest([case])) is None


@pytest.mark.parametrize("case", STRICTER)
def test_we_refuse_more_only_where_the_table_says_so(case: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load_all(manifest([case]))
    assert kubectl(manifest([case])) is not None
