"""Nodes are read once for many jobs, and not at all if that is forbidden."""

import asyncio

from doubles.clock import FrozenClock
from doubles.fake import FakeCluster, fail_calls

from rljob.cluster.errors import Forbidden, Unavailable
from rljob.cluster.kinds import NODE
from rljob.control.node_cache import FRESH_SECONDS, KEEP_SECONDS, NODES_LIMIT, RETRY_SECONDS, NodeCache
from rljob.core.observed import UNSEEN
from rljob.core.scheduling.discovery import Nodes
from rljob.render.accelerators import BUILT_IN


def cluster(count: int) -> FakeCluster:
    made = FakeCluster()
    for number in range(count):
        made.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}})
    return made


def cache(made: FakeCluster, clock: FrozenClock) -> NodeCache:
    return NodeCache(made, clock.monotonic, BUILT_IN)


async def test_jobs_that_begin_together_share_one_request_for_five_minutes() -> None:
    made, clock, asked = cluster(2), FrozenClock(), []

    async def count(call: object) -> None:
        asked.append(call)

    made.gate = count
    nodes = cache(made, clock)
    found = await asyncio.gather(*(nodes.get() for _ in range(9)))
    assert len(asked) == 1
    assert all(isinstance(each, Nodes) and len(each.items) == 2 and each.complete for each in found)
    clock.advance(KEEP_SECONDS)
    await nodes.get()
    assert len(asked) == 2
    clock.advance(FRESH_SECONDS)
    await nodes.get()
    assert len(asked) == 2
    await nodes.get(fresh=True)
    assert len(asked) == 3


async def test_a_cluster_beyond_the_limit_is_known_in_part() -> None:
    found = await cache(cluster(NODES_LIMIT + 1), FrozenClock()).get()
    assert isinstance(found, Nodes)
    assert (len(found.items), found.complete) == (NODES_LIMIT, False)


async def test_an_installation_that_may_not_read_nodes_knows_nothing() -> None:
    made = cluster(1)
    made.faults.append(fail_calls("list", NODE, Forbidden("no"), times=1))
    clock = FrozenClock()
    nodes = cache(made, clock)
    assert await nodes.get() == Nodes((), complete=False), "no caller waits for another answer"
    clock.advance(KEEP_SECONDS)
    found = await nodes.get()
    assert isinstance(found, Nodes)
    assert found.complete


async def test_an_outage_says_nothing_of_nodes_and_they_are_read_again_soon() -> None:
    made, clock = cluster(1), FrozenClock()
    made.faults.append(fail_calls("list", NODE, Unavailable("down"), times=1))
    nodes = cache(made, clock)
    assert await nodes.get() is UNSEEN
    assert await nodes.get() is UNSEEN, "during an outage, further callers wait for a while"
    clock.advance(RETRY_SECONDS)
    assert isinstance(await nodes.get(), Nodes)
