"""The fake's faults, which tests inject on purpose. tests/contract verifies its faithfulness."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from doubles.fake import FakeCluster, fail_write

from rljob.cluster.errors import NotFound, OutcomeUnknown, Unavailable
from rljob.cluster.kinds import CONFIG_MAP, EVENT, POD, RAY_CLUSTER, Kind

if TYPE_CHECKING:
    from rljob.core.observed import Manifest


def thing(kind: Kind, name: str, **metadata: object) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"namespace": "team", "name": name, **metadata},
    }


class Watch:
    """The events of a watch."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.events: list[tuple[str, str]] = []
        cluster.watch(self.hear)

    def hear(self, event: str, kind: Kind, manifest: Manifest) -> None:
        del kind
        self.events.append((event, manifest["metadata"]["name"]))


async def test_a_write_that_fails_before_the_commit_is_not_done() -> None:
    cluster = FakeCluster()
    cluster.faults.append(fail_write(1, Unavailable("down")))
    with pytest.raises(Unavailable):
        await cluster.create(thing(CONFIG_MAP, "one"))
    assert cluster.objects(CONFIG_MAP) == ()
    assert cluster.writes == 1


async def test_a_write_whose_answer_is_lost_is_done() -> None:
    cluster = FakeCluster()
    cluster.faults.append(fail_write(2, OutcomeUnknown("lost"), committed=True))
    await cluster.create(thing(CONFIG_MAP, "one"))
    with pytest.raises(OutcomeUnknown):
        await cluster.create(thing(CONFIG_MAP, "two"))
    assert len(cluster.objects(CONFIG_MAP)) == 2


@pytest.mark.parametrize("committed", [False, True])
async def test_an_error_that_is_raised_again_does_not_keep_the_world_of_the_last_time(committed: bool) -> None:
    error, worlds = Unavailable("down"), list[weakref.ref[FakeCluster]]()
    for _ in range(2):
        cluster = FakeCluster()
        worlds.append(weakref.ref(cluster))
        cluster.faults.append(fail_write(1, error, committed=committed))
        with pytest.raises(Unavailable):
            await cluster.create(thing(CONFIG_MAP, "one"))
        del cluster
    gc.collect()
    assert worlds[0]() is None


async def test_events_of_kubernetes_and_acts_of_others_are_no_writes_of_the_operator() -> None:
    cluster = FakeCluster()
    cluster.put(thing(CONFIG_MAP, "one"))
    await cluster.create(thing(EVENT, "note"))
    await cluster.get(CONFIG_MAP, "team", "one")
    assert cluster.writes == 0


async def test_held_events_can_be_permuted_doubled_and_lost() -> None:
    cluster = FakeCluster()
    watch = Watch(cluster)
    cluster.hold_events()
    for name in ("one", "two", "three"):
        cluster.put(thing(CONFIG_MAP, name))
    assert watch.events == []
    cluster.release_events(lambda held: [held[2], held[0], held[0]])
    assert watch.events == [("ADDED", "three"), ("ADDED", "one"), ("ADDED", "one")]
    cluster.put(thing(CONFIG_MAP, "four"))
    assert watch.events[-1] == ("ADDED", "four")


async def test_frozen_reads_show_the_past_while_writes_act_on_the_present() -> None:
    cluster = FakeCluster()
    made = cluster.put(thing(CONFIG_MAP, "one"))
    cluster.freeze_reads()
    await cluster.delete(CONFIG_MAP, "team", "one", made["metadata"]["uid"])
    assert await cluster.get(CONFIG_MAP, "team", "one") == made
    cluster.thaw_reads()
    with pytest.raises(NotFound):
        await cluster.get(CONFIG_MAP, "team", "one")


async def test_an_object_in_its_grace_period_stays_and_then_takes_along_what_it_owned() -> None:
    cluster = FakeCluster()
    cluster.lingering.add(RAY_CLUSTER)
    owner = cluster.put(thing(RAY_CLUSTER, "c1"))
    reference = {"uid": owner["metadata"]["uid"], "kind": "RayCluster", "name": "c1"}
    cluster.put(thing(POD, "head", ownerReferences=[reference]))
    watch = Watch(cluster)
    await cluster.delete(RAY_CLUSTER, "team", "c1", owner["metadata"]["uid"])
    await cluster.delete(RAY_CLUSTER, "team", "c1", owner["metadata"]["uid"])
    assert watch.events == [("MODIFIED", "c1")]
    assert len(cluster.objects(POD)) == 1
    cluster.finish_deletion(RAY_CLUSTER, "team", "c1")
    assert watch.events[1:] == [("DELETED", "c1"), ("DELETED", "head")]


async def test_an_object_with_two_owners_outlives_the_first() -> None:
    cluster = FakeCluster()
    owners = [cluster.put(thing(RAY_CLUSTER, name)) for name in ("c1", "c2")]
    references = [{"uid": owner["metadata"]["uid"]} for owner in owners]
    cluster.put(thing(POD, "head", ownerReferences=references))
    cluster.remove(RAY_CLUSTER, "team", "c1")
    assert len(cluster.objects(POD)) == 1
    cluster.remove(RAY_CLUSTER, "team", "c2")
    assert cluster.objects(POD) == ()


async def test_an_edit_of_the_spec_is_a_new_generation_and_one_of_the_status_is_not() -> None:
    cluster = FakeCluster()
    cluster.put(thing(RAY_CLUSTER, "c1"))
    edited = cluster.edit(RAY_CLUSTER, "team", "c1", lambda item: item.update(spec={"suspend": True}))
    assert edited["metadata"]["generation"] == 2
    told = cluster.edit(RAY_CLUSTER, "team", "c1", lambda item: item.update(status={"state": "ready"}))
    assert told["metadata"]["generation"] == 2


async def test_what_a_caller_does_to_an_answer_does_not_change_the_world() -> None:
    cluster = FakeCluster()
    cluster.put(thing(CONFIG_MAP, "one"))
    answer = dict(await cluster.get(CONFIG_MAP, "team", "one"))
    answer["metadata"]["name"] = "changed"
    assert cluster.find(CONFIG_MAP, "team", "one") is not None


async def test_a_log_is_what_a_test_says_that_a_container_wrote() -> None:
    cluster = FakeCluster()
    cluster.put(thing(POD, "one"))
    cluster.logs["team", "one", "main"] = "a\nb\nc"
    assert await cluster.log_tail("team", "one", "main", 2) == "b\nc"
