"""What is read about starts that fail: pods that were replaced, heads that are gone, initializers without a pod."""

from __future__ import annotations

from doubles.fake import fail_calls
from machine import KEY, Machine, observe, start_with_head

from rljob.api.v1alpha1 import API_VERSION
from rljob.cluster.errors import Unavailable
from rljob.cluster.kinds import DEPLOYMENT, EVENT, NETWORK_POLICY, POD, RAY_CLUSTER, RLJOB, SERVICE
from rljob.core.observed import UNSEEN, ExportSeen, Manifest, SharedServiceSeen
from rljob.core.requirements import Pods, Requirements


def event_of(name: str, reason: str, kind: str, about: str) -> Manifest:
    metadata = {"namespace": "team", "name": name}
    subject = {"reason": reason, "regarding": {"kind": kind, "name": about}}
    return {"apiVersion": EVENT.api_version, "kind": "Event", "metadata": metadata, "type": "Warning", **subject}


async def test_the_pods_that_kuberay_replaced_are_read_while_some_have_ended(machine: Machine) -> None:
    job = await machine.start()
    machine.cluster.edit(RLJOB, *KEY, lambda found: found.update(status={"intent": {"clusterName": "c1"}}))
    machine.reconciler.store.put(RLJOB, machine.cluster.find(RLJOB, *KEY) or job)
    machine.cluster.put(event_of("replaced", "DeletedHeadPod", "RayCluster", "c1"))
    machine.wanted = Requirements(pods=Pods("ray.io/cluster=c1"), pod_ends=True)
    assert (await observe(machine)).cluster_events == ()
    metadata = {"namespace": "team", "name": "head-2", "labels": {"ray.io/cluster": "c1"}}
    machine.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"phase": "Failed"}})
    assert [event["metadata"]["name"] for event in (await observe(machine)).cluster_events] == ["replaced"]
    machine.wanted = Requirements(pods=Pods("ray.io/cluster=c1"))
    assert (await observe(machine)).cluster_events == ()


async def test_a_head_that_ended_is_seen_after_its_deletion(machine: Machine) -> None:
    await start_with_head(machine)
    assert (await observe(machine)).ended_heads == ()
    pod = (await observe(machine)).head_pod
    assert pod is not None
    gone = {**pod, "status": {"phase": "Failed"}}
    machine.reconciler.store.remove(POD, gone)
    assert (await observe(machine)).head_pod is None
    assert [found["metadata"]["uid"] for found in (await observe(machine)).ended_heads] == [pod["metadata"]["uid"]]
    cluster = machine.cluster.objects(RAY_CLUSTER)[0]
    machine.reconciler.store.remove(RAY_CLUSTER, cluster)
    assert (await observe(machine)).ended_heads == ()


async def test_the_pods_of_an_export_are_read_when_it_ends_or_does_not_start(machine: Machine) -> None:
    await start_with_head(machine)
    mark = {"rljob.dev/export": "sums-export"}
    machine.wanted = Requirements(export_name="sums-export")
    assert (await observe(machine)).export == ExportSeen(None)
    made = {"namespace": "team", "name": "sums-export", "labels": mark}
    machine.cluster.put({"apiVersion": "batch/v1", "kind": "Job", "metadata": made})
    pod = {"namespace": "team", "name": "sums-export-x", "labels": mark}
    machine.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": pod})
    ended = {"conditions": [{"type": "Complete", "status": "True"}]}
    for status, listed in ((None, True), ({"active": 1, "ready": 1}, False), (ended, True)):
        machine.cluster.put({"apiVersion": "batch/v1", "kind": "Job", "metadata": made, "status": status})
        pods = (await observe(machine)).export.pods
        assert (pods != UNSEEN and len(pods) == 1) is listed
    machine.wanted = Requirements()
    assert (await observe(machine)).export == ExportSeen()


async def test_the_events_of_an_initializer_are_read_while_it_has_no_pod(machine: Machine) -> None:
    await start_with_head(machine)
    mark = {"rljob.dev/initializer": "prepare"}
    made = {"namespace": "team", "name": "sums-prepare", "labels": mark}
    machine.cluster.put({"apiVersion": "batch/v1", "kind": "Job", "metadata": made})
    machine.clock.advance(60)
    machine.cluster.put(event_of("refused", "FailedCreate", "Job", "sums-prepare"))
    names, pods = ("sums-prepare",), Pods("rljob.dev/initializer")
    for wanted, found in (
        (Requirements(initializer_names=names, pods=pods, initializer_events=True), ["refused"]),
        (Requirements(initializer_names=names, pods=pods), []),
        (Requirements(initializer_names=names, initializer_events=True), []),
    ):
        machine.wanted = wanted
        assert [event["metadata"]["name"] for event in (await observe(machine)).initializer_events] == found
    pod = {"namespace": "team", "name": "sums-prepare-x", "labels": mark}
    machine.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": pod})
    machine.wanted = Requirements(initializer_names=names, pods=pods, initializer_events=True)
    assert (await observe(machine)).initializer_events == ()


async def test_the_job_of_an_evaluation_is_read_without_a_request_once_it_is_watched(machine: Machine) -> None:
    await start_with_head(machine)
    machine.wanted = Requirements(evaluation_name="sums-e20")
    assert (await observe(machine)).evaluation is None
    made = {"namespace": "team", "name": "sums-e20", "uid": "e20"}
    machine.cluster.put({"apiVersion": API_VERSION, "kind": "RLJob", "metadata": made, "spec": {}})
    found = (await observe(machine)).evaluation
    assert isinstance(found, dict)
    machine.reconciler.store.put(RLJOB, found)
    machine.cluster.faults.append(fail_calls("get", RLJOB, Unavailable("away"), times=9))
    assert (await observe(machine)).evaluation == found
    machine.wanted = Requirements()
    assert (await observe(machine)).evaluation is UNSEEN


async def test_the_objects_of_a_shared_service_are_read_by_name(machine: Machine) -> None:
    await machine.start()
    assert (await observe(machine)).services == {}
    machine.wanted = Requirements(service_names=("sums-svc", "other"))
    absent = SharedServiceSeen(None, None, None)
    assert (await observe(machine)).services == {"sums-svc": absent, "other": absent}
    made = {"namespace": "team", "name": "sums-svc"}
    for kind in (DEPLOYMENT, SERVICE, NETWORK_POLICY):
        machine.cluster.put({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": made})
    seen = (await observe(machine)).services["sums-svc"]
    assert [part["kind"] for part in seen.parts if isinstance(part, dict)] == ["Deployment", "Service", "NetworkPolicy"]
    machine.cluster.faults.append(fail_calls("get", SERVICE, Unavailable("down"), times=1))
    assert (await observe(machine)).services["sums-svc"].service is UNSEEN
