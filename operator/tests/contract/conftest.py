"""The two worlds of the contract suite: the fake in memory, and a real API server named by RLJOB_TEST_KUBECONFIG."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from contract.operator_process import Process
from contract.place import NOWHERE, Place
from doubles.fake import FakeCluster

from rljob.client import AsyncClient
from rljob.cluster.errors import AlreadyExists, NotFound
from rljob.cluster.kinds import RLJOB, Kind
from rljob.cluster.kube import KubeCluster, _Call, load_configuration
from rljob.cluster.limiter import TokenBucket
from rljob.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from contract.operator_site import OperatorSite
    from contract.policy_site import Site

KUBECONFIG = os.environ.get("RLJOB_TEST_KUBECONFIG", "")
CRDS = Path(__file__).parents[3] / "crds"
NAMESPACE = Kind("v1", "Namespace", "namespaces")
CRD = Kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions")


@pytest.fixture(
    params=[
        "fake",
        pytest.param(
            "real",
            marks=[
                pytest.mark.integration,
                pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
            ],
        ),
    ]
)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """Return an empty namespace in a cluster."""
    if request.param == "fake":
        fake = FakeCluster()
        fake.fields[RLJOB] = frozenset({"trainer", "trainer.steps"})
        fake.unserved.add(NOWHERE)
        yield Place(fake, "contract")
        return
    metrics = Metrics()
    limiter = TokenBucket(1000, 1000, time.monotonic)
    cluster = KubeCluster(await load_configuration(KUBECONFIG), metrics, limiter)
    name = f"contract-{uuid.uuid4().hex[:8]}"
    try:
        await _install_crds(cluster)
        await _request(cluster, "create", NAMESPACE, None, {"metadata": {"name": name}})
        yield Place(cluster, name)
        await _request(cluster, "delete", NAMESPACE, name, None)
    finally:
        await cluster.close()


@pytest.fixture
async def client(place: Place) -> AsyncIterator[AsyncClient]:
    """Return the Python client for that namespace of the real API server."""
    async with AsyncClient(place.namespace, kubeconfig=KUBECONFIG) as made:
        yield made


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """Install the chart's policies by its defaults, once for all modules that send requests which they judge."""
    from contract.policy_site import policy_site  # noqa: PLC0415 - it needs Helm and Go

    with policy_site() as made:
        yield made


@pytest.fixture(scope="session")
def installation() -> Iterator[OperatorSite]:
    """Install a release with its policies and the account of its operator, once for all who speak as this account."""
    from contract.operator_site import operator_site  # noqa: PLC0415 - as above

    with operator_site() as made:
        yield made


@pytest.fixture
async def start(place: Place, tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Process]]]:
    lease = f"lease-{uuid.uuid4().hex[:8]}"
    started: list[Process] = []

    async def start_one(**more: str) -> Process:
        process = Process(place, tmp_path, 20_000 + (os.getpid() + len(started)) % 10_000, lease)
        await process.start(**more)
        started.append(process)
        return process

    yield start_one
    for process in started:
        await process.stop()


_installed = set[str]()
"""API servers with the CRDs of this checkout; no test removes them, and one that changes them restores them."""


async def _install_crds(cluster: KubeCluster) -> None:
    if KUBECONFIG in _installed:
        return
    for path in CRDS.glob("*.yaml"):
        for crd in yaml.load_all(path.read_text(), yaml.CSafeLoader):
            try:
                await _request(cluster, "create", CRD, None, crd)
            except AlreadyExists:
                continue
    deadline = time.monotonic() + 30
    while True:
        try:
            await cluster.list(RLJOB, "default")
        except NotFound:
            assert time.monotonic() < deadline, "the RLJob CRD was not served within 30 s"
        else:
            _installed.add(KUBECONFIG)
            return


async def _request(cluster: KubeCluster, verb: str, kind: Kind, name: str | None, body: dict[str, Any] | None) -> None:
    """Send a request that the operator itself may not send."""
    full = {"apiVersion": kind.api_version, "kind": kind.kind, **body} if body else None
    await cluster._request(_Call(verb, kind, kind.path(None, name), body=full))
