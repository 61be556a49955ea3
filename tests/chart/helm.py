"""Run helm on the project's chart: render it to objects, or get the error message."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import programs

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "rljob-operator"
VALUES = Path(__file__).parent / "values"
NAMESPACE = "rljob-system"
RELEASE = "rljob-operator"

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """The result of a helm command."""

    code: int
    stdout: str
    stderr: str


@cache
def binary() -> Path:
    """Return the helm of the local cluster's programs."""
    programs.build(["helm"])
    return programs.binary("helm")


def helm(*words: str | Path, kubeconfig: Path | None = None, timeout_seconds: float = 300) -> Answer:
    """Run helm. Without a kubeconfig it can reach no cluster."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig or "/nonexistent")}
    done = subprocess.run(
        [binary(), *words], env=environment, capture_output=True, text=True, timeout=timeout_seconds, check=False
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def render(*words: str | Path, release: str = RELEASE, namespace: str = NAMESPACE) -> list[Manifest]:
    """Render the chart; fail if helm rejects the values."""
    answer = helm("template", release, CHART, "--namespace", namespace, *words)
    assert answer.code == 0, answer.stderr
    return [document for document in yaml.load_all(answer.stdout, yaml.CSafeLoader) if document]


def pick(manifests: list[Manifest], kind: str, name: str = RELEASE) -> Manifest:
    """Return the only object of that kind and name."""
    found = [m for m in manifests if m["kind"] == kind and m["metadata"]["name"] == name]
    assert len(found) == 1, [(m["kind"], m["metadata"]["name"]) for m in manifests]
    return found[0]
