"""Fixtures of the whole-product tests: the cluster with the installed operator, and a separate namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import quickstart, shared
from tests.e2e.recorded_run import OPERATOR_NAMESPACE, Record
from tests.e2e.shared import ROOT, Seen
from tests.kube import Kube, http_get, wait_for
from tests.monitoring.prometheus import Prometheus

WATCHED = "RLJOB_WATCHED"
"""Environment variable with the folder of an earlier run (build/e2e), to query its metrics without a cluster."""
NAMESPACE = "rljob-e2e"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the shared run: its initializer creates the small model, which the other jobs then use."""
    items.sort(key=lambda item: {"shared_run", "watched"}.isdisjoint(getattr(item, "fixturenames", ())))


def cluster(*words: str) -> str:
    """Run a command of tests.cluster and return its output."""
    command = [sys.executable, "-m", "tests.cluster", *words]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120).stdout.strip()


@pytest.fixture(scope="session")
def admin() -> Kube:
    """Return kubectl for the operator's namespace on the running local cluster."""
    return Kube(f"{cluster('path', 'kube')}/kubectl", cluster("kubeconfig"), OPERATOR_NAMESPACE)


@pytest.fixture(scope="session")
def kube(admin: Kube) -> Iterator[Kube]:
    """Yield kubectl for a new namespace with the quickstart's code and storage."""
    if not admin.find("deployments", "app.kubernetes.io/name=rljob-operator"):
        raise AssertionError("the operator is not installed; run `make test` or `python -m scripts.test product`")
    access = admin.in_namespace(NAMESPACE)
    access.delete("namespace", NAMESPACE)
    access.run("create", "namespace", NAMESPACE)
    access.apply(*quickstart.surroundings())
    yield access
    access.delete("namespace", NAMESPACE, wait=False)
    wait_for("the namespace is gone", lambda: access.get("namespace", NAMESPACE) is None, 180)


@pytest.fixture(scope="session")
def prometheus(admin: Kube) -> Iterator[Prometheus]:
    """Yield a Prometheus that scrapes the local cluster."""
    del admin  # requested because it fails if there is no cluster
    with shared.watching() as found:
        yield found


@pytest.fixture(scope="session")
def shared_run(kube: Kube, prometheus: Prometheus) -> Iterator[tuple[Record, Seen]]:
    """Yield the record of the finished shared job, which Prometheus has scraped."""
    del prometheus
    yield shared.run_job(kube)
    kube.delete("rljob", shared.NAME)


@pytest.fixture(scope="session")
def watched(request: pytest.FixtureRequest) -> Iterator[tuple[Prometheus, Seen]]:
    """Yield Prometheus with the data of the shared job, or of one from an earlier session."""
    if earlier := os.environ.get(WATCHED):
        with shared.watched_earlier(Path(earlier)) as found:
            yield found
    else:
        _, seen = request.getfixturevalue("shared_run")
        yield request.getfixturevalue("prometheus"), seen


@pytest.fixture
def alone(kube: Kube) -> Iterator[Kube]:
    """Yield the namespace without jobs, and delete its jobs afterwards: those of a failed test would hold NPUs."""
    yield kube
    for job in kube.find("rljobs"):
        kube.delete("rljob", job["metadata"]["name"])


def operator_writes(admin: Kube) -> float:
    """Return the number of writes that the operator counts, without the continuous renewals of its Lease."""
    pods = admin.find("pods", "app.kubernetes.io/name=rljob-operator")
    text = http_get(f"http://{pods[0]['status']['podIP']}:8080/metrics")
    writes = [
        float(row.rsplit(" ", 1)[1])
        for row in text.splitlines()
        if row.startswith("rljob_operator_api_requests_total{")
        and any(f'verb="{verb}"' in row for verb in ("create", "patch", "update", "delete"))
        and "leases" not in row
    ]
    assert writes, "the operator's metrics contain no API requests"
    return sum(writes)
