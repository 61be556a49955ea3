"""Behavior of the API server that the operator relies on, tested with the fake and with a real API server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from builders import small_spec, typed
from contract.conftest import KUBECONFIG
from contract.place import NOWHERE

from rljob.cluster.errors import AlreadyExists, Conflict, NotFound
from rljob.cluster.kinds import CLUSTER_RL_RECIPE, CONFIG_MAP, EVENT, JOB, LEASE, POD, RAY_CLUSTER, RLJOB, SECRET, Kind
from rljob.cluster.manifests import controller_uid
from rljob.render.initializer import build_initializer
from rljob.render.names import JobIdentity
from rljob.render.raycluster import build_raycluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contract.place import Place

    from rljob.core.observed import Manifest

Json = dict[str, Any]
GOLDEN_JOBS = Path(__file__).parents[1] / "golden" / "jobs"


def manifest(kind: Kind, namespace: str, name: str, **fields: object) -> Json:
    metadata = {"namespace": namespace, "name": name, **fields.pop("metadata", {})}  # type: ignore[dict-item]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}


def config_map(place: Place, name: str = "one", **metadata: object) -> Json:
    return manifest(CONFIG_MAP, place.namespace, name, metadata=metadata, data={"a": "b"})


def rljob(place: Place, name: str = "sums") -> Json:
    # Objects of the test are not reconciled by any controller.
    return manifest(RLJOB, place.namespace, name, spec=small_spec() | {"managedBy": "rljob.dev/contract-test"})


def with_status(job: Manifest, status: Json) -> Json:
    metadata = {key: job["metadata"][key] for key in ("namespace", "name", "uid", "resourceVersion")}
    return {"apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": metadata, "status": status}


async def test_a_created_object_has_a_uid_and_a_version_and_can_be_read_back(place: Place) -> None:
    made = await place.cluster.create(config_map(place))
    assert made["metadata"]["uid"]
    assert int(made["metadata"]["resourceVersion"]) > 0
    assert await place.cluster.get(CONFIG_MAP, place.namespace, "one") == made


async def test_the_fields_of_a_kinds_spec_can_be_read_and_a_kind_that_is_not_served_has_none(place: Place) -> None:
    assert {"trainer", "trainer.steps"} <= await place.cluster.spec_fields(RLJOB)
    with pytest.raises(NotFound):
        await place.cluster.spec_fields(NOWHERE)


async def test_creating_a_name_twice_is_already_exists(place: Place) -> None:
    await place.cluster.create(config_map(place))
    with pytest.raises(AlreadyExists):
        await place.cluster.create(config_map(place))


async def test_what_is_absent_is_not_found(place: Place) -> None:
    with pytest.raises(NotFound):
        await place.cluster.get(CONFIG_MAP, place.namespace, "none")
    with pytest.raises(NotFound):
        await place.cluster.delete(CONFIG_MAP, place.namespace, "none", "uid")


async def test_a_list_gives_whole_manifests_chosen_by_label(place: Place) -> None:
    await place.cluster.create(config_map(place, "one", labels={"team": "a", "role": "x"}))
    await place.cluster.create(config_map(place, "two", labels={"team": "b"}))
    listing = await place.cluster.list(CONFIG_MAP, place.namespace, "team=a,role")
    assert [item["metadata"]["name"] for item in listing.items] == ["one"]
    assert (listing.items[0]["apiVersion"], listing.items[0]["kind"]) == ("v1", "ConfigMap")
    assert int(listing.resource_version) >= int(listing.items[0]["metadata"]["resourceVersion"])


async def test_a_list_of_metadata_has_nothing_else(place: Place) -> None:
    assert (await place.cluster.list(CONFIG_MAP, place.namespace, "mine=yes", metadata_only=True)).items == ()
    made = await place.cluster.create({**config_map(place, "one", labels={"mine": "yes"}), "data": {"x": "y"}})
    (found,) = (await place.cluster.list(CONFIG_MAP, place.namespace, "mine=yes", metadata_only=True)).items
    assert found.keys() == {"apiVersion", "kind", "metadata"}
    assert (found["apiVersion"], found["kind"]) == ("v1", "ConfigMap")
    assert found["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_list_stops_at_its_limit(place: Place) -> None:
    for name in ("one", "two", "three"):
        await place.cluster.create(config_map(place, name, labels={"mine": "yes"}))
    for limit, is_cut in ((2, True), (3, False)):
        listing = await place.cluster.list(CONFIG_MAP, place.namespace, "mine=yes", limit=limit)
        assert (len(listing.items), listing.is_cut) == (limit, is_cut)


async def test_a_kind_that_is_not_served_is_not_found(place: Place) -> None:
    absent = Kind("rljob.dev/v1alpha1", "Nothing", "nothings")
    if hasattr(place.cluster, "unserved"):
        place.cluster.unserved.add(absent)
    with pytest.raises(NotFound):
        await place.cluster.list(absent, place.namespace)


async def test_a_deletion_names_the_uid(place: Place) -> None:
    made = await place.cluster.create(config_map(place))
    with pytest.raises(Conflict):
        await place.cluster.delete(CONFIG_MAP, place.namespace, "one", "00000000-0000-4000-8000-000000000000")
    await place.cluster.delete(CONFIG_MAP, place.namespace, "one", made["metadata"]["uid"])
    with pytest.raises(NotFound):
        await place.cluster.get(CONFIG_MAP, place.namespace, "one")


async def test_an_object_with_a_finalizer_stays_until_it_is_taken_off(place: Place) -> None:
    made = await place.cluster.create(config_map(place, finalizers=["rljob.dev/stop"]))
    await place.cluster.delete(CONFIG_MAP, place.namespace, "one", made["metadata"]["uid"])
    leaving = await place.cluster.get(CONFIG_MAP, place.namespace, "one")
    assert leaving["metadata"]["deletionTimestamp"]
    await place.cluster.replace({**leaving, "metadata": {**leaving["metadata"], "finalizers": []}})
    with pytest.raises(NotFound):
        await place.cluster.get(CONFIG_MAP, place.namespace, "one")


async def test_a_replacement_names_the_version(place: Place) -> None:
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15}
    made = await place.cluster.create(manifest(LEASE, place.namespace, "leader", spec=spec))
    newer = await place.cluster.replace({**made, "spec": {**spec, "holderIdentity": "you"}})
    assert newer["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    with pytest.raises(Conflict):
        await place.cluster.replace({**made, "spec": {**spec, "holderIdentity": "me"}})


async def test_a_job_is_created_without_its_status(place: Place) -> None:
    made = await place.cluster.create({**rljob(place), "status": {"state": "Training"}})
    assert "status" not in made
    assert made["metadata"]["generation"] == 1


async def test_a_status_is_applied_on_the_version_that_it_was_decided_on(place: Place) -> None:
    made = await place.cluster.create(rljob(place))
    written = await place.cluster.apply_status(with_status(made, {"state": "Pending", "restarts": 1}))
    assert written["status"] == {"state": "Pending", "restarts": 1}
    assert written["metadata"]["generation"] == 1
    with pytest.raises(Conflict):
        await place.cluster.apply_status(with_status(made, {"state": "Training"}))


async def test_a_field_that_is_left_out_of_the_next_status_is_gone(place: Place) -> None:
    made = await place.cluster.create(rljob(place))
    first = await place.cluster.apply_status(with_status(made, {"state": "Pending", "restarts": 1}))
    second = await place.cluster.apply_status(with_status(first, {"state": "Training"}))
    assert second["status"] == {"state": "Training"}


async def test_the_same_status_again_makes_no_new_version(place: Place) -> None:
    made = await place.cluster.create(rljob(place))
    first = await place.cluster.apply_status(with_status(made, {"state": "Pending"}))
    again = await place.cluster.apply_status(with_status(first, {"state": "Pending"}))
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_status_for_a_job_made_anew_is_a_conflict(place: Place) -> None:
    old = await place.cluster.create(rljob(place))
    await place.cluster.delete(RLJOB, place.namespace, "sums", old["metadata"]["uid"])
    await place.cluster.create(rljob(place))
    with pytest.raises(Conflict):
        await place.cluster.apply_status(with_status(old, {"state": "Pending"}))


async def test_a_status_for_a_job_that_is_gone_fails_and_creates_nothing(place: Place) -> None:
    old = await place.cluster.create(rljob(place))
    await place.cluster.delete(RLJOB, place.namespace, "sums", old["metadata"]["uid"])
    with pytest.raises((NotFound, Conflict)):
        await place.cluster.apply_status(with_status(old, {"state": "Pending"}))
    with pytest.raises(NotFound):
        await place.cluster.get(RLJOB, place.namespace, "sums")


def with_finalizers(job: Manifest, *names: str) -> Json:
    metadata = {key: job["metadata"][key] for key in ("namespace", "name", "uid", "resourceVersion")}
    return {"apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": {**metadata, "finalizers": list(names)}}


async def test_finalizers_are_set_on_the_version_that_they_were_decided_on(place: Place) -> None:
    made = await place.cluster.create(rljob(place))
    held = await place.cluster.set_finalizers(with_finalizers(made, "example.com/other", "rljob.dev/stop"))
    assert held["metadata"]["finalizers"] == ["example.com/other", "rljob.dev/stop"]
    assert (held["spec"], held["metadata"]["generation"]) == (made["spec"], 1)
    with pytest.raises(Conflict):
        await place.cluster.set_finalizers(with_finalizers(made))
    free = await place.cluster.set_finalizers(with_finalizers(held))
    assert "finalizers" not in free["metadata"]


async def test_a_deleted_job_takes_a_status_and_goes_with_its_last_finalizer(place: Place) -> None:
    made = await place.cluster.create(rljob(place))
    held = await place.cluster.set_finalizers(with_finalizers(made, "rljob.dev/stop"))
    await place.cluster.delete(RLJOB, place.namespace, "sums", made["metadata"]["uid"])
    leaving = await place.cluster.get(RLJOB, place.namespace, "sums")
    assert leaving["metadata"]["resourceVersion"] != held["metadata"]["resourceVersion"]
    told = await place.cluster.apply_status(with_status(leaving, {"state": "Stopping"}))
    last = await place.cluster.set_finalizers(with_finalizers(told))
    assert last["metadata"]["deletionTimestamp"]
    with pytest.raises(NotFound):
        await place.cluster.get(RLJOB, place.namespace, "sums")
    with pytest.raises(NotFound):
        await place.cluster.set_finalizers(with_finalizers(last))


async def test_finalizers_for_a_job_made_anew_are_a_conflict(place: Place) -> None:
    old = await place.cluster.create(rljob(place))
    await place.cluster.delete(RLJOB, place.namespace, "sums", old["metadata"]["uid"])
    await place.cluster.create(rljob(place))
    with pytest.raises(Conflict):
        await place.cluster.set_finalizers(with_finalizers(old, "rljob.dev/stop"))


async def test_owner_and_intent_of_a_child_come_back_as_they_were_sent(place: Place) -> None:
    job = await place.cluster.create(rljob(place))
    owner = {"apiVersion": RLJOB.api_version, "kind": "RLJob", "name": "sums", "uid": job["metadata"]["uid"]}
    owner |= {"controller": True, "blockOwnerDeletion": True}
    child = config_map(place, ownerReferences=[owner], annotations={"rljob.dev/intent": "1"})
    made = await place.cluster.create(child)
    assert controller_uid(made) == job["metadata"]["uid"]
    assert made["metadata"]["annotations"] == {"rljob.dev/intent": "1"}


async def test_every_kind_that_the_operator_makes_can_be_made(place: Place) -> None:
    pod = {"containers": [{"name": "main", "image": "none"}]}
    template = {"spec": {**pod, "restartPolicy": "Never"}}
    group = {"rayStartParams": {}, "template": {"spec": pod}}
    for wanted in (
        manifest(SECRET, place.namespace, "token", data={"auth_token": "YQ=="}),
        manifest(JOB, place.namespace, "prepare", spec={"suspend": True, "template": template}),
        manifest(RAY_CLUSTER, place.namespace, "ray", spec={"suspend": True, "headGroupSpec": group}),
        event(place, "note"),
    ):
        made = await place.cluster.create(wanted)
        assert made["metadata"]["name"] == wanted["metadata"]["name"]


async def test_the_log_of_a_pod_that_is_not_there_or_waits_for_a_node(place: Place) -> None:
    with pytest.raises(NotFound):
        await place.cluster.log_tail(place.namespace, "none", "main", 5)
    nowhere = {"nodeSelector": {"rljob.dev/nowhere": "yes"}, "containers": [{"name": "main", "image": "none"}]}
    await place.with_account(manifest(POD, place.namespace, "waits", spec=nowhere))
    assert await place.cluster.log_tail(place.namespace, "waits", "main", 5) == ""


async def test_nothing_that_a_pod_brings_along_is_lost_on_the_way(place: Place) -> None:
    (path,) = GOLDEN_JOBS.glob("brings-everything.yaml")
    job = yaml.safe_load(path.read_text())
    me = JobIdentity(place.namespace, job["metadata"]["name"], job["metadata"]["uid"])
    spec = typed(job["spec"])
    cluster = build_raycluster(me, spec, 1, "digest")
    cluster["spec"]["suspend"] = True
    prepare = build_initializer(me, spec, spec.initializers[0])
    prepare["spec"]["suspend"] = True
    for wanted in (cluster, prepare):
        # The owner does not exist, so the garbage collector would delete its dependents.
        del wanted["metadata"]["ownerReferences"]
        made = await place.cluster.create(wanted)
        assert list(lost(wanted, made)) == []


def lost(sent: object, kept: object, path: str = "") -> Iterator[str]:
    """Return the paths of fields that the server did not store; additional fields are ignored."""
    if isinstance(sent, dict) and isinstance(kept, dict):
        for name, value in sent.items():
            yield from lost(value, kept.get(name), f"{path}.{name}")
    elif isinstance(sent, list) and isinstance(kept, list) and len(sent) == len(kept):
        for index, (one, other) in enumerate(zip(sent, kept, strict=True)):
            yield from lost(one, other, f"{path}[{index}]")
    elif sent != kept and sent not in ({}, [], False):
        yield f"{path}: {sent!r} became {kept!r}"


async def test_what_a_deleted_job_controlled_is_collected(place: Place) -> None:
    job = await place.cluster.create(rljob(place))
    owner = {"apiVersion": RLJOB.api_version, "kind": "RLJob", "name": "sums", "uid": job["metadata"]["uid"]}
    await place.cluster.create(config_map(place, ownerReferences=[{**owner, "controller": True}]))
    await place.cluster.create(config_map(place, "bystander"))
    await place.cluster.delete(RLJOB, place.namespace, "sums", job["metadata"]["uid"])
    async with asyncio.timeout(60):
        while await exists(place, "one"):  # noqa: ASYNC110 - the collector has no event for us
            await asyncio.sleep(0.2)
    assert await exists(place, "bystander")


@pytest.mark.integration
@pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster")
@pytest.mark.parametrize("place", ["real"], indirect=True)
async def test_the_grace_of_a_pod_that_goes_is_shortened(place: Place) -> None:
    # No kubelet serves the node, so nothing ends the pod.
    spec = {"nodeName": "nowhere", "terminationGracePeriodSeconds": 600, "containers": [{"name": "a", "image": "a"}]}
    metadata = {"name": "slow", "namespace": place.namespace}
    await place.with_account({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    uid = (await place.cluster.get(POD, place.namespace, "slow"))["metadata"]["uid"]
    for grace, left in ((None, 600), (1, 1)):
        await place.cluster.delete(POD, place.namespace, "slow", uid, grace_seconds=grace)
        going = await place.cluster.get(POD, place.namespace, "slow")
        assert going["metadata"]["deletionGracePeriodSeconds"] == left


async def exists(place: Place, name: str) -> bool:
    try:
        await place.cluster.get(CONFIG_MAP, place.namespace, name)
    except NotFound:
        return False
    return True


async def test_a_recipe_is_applied_until_it_is_as_the_release_has_it(place: Place) -> None:
    name = place.namespace  # cluster-scoped, and only for this test
    first = await place.cluster.apply(recipe(name, {"trainer": {"steps": 1}, "stop": {"graceSeconds": 9}}))
    assert first["metadata"]["generation"] == 1
    again = await place.cluster.apply(recipe(name, {"trainer": {"steps": 1}, "stop": {"graceSeconds": 9}}))
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    changed = await place.cluster.apply(recipe(name, {"trainer": {"steps": 2}}))
    assert changed["spec"]["template"] == {"trainer": {"steps": 2}}
    assert changed["metadata"]["generation"] == 2
    listing = await place.cluster.list(CLUSTER_RL_RECIPE, "any", f"of={name}")
    assert [item["metadata"]["name"] for item in listing.items] == [name]
    assert await place.cluster.get(CLUSTER_RL_RECIPE, "", name) == changed
    await place.cluster.delete(CLUSTER_RL_RECIPE, "", name, changed["metadata"]["uid"])
    with pytest.raises(NotFound):
        await place.cluster.get(CLUSTER_RL_RECIPE, "", name)


def recipe(name: str, template: Json) -> Json:
    metadata = {"name": name, "labels": {"of": name}}
    return {
        "apiVersion": CLUSTER_RL_RECIPE.api_version,
        "kind": "ClusterRLRecipe",
        "metadata": metadata,
        "spec": {"template": template},
    }


async def test_an_event_is_counted_and_keeps_what_it_says(place: Place) -> None:
    made = await place.cluster.create(event(place, "sums.1"))
    series = {"count": 3, "lastObservedTime": "2026-01-01T00:03:00.000000Z"}
    counted = await place.cluster.apply({**event(place, "sums.1"), "series": series})
    assert counted["metadata"]["uid"] == made["metadata"]["uid"]
    assert counted["series"] == series
    assert counted["note"] == made["note"]


async def test_warnings_are_chosen_among_the_events_of_a_namespace(place: Place) -> None:
    await place.cluster.create(event(place, "good.1"))
    await place.cluster.create(event(place, "bad.1", "Warning"))
    listing = await place.cluster.list(EVENT, place.namespace, limit=9, field_selector="type=Warning")
    assert [item["metadata"]["name"] for item in listing.items] == ["bad.1"]
    assert listing.items[0]["regarding"]["name"] == "sums"


async def test_events_are_chosen_by_what_they_are_about(place: Place) -> None:
    await place.cluster.create(event(place, "one.1"))
    made = event(place, "two.1")
    await place.cluster.create({**made, "regarding": {**made["regarding"], "name": "another"}})
    kind = made["regarding"]["kind"]
    about = f"regarding.kind={kind},regarding.name=another"
    listing = await place.cluster.list(EVENT, place.namespace, limit=9, field_selector=about)
    assert [item["metadata"]["name"] for item in listing.items] == ["two.1"]
    await place.cluster.create({**event(place, "three.1"), "reason": "Refused"})
    about = f"regarding.kind={kind},reason=Refused"
    listing = await place.cluster.list(EVENT, place.namespace, limit=9, field_selector=about)
    assert [item["metadata"]["name"] for item in listing.items] == ["three.1"]


async def test_evidence_is_replaced_as_it_was_read_or_not_at_all(place: Place) -> None:
    made = await place.cluster.create(config_map(place))
    replaced = await place.cluster.replace({**made, "data": {"b": "1"}})
    assert (replaced["data"], replaced["metadata"]["uid"]) == ({"b": "1"}, made["metadata"]["uid"])
    with pytest.raises(Conflict):
        await place.cluster.replace({**made, "data": {"b": "2"}})


def event(place: Place, name: str, kind: str = "Normal") -> Json:
    return manifest(
        EVENT,
        place.namespace,
        name,
        eventTime="2026-01-01T00:00:00.000000Z",
        type=kind,
        reason="Started",
        action="Reconcile",
        note="text",
        reportingController="rljob.dev/rljob-operator",
        reportingInstance="me",
        regarding={"apiVersion": RLJOB.api_version, "kind": "RLJob", "name": "sums", "namespace": place.namespace},
    )
