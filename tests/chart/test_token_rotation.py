"""The commands of docs/operations.md that rotate the token key, on a real API server, and what an upgrade keeps."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rljob.cluster.token import PREVIOUS, TokenKey
from tests.chart.helm import CHART, RELEASE, helm
from tests.cluster import programs
from tests.kube import Kube, Manifest

KUBECONFIG = os.environ.get("RLJOB_TEST_KUBECONFIG", "")
PAGE = Path(__file__).parents[2] / "docs/operations.md"
NAME = f"{RELEASE}-token-key"
FIRST = b"f" * 32
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
]


@pytest.fixture
def kube() -> Iterator[Kube]:
    """Access to a namespace that has the Secret of a release."""
    own = Kube(str(programs.binary("kube", "kubectl")), KUBECONFIG, f"rotation-{uuid.uuid4().hex[:8]}")
    own.run("create", "namespace", own.namespace)
    own.run("create", "secret", "generic", NAME, f"--from-literal=key={FIRST.decode()}")
    # As Helm marks what it has created.
    own.run("label", "secret", NAME, "app.kubernetes.io/managed-by=Helm")
    marks = (f"meta.helm.sh/release-name={RELEASE}", f"meta.helm.sh/release-namespace={own.namespace}")
    own.run("annotate", "secret", NAME, *marks)
    yield own
    own.run("delete", "namespace", own.namespace, "--wait=false")


def patches() -> list[str]:
    """Return the page's commands that change the Secret."""
    section = PAGE.read_text().partition("## Rotate the token key")[2].partition("\n## ")[0]
    return re.findall(r"kubectl --namespace rljob-system patch secret .*?(?=\n\s*kubectl|\n\n)", section, re.DOTALL)


def carry_out(command: str, kube: Kube, folder: Path) -> None:
    here = command.replace("--namespace rljob-system", f"--kubeconfig {kube.kubeconfig} --namespace {kube.namespace}")
    path = f"{Path(kube.kubectl).parent}:/usr/bin:/bin"
    subprocess.run(
        ["bash", "-euc", here], check=True, env={"PATH": path, "HOME": str(folder)}, timeout=60, capture_output=True
    )


def data(kube: Kube) -> dict[str, str]:
    """Return the keys as they are in the cluster."""
    found: dict[str, str] = json.loads(kube.run("get", "secret", NAME, "--output", "json"))["data"]
    return found


def read_keys(kube: Kube, folder: Path) -> TokenKey:
    """Read the keys as the operator does, from the files that the Secret is mounted as."""
    folder.mkdir(exist_ok=True)
    (folder / PREVIOUS).unlink(missing_ok=True)
    for name, value in data(kube).items():
        (folder / name).write_bytes(base64.b64decode(value))
    return TokenKey.from_file(folder / "key")


def rendered(kube: Kube) -> Manifest:
    """Return the Secret that an upgrade of the release would write."""
    template = (
        "template",
        RELEASE,
        CHART,
        "--dry-run=server",
        "--show-only",
        "templates/token-key.yaml",
        "--set",
        "crds.enabled=false",
    )
    answer = helm(*template, "--namespace", kube.namespace, kubeconfig=Path(kube.kubeconfig))
    assert answer.code == 0, answer.stderr
    found: Manifest = yaml.safe_load(answer.stdout)
    return found


def test_the_documented_commands_rotate_the_key(kube: Kube, tmp_path: Path) -> None:
    begin, end = patches()
    carry_out(begin, kube, tmp_path)
    during = read_keys(kube, tmp_path)
    assert during.previous == TokenKey(FIRST)
    assert during.key != FIRST
    carry_out(end, kube, tmp_path)
    assert read_keys(kube, tmp_path) == TokenKey(during.key)


def test_an_upgrade_keeps_both_keys(kube: Kube, tmp_path: Path) -> None:
    assert rendered(kube)["data"] == data(kube)
    carry_out(patches()[0], kube, tmp_path)
    assert rendered(kube)["data"] == data(kube)
    assert set(rendered(kube)["data"]) == {"key", PREVIOUS}
