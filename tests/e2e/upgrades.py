"""Upgrade and roll back the operator while a job runs: part of the run in test_lifecycle."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from pathlib import Path

from tests.chart.helm import CHART, RELEASE, helm
from tests.cluster import images
from tests.cluster.lifecycle import running_nodes
from tests.cluster.paths import state
from tests.e2e.recorded_run import OPERATOR_NAMESPACE
from tests.kube import Kube, condition, wait_for


def change_release(kube: Kube, *words: str) -> None:
    """Change the release with helm, which replaces the operator's pod."""
    words = (*words, "--namespace", OPERATOR_NAMESPACE, "--wait", "--timeout", "120s")
    answer = helm(*words, kubeconfig=Path(kube.kubeconfig), timeout_seconds=150)
    assert answer.code == 0, answer.stderr


def upgrade(kube: Kube, name: str) -> None:
    """Upgrade to a chart and an image of a later version, which renders clusters differently."""
    images.load(["operator-later"], running_nodes(state()))
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(shutil.copytree(CHART, Path(folder) / CHART.name))
        metadata = chart / "Chart.yaml"
        metadata.write_text(re.sub(r"(?m)^(version|appVersion): .*", r"\1: 99.0.0", metadata.read_text()))
        changes = ("--set-string", "image.tag=later", "--set", "operator.workers=4")
        change_release(kube, "upgrade", RELEASE, str(chart), "--reuse-values", *changes)
    _await_drift(kube, name, "this operator renders by version later")


def downgrade(kube: Kube, name: str) -> None:
    """Roll back. By then, the later version has rendered the running cluster."""
    change_release(kube, "rollback", RELEASE)
    _await_drift(kube, name, "was rendered by version later")


def _await_drift(kube: Kube, name: str, words: str) -> None:
    def reported() -> bool:
        drift = condition(kube.get("rljob", name), "RendererDrift")
        return drift is not None and drift["status"] == "True" and words in drift["message"]

    begin = time.monotonic()
    wait_for(f"the running job reports: {words}", reported, 60)
    print(f"the running job reports it after {time.monotonic() - begin:.0f} s: {words}")
