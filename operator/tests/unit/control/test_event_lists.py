"""How often events are listed."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import cast

import pytest
from doubles.clock import FrozenClock

from rljob.cluster.errors import Unavailable
from rljob.cluster.kinds import EVENT, Kind
from rljob.cluster.port import Cluster, Listing
from rljob.control.event_lists import FORGET_SECONDS, KEEP_SECONDS, LONGEST_REST_SECONDS, REFUSALS, REST, EventLists
from rljob.core.observed import Manifest


def refusal(cluster_name: str, name: str = "w") -> Manifest:
    return {"metadata": {"name": name}, "regarding": {"kind": "RayCluster", "name": cluster_name}}


@dataclass
class Server:
    """Answers LISTs of events, after some time."""

    clock: FrozenClock
    seconds: float = 0.0
    events: tuple[Manifest, ...] = ()
    error: Exception | None = None
    asked: deque[tuple[str | None, str]] = field(default_factory=deque)
    hold: asyncio.Event | None = None

    async def list(
        self, kind: Kind, namespace: str | None, *, limit: int | None = None, field_selector: str = ""
    ) -> Listing:
        """Record the request."""
        assert (kind, limit) == (EVENT, 2000 if "reason=" in field_selector else 500)
        self.asked.append((namespace, field_selector))
        if self.hold is not None:
            await self.hold.wait()
        self.clock.advance(self.seconds)
        if self.error is not None:
            raise self.error
        return Listing(self.events if field_selector.endswith("Spec") else (), "1")


@pytest.fixture
def server() -> Server:
    return Server(FrozenClock())


@pytest.fixture
def events(server: Server) -> EventLists:
    return EventLists(cast("Cluster", server), server.clock.monotonic)


async def test_a_thousand_jobs_that_wait_for_kuberay_read_a_namespace_once(server: Server, events: EventLists) -> None:
    server.events = (refusal("c1"), refusal("c1", "x"), refusal("c2"), {"metadata": {"name": "of nothing"}})
    found = [await events.refusals("team", f"c{number}") for number in range(1000)]
    assert [len(about) for about in found[:4]] == [0, 2, 1, 0]
    assert list(server.asked) == [("team", f"regarding.kind=RayCluster,reason={reason}") for reason in REFUSALS]
    await events.refusals("other", "c1")
    server.clock.advance(KEEP_SECONDS)
    server.events = (refusal("c3"),)
    assert await events.refusals("team", "c3") == (refusal("c3"),)
    assert [namespace for namespace, _ in server.asked][::3] == ["team", "other", "team"]
    assert {namespace for namespace, _ in events._read} == {"team", "other"}
    server.clock.advance(FORGET_SECONDS + KEEP_SECONDS)
    await events.refusals("team", "c1")
    assert {namespace for namespace, _ in events._read} == {"team"}, "namespaces without recent requests are dropped"


async def test_a_server_that_takes_long_is_left_alone_for_longer(server: Server, events: EventLists) -> None:
    server.seconds = 10.0
    await events.refusals("team", "c1")
    server.clock.advance(REST * 30.0 - 1)
    await events.refusals("team", "c1")
    assert len(server.asked) == 3
    server.clock.advance(1)
    server.seconds = 100.0
    await events.refusals("team", "c1")
    assert len(server.asked) == 6
    server.clock.advance(LONGEST_REST_SECONDS)
    await events.refusals("team", "c1")
    assert len(server.asked) == 9


async def test_nobody_waits_for_what_another_job_asked_for(server: Server, events: EventLists) -> None:
    server.events = (refusal("c1"),)
    assert await events.refusals("team", "c1") == (refusal("c1"),)
    server.clock.advance(KEEP_SECONDS)
    server.hold, server.events = asyncio.Event(), ()
    first = asyncio.create_task(events.refusals("team", "c1"))
    await asyncio.sleep(0)
    assert await events.refusals("team", "c1") == (refusal("c1"),), "the last ones meanwhile"
    server.hold.set()
    assert await first == ()
    assert len(server.asked) == 6


async def test_what_cannot_be_read_changes_nothing_that_is_known(server: Server, events: EventLists) -> None:
    server.events = (refusal("c1"),)
    await events.refusals("team", "c1")
    server.clock.advance(KEEP_SECONDS)
    server.error = Unavailable("down")
    assert await events.refusals("team", "c1") == (refusal("c1"),)
    assert await events.about("team", "c1") == ()


async def test_a_question_that_is_cut_off_lets_the_next_one_be_asked(server: Server, events: EventLists) -> None:
    server.hold = asyncio.Event()
    cut = asyncio.create_task(events.refusals("team", "c1"))
    await asyncio.sleep(0)
    cut.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cut
    server.hold, server.events = None, (refusal("c1"),)
    server.clock.advance(KEEP_SECONDS)
    assert await events.refusals("team", "c1") == (refusal("c1"),)


async def test_each_question_has_a_list_of_its_own(server: Server, events: EventLists) -> None:
    await events.refusals("team", "c1")
    await events.deleted_pods("team", "c1")
    await events.failed_creations("team", "prepare")
    await events.failed_creations("team", "convert")
    assert [selector.split("=")[-1] for _, selector in server.asked] == [
        *REFUSALS,
        "DeletedHeadPod",
        "DeletedWorkerPod",
        "FailedCreate",
    ]
    assert server.asked[-1] == ("team", "regarding.kind=Job,reason=FailedCreate")
