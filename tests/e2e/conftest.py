"""Fixtures of the whole-product tests: the cluster with the installed operator, and a separate namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import audit
from tests.cluster.paths import state
from tests.e2e import quickstart, shared
from tests.e2e.recorded_run import OPERATOR, OPERATOR_NAMESPACE, Record
from tests.e2e.shared import ROOT, Seen
from tests.kube import Kube, wait_for
from tests.monitoring.prometheus import Prometheus

WATCHED = "RLJOB_WATCHED"
"""Environment variable with the folder of an earlier run (build/e2e), to query its metrics without a cluster."""
NAMESPACE = "rljob-e2e"
"""The namespace of a run of the tests; the workers of pytest-xdist add their names."""
LONGEST = (
    *("test_lifecycle", "test_survival", "test_commands", "test_command"),
    *("test_not_starting", "test_pod_contents", "test_conformance", "test_initializers"),
)
"""Files whose tests begin first, because the stage takes at least as long as one of them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the shared run, whose initializer creates the small model of the other jobs, and with the longest."""

    def order(item: pytest.Item) -> tuple[bool, int]:
        place = LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST)
        return {"shared_run", "watched"}.isdisjoint(getattr(item, "fixturenames", ())), place

    items.sort(key=order)


def cluster(*words: str) -> str:
    """Run a command of tests.cluster and return its output."""
    command = [sys.executable, "-m", "tests.cluster", *words]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120).stdout.strip()


@pytest.fixture(scope="session")
def admin() -> Kube:
    """Return kubectl for the operator's namespace on the running local cluster."""
    return Kube(f"{cluster('path', 'kube')}/kubectl", cluster("kubeconfig"), OPERATOR_NAMESPACE)


@pytest.fixture(scope="session")
def kube(admin: Kube, worker_id: str) -> Iterator[Kube]:
    """Yield kubectl for a new namespace with the quickstart's code and storage, one for each worker of pytest-xdist."""
    if not admin.find("deployments", "app.kubernetes.io/name=rljob-operator"):
        raise AssertionError("the operator is not installed; run `make test` or `python -m scripts.test product`")
    name = NAMESPACE if worker_id == "master" else f"{NAMESPACE}-{worker_id}"
    access = admin.in_namespace(name)
    access.delete("namespace", name)
    access.run("create", "namespace", name)
    access.apply(*quickstart.surroundings())
    yield access
    access.delete("namespace", name, wait=False)
    wait_for("the namespace is gone", lambda: access.get("namespace", name) is None, 300)


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


def operator_writes(namespace: str) -> int:
    """Return how often the operator has written to a namespace, from the audit log: other tests run beside this one."""
    of_namespace = (line for line in audit.lines(state().logs / "audit.log") if f'"namespace":"{namespace}"' in line)
    count = sum(request.verb in audit.WRITES for request in audit.read(of_namespace, OPERATOR))
    assert count, f"the audit log has no writes of {OPERATOR} to {namespace}"
    return count
