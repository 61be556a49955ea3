"""The whole process on a real API server: it leads, serves its probes, detects CRDs installed later, and stops."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest
from builders import small_spec
from contract.conftest import KUBECONFIG
from contract.operator_process import PATIENCE_SECONDS, Process, until

from rljob.api.v1alpha1 import API_VERSION
from rljob.cluster.errors import Conflict
from rljob.cluster.kinds import LEASE, RAY_CLUSTER, RLJOB
from rljob.render.labels import CLUSTER_GENERATION

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from contract.place import Place

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
    pytest.mark.parametrize("place", ["real"], indirect=True),
]
RSS_LIMIT_MIB = 128


async def test_it_leads_stays_small_and_gives_the_lease_back(
    place: Place, start: Callable[[], Awaitable[Process]]
) -> None:
    process = await start()
    await until(process.ready)
    assert await process.probe("/healthz") == 200
    assert await process.probe("/metrics") == 200
    lease = await place.cluster.get(LEASE, place.namespace, process.lease)
    assert lease["spec"]["holderIdentity"]
    assert process.rss_mib() < RSS_LIMIT_MIB
    assert await process.stop() == 0
    lease = await place.cluster.get(LEASE, place.namespace, process.lease)
    assert not lease["spec"].get("holderIdentity")


async def test_a_standby_is_alive_but_not_ready_and_follows(start: Callable[[], Awaitable[Process]]) -> None:
    first = await start()
    await until(first.ready)
    second = await start()
    await until(lambda: _alive(second))
    assert not await second.ready()
    assert await first.stop() == 0
    await until(second.ready)


async def test_a_leader_whose_lease_is_taken_ends_with_an_error(
    place: Place, start: Callable[[], Awaitable[Process]]
) -> None:
    process = await start()
    await until(process.ready)

    async def steal() -> bool:
        lease = await place.cluster.get(LEASE, place.namespace, process.lease)
        await place.cluster.replace({**lease, "spec": {**lease["spec"], "holderIdentity": "thief"}})
        return True

    await until(lambda: _tried(steal))
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await process.process.wait() == 1


async def test_a_leader_that_was_frozen_wakes_too_late_and_changes_nothing(
    place: Place, start: Callable[[], Awaitable[Process]]
) -> None:
    first = await start()
    await until(first.ready)
    await place.cluster.create(
        {
            "apiVersion": API_VERSION,
            "kind": "RLJob",
            "metadata": {"name": "frozen", "namespace": place.namespace},
            "spec": small_spec(),
        }
    )
    await until(lambda: _clusters_are(place, "1"))
    second = await start()
    await until(lambda: _alive(second))
    first.process.send_signal(signal.SIGSTOP)
    try:
        await until(second.ready)
        await until(lambda: _tried(lambda: _suspend(place, suspend=True)))
        await until(lambda: _clusters_are(place))
        await until(lambda: _tried(lambda: _suspend(place, suspend=False)))
        await until(lambda: _clusters_are(place, "2"))
    finally:
        first.process.send_signal(signal.SIGCONT)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await first.process.wait() == 1
    assert await _clusters_are(place, "2")
    assert await second.ready()


async def _suspend(place: Place, *, suspend: bool) -> bool:
    job = await place.cluster.get(RLJOB, place.namespace, "frozen")
    await place.cluster.replace({**job, "spec": {**job["spec"], "suspend": suspend}})
    return True


async def _clusters_are(place: Place, *generations: str) -> bool:
    """Return whether the job's RayClusters are exactly those of these generations."""
    found = await place.cluster.list(RAY_CLUSTER, place.namespace)
    assert len(found.items) <= 1, "two clusters at once"
    return [item["metadata"]["labels"][CLUSTER_GENERATION] for item in found.items] == list(generations)


async def _alive(process: Process) -> bool:
    return await process.probe("/healthz") == 200


async def _tried(step: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await step()
    except Conflict:
        return False
