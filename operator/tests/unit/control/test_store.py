"""The store: in whatever order events arrive, it ends with the true state."""

from __future__ import annotations

import copy
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from doubles.fake import FakeCluster
from hypothesis import given
from hypothesis import strategies as st

from rljob.cluster.kinds import CLUSTER_RL_RECIPE, POD, RAY_CLUSTER, RL_RECIPE, RLJOB, Kind
from rljob.cluster.port import Listing
from rljob.control.store import ENDED_PODS, DriftKind, Key, Store
from rljob.core.observed import KubeRayWork
from rljob.render.labels import ACCELERATOR, JOB, JOB_UID

if TYPE_CHECKING:
    from rljob.core.observed import Manifest

KEY = Key("team", "sums")


def thing(kind: Kind, name: str, version: int, uid: str = "", **labels: str) -> dict[str, Any]:
    metadata = {"namespace": "team", "name": name, "uid": uid or name, "resourceVersion": str(version)}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {**metadata, "labels": labels}}


def child(name: str, version: int, job: str = "sums", job_uid: str = "j1") -> dict[str, Any]:
    return thing(RAY_CLUSTER, name, version, **{JOB: job, JOB_UID: job_uid})


class Heard:
    """A store and the keys that it queued."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.store = Store(self.keys.append)


def test_an_event_older_than_our_own_write_is_ignored() -> None:
    heard = Heard()
    heard.store.put(RLJOB, thing(RLJOB, "sums", 7))
    heard.keys.clear()
    assert not heard.store.put(RLJOB, thing(RLJOB, "sums", 5))
    assert heard.store.job(KEY) == thing(RLJOB, "sums", 7)
    assert heard.keys == []


def test_the_echo_of_our_own_write_queues_nothing() -> None:
    heard = Heard()
    heard.store.put(RLJOB, thing(RLJOB, "sums", 7))
    heard.keys.clear()
    assert not heard.store.put(RLJOB, thing(RLJOB, "sums", 7))
    assert heard.keys == []


def test_an_echo_that_comes_before_the_answer_to_its_write_queues_nothing() -> None:
    heard = Heard()
    with heard.store.answer_first("sums"):
        heard.store.put(RLJOB, thing(RLJOB, "sums", 7))
        heard.store.put(RLJOB, thing(RLJOB, "others", 3))
        assert heard.keys == [Key("team", "others")]
        heard.store.learn(RLJOB, thing(RLJOB, "sums", 7))
    assert heard.keys == [Key("team", "others")]


def test_what_others_do_during_our_write_queues_the_job_when_it_is_answered() -> None:
    heard = Heard()
    with heard.store.answer_first("sums"):
        for version in (7, 8):
            heard.store.put(RLJOB, thing(RLJOB, "sums", version))
        heard.store.learn(RLJOB, thing(RLJOB, "sums", 7))
    assert heard.keys == [KEY]
    assert heard.store.job(KEY) == thing(RLJOB, "sums", 8)
    with heard.store.answer_first("sums"):
        heard.store.remove(RLJOB, thing(RLJOB, "sums", 10))
        heard.store.learn(RLJOB, thing(RLJOB, "sums", 9))
    assert heard.store.job(KEY) is None
    assert heard.keys == [KEY, KEY]


def test_a_write_that_is_never_answered_keeps_no_event_back() -> None:
    heard = Heard()

    def write() -> None:
        with heard.store.answer_first("sums"):
            heard.store.put(RLJOB, thing(RLJOB, "sums", 7))
            raise TimeoutError

    with pytest.raises(TimeoutError):
        write()
    assert heard.store.job(KEY) == thing(RLJOB, "sums", 7)
    assert heard.keys == [KEY]


def test_what_is_put_off_is_no_drift() -> None:
    heard = Heard()
    with heard.store.answer_first("sums"):
        heard.store.put(RLJOB, thing(RLJOB, "sums", 7))
        assert heard.store.merge(RLJOB, Listing((thing(RLJOB, "sums", 7),), "8")) == []
        heard.store.learn(RLJOB, thing(RLJOB, "sums", 7))
    assert heard.store.unconfirmed() == []
    assert heard.store.job(KEY) == thing(RLJOB, "sums", 7)


def test_how_far_kuberay_is_shows_in_the_statuses_of_all_clusters() -> None:
    store = Heard().store
    for name, minute in (("a", 0), ("b", 9), ("c", 5)):
        moment = f"2026-01-01T12:{minute:02}:00Z"
        found = child(name, 1) | {"status": {"lastUpdateTime": moment}}
        found["metadata"]["creationTimestamp"] = f"2026-01-01T11:{minute:02}:00Z"
        store.put(RAY_CLUSTER, found)
    untouched = child("d", 1)
    untouched["metadata"]["creationTimestamp"] = "2026-01-01T11:59:00Z"
    store.put(RAY_CLUSTER, untouched)
    assert store.kuberay == KubeRayWork("2026-01-01T12:09:00Z", "2026-01-01T11:09:00Z")
    store.put(RAY_CLUSTER, child("a", 2) | {"status": {"lastUpdateTime": "2026-01-01T12:10:00Z"}})
    assert store.kuberay == KubeRayWork("2026-01-01T12:10:00Z", "2026-01-01T11:09:00Z")


def test_versions_are_compared_as_numbers() -> None:
    heard = Heard()
    heard.store.put(RLJOB, thing(RLJOB, "sums", 9))
    assert heard.store.put(RLJOB, thing(RLJOB, "sums", 10))


def test_a_version_that_is_no_number_is_believed() -> None:
    heard = Heard()
    odd = thing(RLJOB, "sums", 9)
    heard.store.put(RLJOB, odd)
    odd = copy.deepcopy(odd)
    odd["metadata"]["resourceVersion"] = "abc"
    assert heard.store.put(RLJOB, odd)


def test_a_change_is_in_the_store_when_its_callback_runs() -> None:
    seen: list[str | None] = []
    store = Store(lambda key: seen.append((store.job(key) or {"metadata": {}})["metadata"].get("resourceVersion")))
    for version in (1, 2):
        store.put(RLJOB, thing(RLJOB, "sums", version))
    store.remove(RLJOB, thing(RLJOB, "sums", 3))
    assert seen == ["1", "2", None], "the queue asks which lane a job is in"


def test_a_child_queues_the_job_that_its_label_names() -> None:
    heard = Heard()
    heard.store.put(RAY_CLUSTER, child("c1", 5))
    assert heard.keys == [KEY]
    assert heard.store.children(RAY_CLUSTER, KEY, "j1") == (child("c1", 5),)
    assert heard.store.children(RAY_CLUSTER, KEY, "j2") == ()


def test_a_child_that_changes_its_label_queues_both_jobs() -> None:
    heard = Heard()
    heard.store.put(RAY_CLUSTER, child("c1", 5))
    heard.keys.clear()
    heard.store.put(RAY_CLUSTER, child("c1", 6, job="other"))
    assert set(heard.keys) == {KEY, Key("team", "other")}
    assert heard.store.children(RAY_CLUSTER, KEY) == ()


def test_a_late_event_does_not_undo_a_deletion() -> None:
    heard = Heard()
    heard.store.put(RLJOB, thing(RLJOB, "sums", 5))
    heard.store.remove(RLJOB, thing(RLJOB, "sums", 8))
    assert not heard.store.put(RLJOB, thing(RLJOB, "sums", 6))
    assert heard.store.job(KEY) is None


def test_an_object_that_a_live_read_did_not_find_never_returns() -> None:
    heard = Heard()
    heard.store.put(RLJOB, thing(RLJOB, "sums", 5))
    heard.store.vanished(RLJOB, "sums")
    assert not heard.store.put(RLJOB, thing(RLJOB, "sums", 6))


def test_an_object_that_left_the_selector_and_came_back_is_there() -> None:
    heard = Heard()
    heard.store.put(RAY_CLUSTER, child("c1", 5))
    heard.store.remove(RAY_CLUSTER, child("c1", 6))
    assert heard.store.put(RAY_CLUSTER, child("c1", 7))
    assert not heard.store.remove(RAY_CLUSTER, child("c1", 6))
    assert heard.store.children(RAY_CLUSTER, KEY) == (child("c1", 7),)


def test_a_job_made_anew_under_its_name_takes_the_place_of_the_old_one() -> None:
    heard = Heard()
    heard.store.put(RLJOB, thing(RLJOB, "sums", 5, uid="old"))
    heard.store.put(RLJOB, thing(RLJOB, "sums", 9, uid="new"))
    heard.store.remove(RLJOB, thing(RLJOB, "sums", 8, uid="old"))
    job = heard.store.job(KEY)
    assert job is not None
    assert job["metadata"]["uid"] == "new"


def test_a_list_evicts_what_a_lost_deletion_left() -> None:
    heard = Heard()
    heard.store.put(RAY_CLUSTER, child("c1", 5))
    drifts = heard.store.merge(RAY_CLUSTER, Listing((), "9"))
    assert [drift.drift for drift in drifts] == [DriftKind.MISSED_DELETE]
    assert heard.store.children(RAY_CLUSTER, KEY) == ()


def test_a_list_does_not_evict_what_was_made_after_it() -> None:
    heard = Heard()
    heard.store.put(RAY_CLUSTER, child("c1", 11))
    assert heard.store.merge(RAY_CLUSTER, Listing((), "9")) == []
    assert heard.store.children(RAY_CLUSTER, KEY) == (child("c1", 11),)


def test_drift_that_an_event_confirms_is_not_counted() -> None:
    heard = Heard()
    heard.store.put(RAY_CLUSTER, child("c1", 5))
    heard.store.merge(RAY_CLUSTER, Listing((child("c1", 6), child("c2", 7)), "9"))
    heard.store.put(RAY_CLUSTER, child("c1", 6))
    assert [(drift.uid, drift.drift) for drift in heard.store.unconfirmed()] == [("c2", DriftKind.MISSED_ADD)]
    assert heard.store.unconfirmed() == []


def test_a_list_finds_a_lost_update() -> None:
    heard = Heard()
    heard.store.put(RAY_CLUSTER, child("c1", 5))
    heard.store.merge(RAY_CLUSTER, Listing((child("c1", 6),), "9"))
    assert [drift.drift for drift in heard.store.unconfirmed()] == [DriftKind.MISSED_UPDATE]


def on_recipe(name: str, recipe: str, kind: str = "ClusterRLRecipe", namespace: str = "team") -> dict[str, Any]:
    job = thing(RLJOB, name, 5, uid=f"{namespace}-{name}")
    job["metadata"]["namespace"] = namespace
    return {**job, "spec": {"recipeRef": {"kind": kind, "name": recipe}}}


def recipe(kind: Kind, name: str, version: int, below: str | None = None) -> dict[str, Any]:
    made = {**thing(kind, name, version), "spec": {"recipeRef": {"name": below}} if below else {}}
    if not kind.namespaced:
        del made["metadata"]["namespace"]
    return made


def heard_with(*jobs: dict[str, Any]) -> Heard:
    heard = Heard()
    for job in jobs:
        heard.store.put(RLJOB, job)
    heard.keys.clear()
    return heard


def test_a_recipe_queues_exactly_the_jobs_whose_chain_leads_to_it() -> None:
    heard = heard_with(
        on_recipe("direct", "base"), on_recipe("above", "top"), on_recipe("other", "rest"), thing(RLJOB, "plain", 5)
    )
    heard.store.put(CLUSTER_RL_RECIPE, recipe(CLUSTER_RL_RECIPE, "top", 6, below="base"))
    assert heard.keys == [Key("team", "above")]
    heard.keys.clear()
    heard.store.put(CLUSTER_RL_RECIPE, recipe(CLUSTER_RL_RECIPE, "base", 7))
    assert set(heard.keys) == {Key("team", "direct"), Key("team", "above")}
    heard.keys.clear()
    heard.store.remove(CLUSTER_RL_RECIPE, recipe(CLUSTER_RL_RECIPE, "base", 8))
    assert set(heard.keys) == {Key("team", "direct"), Key("team", "above")}


def test_a_recipe_of_a_namespace_queues_jobs_of_that_namespace_only() -> None:
    heard = heard_with(on_recipe("mine", "base", "RLRecipe"), on_recipe("theirs", "base", "RLRecipe", "other-team"))
    heard.store.put(RL_RECIPE, recipe(RL_RECIPE, "base", 6))
    assert heard.keys == [Key("team", "mine")]


def test_a_recipe_that_a_job_took_queues_it_although_it_names_another_by_now() -> None:
    job = on_recipe("sums", "new")
    job["status"] = {"resolved": {"recipes": [{"kind": "ClusterRLRecipe", "name": "old"}, {"nonsense": 1}]}}
    heard = heard_with(job)
    heard.store.put(CLUSTER_RL_RECIPE, recipe(CLUSTER_RL_RECIPE, "old", 6))
    assert heard.keys == [KEY]
    assert {str(found) for found in heard.store.recipes(job)} == {"ClusterRLRecipe old"}


def test_the_newest_of_two_recipes_of_a_name_counts() -> None:
    job = on_recipe("sums", "base")
    heard = heard_with(job)
    for uid, version in (("old", 6), ("new", 9)):
        made = recipe(CLUSTER_RL_RECIPE, "base", version)
        made["metadata"]["uid"] = uid
        heard.store.put(CLUSTER_RL_RECIPE, made)
    (found,) = heard.store.recipes(job).values()
    assert found["metadata"]["uid"] == "new"


def test_a_recipe_with_the_label_of_a_job_is_still_a_recipe() -> None:
    heard = heard_with(on_recipe("sums", "base"))
    made = recipe(CLUSTER_RL_RECIPE, "base", 6)
    made["metadata"]["labels"] = {JOB: "another"}
    heard.store.put(CLUSTER_RL_RECIPE, made)
    assert heard.keys == [KEY]


ACTIONS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["put", "edit", "remove"])), max_size=25)


def history(actions: list[tuple[str, str]]) -> tuple[FakeCluster, list[tuple[str, Kind, Manifest]]]:
    """Play a life of three clusters; return the final world and all events."""
    cluster = FakeCluster()
    events: list[tuple[str, Kind, Manifest]] = []
    cluster.watch(lambda *event: events.append(event))
    labels = {JOB: "sums", JOB_UID: "j1"}
    for number, (name, action) in enumerate(actions):
        there = cluster.find(RAY_CLUSTER, "team", name) is not None
        if action == "put" and not there:
            metadata = {"namespace": "team", "name": name, "labels": labels}
            cluster.put({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata})
        elif action == "edit" and there:
            cluster.edit(RAY_CLUSTER, "team", name, partial(with_spec, number))
        elif action == "remove" and there:
            cluster.remove(RAY_CLUSTER, "team", name)
    return cluster, events


def with_spec(number: int, item: dict[str, Any]) -> None:
    item["spec"] = {"n": number}


def feed(store: Store, event: str, kind: Kind, manifest: Manifest) -> None:
    if event == "DELETED":
        store.remove(kind, manifest)
    else:
        store.put(kind, manifest)


@given(actions=ACTIONS, data=st.data())
def test_events_in_any_order_and_any_number_lead_to_the_truth(
    actions: list[tuple[str, str]], data: st.DataObject
) -> None:
    cluster, events = history(actions)
    doubled = events + data.draw(st.lists(st.sampled_from(events), max_size=10) if events else st.just([]))
    heard = Heard()
    for event in data.draw(st.permutations(doubled)):
        feed(heard.store, *event)
    assert heard.store.children(RAY_CLUSTER, KEY) == cluster.objects(RAY_CLUSTER)


@given(actions=ACTIONS, data=st.data())
async def test_a_list_heals_any_loss_of_events(actions: list[tuple[str, str]], data: st.DataObject) -> None:
    cluster, events = history(actions)
    kept = [event for event in events if data.draw(st.booleans())]
    heard = Heard()
    for event in data.draw(st.permutations(kept)):
        feed(heard.store, *event)
    heard.store.merge(RAY_CLUSTER, await cluster.list(RAY_CLUSTER))
    assert heard.store.children(RAY_CLUSTER, KEY) == cluster.objects(RAY_CLUSTER)


@given(actions=ACTIONS, cut=st.integers(0, 25), data=st.data())
async def test_a_list_that_is_late_or_early_never_undoes_an_event(
    actions: list[tuple[str, str]], cut: int, data: st.DataObject
) -> None:
    early, _ = history(actions[:cut])
    listing = await early.list(RAY_CLUSTER)
    cluster, events = history(actions)
    heard = Heard()
    when = data.draw(st.integers(0, len(events)))
    for event in events[:when]:
        feed(heard.store, *event)
    heard.store.merge(RAY_CLUSTER, listing)
    for event in events[when:]:
        feed(heard.store, *event)
    assert heard.store.children(RAY_CLUSTER, KEY) == cluster.objects(RAY_CLUSTER)


@given(actions=ACTIONS)
def test_every_change_queues_the_job(actions: list[tuple[str, str]]) -> None:
    _, events = history(actions)
    heard = Heard()
    for event in events:
        heard.keys.clear()
        feed(heard.store, *event)
        assert heard.keys
        assert set(heard.keys) == {KEY}


def test_kinds_are_counted_apart() -> None:
    heard = Heard()
    heard.store.put(RLJOB, thing(RLJOB, "sums", 5))
    heard.store.put(POD, thing(POD, "head", 6, **{JOB: "sums"}))
    assert (heard.store.count(RLJOB), heard.store.count(POD), heard.store.count(RAY_CLUSTER)) == (1, 1, 0)
    assert heard.store.job_keys() == [KEY]


def test_what_no_decision_reads_is_not_kept() -> None:
    store = Store(lambda _: None)
    template = {"spec": {"containers": [{"name": "ray"}]}}
    made = child("c1", 1)
    made["metadata"]["managedFields"] = [{"manager": "kuberay"}]
    made["spec"] = {
        "headGroupSpec": {"template": template},
        "workerGroupSpecs": [{"replicas": 2, "template": template}],
    }
    store.put(RAY_CLUSTER, made)
    (kept,) = store.children(RAY_CLUSTER, KEY)
    assert "managedFields" not in kept["metadata"]
    assert kept["spec"] == {"headGroupSpec": {}, "workerGroupSpecs": [{"replicas": 2}]}


def test_objects_share_equal_strings_as_parsing_does_not() -> None:
    store = Store(lambda _: None)
    text = json.dumps(child("c1", 1) | {"spec": {"group": {"rank": ["first of them", 7, None, 0.5, True]}}})
    parsed = [json.loads(text), json.loads(text.replace("c1", "c2"))]
    assert not list(_strings(parsed[0]).keys() & _strings(parsed[1]).keys()), "the parser shares them by now"
    for made in parsed:
        store.put(RAY_CLUSTER, made)
    first, second = store.children(RAY_CLUSTER, KEY)
    assert (first, second) == tuple(parsed)
    unlike = {"c1", "c2"}
    assert {text for text in _strings(first).values() if text not in unlike} == {
        text for found, text in _strings(second).items() if found in _strings(first) and text not in unlike
    }


def _strings(value: object) -> dict[int, str]:
    """Return every key and value of more than one letter by its identity."""
    if isinstance(value, dict):
        return _strings([*value.keys(), *value.values()])
    if isinstance(value, list):
        return {name: text for member in value for name, text in _strings(member).items()}
    return {id(value): value} if isinstance(value, str) and len(value) > 1 else {}


def test_the_devices_of_other_jobs_clusters_are_counted_by_class() -> None:
    store = Heard().store
    for uid, devices in (("mine", 16), ("small", 2), ("large", 64), ("waits", 8), ("new", None)):
        found = thing(RLJOB, uid, 1)
        store.put(RLJOB, found | ({"status": {"resolved": {"devices": devices}}} if devices else {}))
        made = thing(RAY_CLUSTER, f"{uid}-1", 1, **{JOB: uid, ACCELERATOR: "cpu" if uid == "small" else "atlas-a3"})
        made["metadata"]["ownerReferences"] = [{"kind": "RLJob", "uid": uid, "controller": True}]
        store.put(RAY_CLUSTER, made | {"spec": {"suspend": uid == "waits"}})
    # Anyone can copy its labels.
    store.put(RAY_CLUSTER, thing(RAY_CLUSTER, "foreign", 1, **{JOB: "large", ACCELERATOR: "atlas-a3"}))
    assert store.devices_taken(but="mine") == {"cpu": 2, "atlas-a3": 64}


def test_siblings_are_the_other_jobs_of_the_namespace() -> None:
    store = Store(lambda _: None)
    for name, namespace in (("sums", "team"), ("other", "team"), ("far", "elsewhere")):
        made = thing(RLJOB, name, 1, uid=f"{namespace}/{name}")
        made["metadata"]["namespace"] = namespace
        store.put(RLJOB, made)
    job = store.job(KEY)
    assert job is not None
    siblings = store.siblings(job)
    assert list(siblings) == ["other"]
    assert len(siblings) == 1
    assert siblings["other"]["metadata"]["name"] == "other"
    assert "sums" not in siblings
    assert "far" not in siblings


def test_pods_that_had_ended_are_remembered_after_their_deletion_up_to_a_bound() -> None:
    heard = Heard()
    ran = thing(POD, "runs", 1) | {"status": {"containerStatuses": [{"name": "ray", "state": {"running": {}}}]}}
    ended = {"containerStatuses": [{"name": "waits"}, {"name": "ray", "state": {"terminated": {"exitCode": 127}}}]}
    heard.store.remove(POD, ran)
    heard.store.remove(POD, thing(POD, "no-status", 1))
    heard.store.remove(RAY_CLUSTER, child("c1", 1) | {"status": {"phase": "Failed"}})
    assert not heard.store.ended_pods
    heard.store.put(POD, thing(POD, "first", 1))
    heard.store.remove(POD, thing(POD, "first", 2) | {"status": ended, "spec": {"containers": [], "nodeName": "a"}})
    assert heard.store.ended_pods["first"]["status"] == ended
    assert heard.store.ended_pods["first"]["spec"] == {"nodeName": "a"}
    for number in range(ENDED_PODS):
        heard.store.remove(POD, thing(POD, f"p{number}", 1) | {"status": {"phase": "Failed"}})
    assert len(heard.store.ended_pods) == ENDED_PODS
    assert "first" not in heard.store.ended_pods
