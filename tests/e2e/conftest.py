"""Fixtures of the whole-product tests: a cluster in which the product is installed, and a namespace of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import quickstart, shared
from tests.e2e.shared import ROOT, Seen
from tests.e2e.story import OPERATOR_NAMESPACE, Record
from tests.kube import Kube, http_get, wait_for
from tests.monitoring.prometheus import Prometheus

WATCHED = "RLJOB_WATCHED"
"""Environment variable: a folder that a run left (build/e2e), to be asked again without a cluster."""
NAMESPACE = "rljob-e2e"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the shared run: its initializer makes the tiny model, which the others then find."""
    items.sort(key=lambda item: {"shared_run", "watched"}.isdisjoint(getattr(item, "fixturenames", ())))


def cluster(*words: str) -> str:
    """Run a command of the local cluster, and give what it prints."""
    command = [sys.executable, "-m", "tests.cluster", *words]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120).stdout.strip()


@pytest.fixture(scope="session")
def admin() -> Kube:
    """Give kubectl for the operator's namespace of the running local cluster."""
    return Kube(f"{cluster('path', 'kube')}/kubectl", cluster("kubeconfig"), OPERATOR_NAMESPACE)


@pytest.fixture(scope="session")
def kube(admin: Kube) -> Iterator[Kube]:
    """Give kubectl for a fresh namespace that holds the quickstart's code and storage."""
    if not admin.find("deployments", "app.kubernetes.io/name=rljob-operator"):
        raise AssertionError("the operator is not installed; run `make test` or `python -m scripts.test product`")
    mine = admin.in_namespace(NAMESPACE)
    mine.delete("namespace", NAMESPACE)
    mine.run("create", "namespace", NAMESPACE)
    mine.apply(*quickstart.surroundings())
    yield mine
    mine.delete("namespace", NAMESPACE, wait=False)
    wait_for("the namespace is gone", lambda: mine.get("namespace", NAMESPACE) is None, 180)


@pytest.fixture(scope="session")
def prometheus(admin: Kube) -> Iterator[Prometheus]:
    """Give a Prometheus that scrapes the local cluster."""
    del admin  # it tells whether there is one
    with shared.watching() as found:
        yield found


@pytest.fixture(scope="session")
def shared_run(kube: Kube, prometheus: Prometheus) -> Iterator[tuple[Record, Seen]]:
    """Give the main job after its end; Prometheus has seen it."""
    del prometheus
    yield shared.play(kube)
    kube.delete("rljob", shared.NAME)


@pytest.fixture(scope="session")
def watched(request: pytest.FixtureRequest) -> Iterator[tuple[Prometheus, Seen]]:
    """Give Prometheus and what it has seen: the main job, or one of an earlier session."""
    if earlier := os.environ.get(WATCHED):
        with shared.watched_earlier(Path(earlier)) as found:
            yield found
    else:
        _, seen = request.getfixturevalue("shared_run")
        yield request.getfixturevalue("prometheus"), seen


@pytest.fixture
def alone(kube: Kube) -> Iterator[Kube]:
    """Give the namespace without jobs, and leave it so: a job that a failed test forgot would hold the NPUs."""
    yield kube
    for job in kube.find("rljobs"):
        kube.delete("rljob", job["metadata"]["name"])


def operator_writes(admin: Kube) -> float:
    """Read the operator's own count of writes; its Lease is renewed all the time and does not count."""
    pods = admin.find("pods", "app.kubernetes.io/name=rljob-operator")
    text = http_get(f"http://{pods[0]['status']['podIP']}:8080/metrics")
    writes = [
        float(row.rsplit(" ", 1)[1])
        for row in text.splitlines()
        if row.startswith("rljob_operator_api_requests_total{")
        and any(f'verb="{verb}"' in row for verb in ("create", "patch", "update", "delete"))
        and "leases" not in row
    ]
    assert writes, "the operator counts no requests"
    return sum(writes)
