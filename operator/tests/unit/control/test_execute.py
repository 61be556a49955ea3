"""Executing plans: any write may be the last one, and may be repeated."""

from __future__ import annotations

import base64
import json

import pytest
from doubles.fake import fail_calls
from doubles.simulate import CrashError
from machine import KEY, Machine, cluster_of, owned, rljob, submission

from rljob.cluster.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    HeadOpen,
    HeadUnreachable,
    Invalid,
    OutcomeUnknown,
)
from rljob.cluster.kinds import CONFIG_MAP, EVENT, POD, RAY_CLUSTER, RLJOB, SECRET
from rljob.cluster.token import TokenKey
from rljob.control.execute import DeniedError, StaleError
from rljob.control.store import Key
from rljob.core.observed import Manifest, Observed, Refusal, RefusalCause
from rljob.core.plan import (
    CreateObject,
    CreateToken,
    DeleteObject,
    Effect,
    EventNote,
    EventType,
    KeepEvidence,
    Plan,
    SetFinalizers,
    ShortenGracePeriod,
    StopRun,
)
from rljob_runtime.contract import Phase, Progress, StopMode

PENDING = {"state": "Pending"}
NOTE = EventNote(EventType.NORMAL, "Started", "it started")


async def observed(machine: Machine) -> Observed:
    job = await machine.start()
    return Observed(job=job)


async def carry_out(machine: Machine, seen: Observed, *effects: Effect) -> bool:
    return await machine.reconciler.executor.execute(seen, Plan(effects=effects))


def deletion(manifest: Manifest) -> DeleteObject:
    return DeleteObject(RAY_CLUSTER.api_version, RAY_CLUSTER.kind, *KEY[:1], "c1", manifest["metadata"]["uid"])


def refusals(machine: Machine, seen: Observed) -> tuple[Refusal, ...]:
    return machine.reconciler.memories.of(seen.job).refusals(seen.job)


async def test_a_pod_that_goes_is_hurried_and_may_be_gone_already(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.lingering.add(POD)
    metadata = {"name": "w-1", "namespace": KEY[0]}
    pod = machine.cluster.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
    uid = pod["metadata"]["uid"]
    await machine.cluster.delete(POD, KEY[0], "w-1", uid)
    assert machine.cluster.objects(POD)
    hurry = ShortenGracePeriod(KEY[0], "w-1", uid)
    await carry_out(machine, seen, hurry)
    assert not machine.cluster.objects(POD)
    await carry_out(machine, seen, hurry)


async def test_a_status_is_written_with_its_events_and_known_at_once(machine: Machine) -> None:
    seen = await observed(machine)
    assert await machine.reconciler.executor.execute(seen, Plan(status=PENDING, events=(NOTE,)))
    assert machine.job()["status"] == PENDING
    assert machine.reconciler.store.job(KEY) == machine.job()
    assert machine.events() == ["Started"]


async def test_a_status_that_is_there_already_is_not_sent(machine: Machine) -> None:
    seen = await observed(machine)
    await machine.reconciler.executor.execute(seen, Plan(status=PENDING))
    writes = machine.cluster.writes
    assert not await machine.reconciler.executor.execute(Observed(job=machine.job()), Plan(status=PENDING))
    assert machine.cluster.writes == writes


async def test_a_status_decided_on_an_old_version_is_not_written_and_the_store_learns(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.hold_events()
    machine.cluster.edit(RLJOB, *KEY, lambda job: job["spec"].update(suspend=True))
    with pytest.raises(StaleError):
        await machine.reconciler.executor.execute(seen, Plan(status=PENDING))
    assert "status" not in machine.job()
    assert machine.reconciler.store.job(KEY) == machine.job()


async def test_no_event_is_created_for_a_status_that_was_not_written(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.edit(RLJOB, *KEY, lambda job: job["spec"].update(suspend=True))
    with pytest.raises(StaleError):
        await machine.reconciler.executor.execute(seen, Plan(status=PENDING, events=(NOTE,)))
    assert machine.events() == []


async def test_an_event_that_cannot_be_posted_does_not_fail_the_round(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.faults.append(fail_calls("create", EVENT, Forbidden("no"), times=9))
    assert await machine.reconciler.executor.execute(seen, Plan(status=PENDING, events=(NOTE,)))


async def test_a_created_cluster_is_in_the_store_before_any_event(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.hold_events()
    assert await carry_out(machine, seen, CreateObject(cluster_of(seen.job)))
    assert len(machine.reconciler.store.children(RAY_CLUSTER, KEY)) == 1


async def test_an_evaluation_that_was_created_is_reconciled_by_its_watch_event(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.hold_events()
    metadata = {**owned(seen.job), "name": "sums-e20"}
    child = {"apiVersion": RLJOB.api_version, "kind": "RLJob", "metadata": metadata, "spec": {}}
    assert await carry_out(machine, seen, CreateObject(child))
    store, key = machine.reconciler.store, Key("team", "sums-e20")
    assert store.job(key) is None
    made = machine.cluster.find(RLJOB, *key)
    assert made is not None
    assert store.put(RLJOB, made), "the event of the watch is news"


async def test_a_creation_whose_answer_was_lost_is_adopted(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.faults.append(fail_calls("create", RAY_CLUSTER, OutcomeUnknown("lost"), times=1, committed=True))
    with pytest.raises(OutcomeUnknown):
        await carry_out(machine, seen, CreateObject(cluster_of(seen.job)))
    assert await carry_out(machine, seen, CreateObject(cluster_of(seen.job)))
    assert len(machine.cluster.objects(RAY_CLUSTER)) == 1
    assert refusals(machine, seen) == ()


async def test_no_cluster_is_created_beside_one_that_no_watch_has_delivered(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.hold_events()
    stray = machine.cluster.put(cluster_of(seen.job, generation=1))
    with pytest.raises(StaleError):
        await carry_out(machine, seen, CreateObject(cluster_of(seen.job, generation=2)))
    assert machine.cluster.objects(RAY_CLUSTER) == (stray,)
    assert [item["metadata"]["name"] for item in machine.reconciler.store.children(RAY_CLUSTER, KEY)] == ["c1"]


async def test_clusters_of_somebody_else_hold_no_creation_up(machine: Machine) -> None:
    seen = await observed(machine)
    foreign = cluster_of(seen.job, generation=1)
    foreign["metadata"]["ownerReferences"] = []
    machine.cluster.put(foreign)
    assert await carry_out(machine, seen, CreateObject(cluster_of(seen.job, generation=2)))
    assert {item["metadata"]["name"] for item in machine.cluster.objects(RAY_CLUSTER)} == {"c1", "c2"}


async def test_a_frozen_cluster_that_lost_its_labels_is_made_all_the_same(machine: Machine) -> None:
    seen = await observed(machine)
    frozen = cluster_of(seen.job)
    del frozen["metadata"]["labels"]
    assert await carry_out(machine, seen, CreateObject(frozen))


async def test_an_object_of_another_owner_is_refused_and_left_alone(machine: Machine) -> None:
    seen = await observed(machine)
    foreign = cluster_of(seen.job)
    foreign["metadata"]["ownerReferences"][0]["uid"] = "somebody"
    there = machine.cluster.put(foreign)
    with pytest.raises(StaleError):
        await carry_out(machine, seen, CreateObject(cluster_of(seen.job)))
    (refusal,) = refusals(machine, seen)
    assert (refusal.kind, refusal.name) == ("RayCluster", "c1")
    assert machine.cluster.objects(RAY_CLUSTER) == (there,)


async def test_an_object_of_another_intent_is_refused(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.put(cluster_of(seen.job, intent="7"))
    with pytest.raises(StaleError):
        await carry_out(machine, seen, CreateObject(cluster_of(seen.job)))
    assert "another intent" in refusals(machine, seen)[0].why


async def test_a_manifest_that_the_server_finds_invalid_is_refused(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.faults.append(fail_calls("create", RAY_CLUSTER, Invalid("spec.x"), times=1))
    with pytest.raises(StaleError):
        await carry_out(machine, seen, CreateObject(cluster_of(seen.job)))
    refusal = refusals(machine, seen)[0]
    assert "spec.x" in refusal.why
    assert refusal.cause is RefusalCause.INVALID


def evidence(job: Manifest, found: Manifest | None = None) -> KeepEvidence:
    metadata = dict(found["metadata"]) if found else owned(job)
    said = json.dumps({"note": ['a=b password=hunter2 "', 7]}) if found else "{}"
    return KeepEvidence(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": said, "b": "by hand"}}
    )


async def test_evidence_is_made_and_then_replaced(machine: Machine) -> None:
    seen = await observed(machine)
    assert await carry_out(machine, seen, evidence(seen.job))
    (made,) = machine.cluster.objects(CONFIG_MAP)
    assert await carry_out(machine, seen, evidence(seen.job, made))
    assert machine.written == ["evidence", "evidence"]
    kept = machine.cluster.objects(CONFIG_MAP)[0]["data"]
    assert json.loads(kept["a"]) == {"note": ['a=b password=[redacted] "', 7]}
    assert kept["b"] == "", "entries that are not JSON are dropped"


async def test_evidence_that_somebody_wrote_meanwhile_is_looked_at_again(machine: Machine) -> None:
    seen = await observed(machine)
    await carry_out(machine, seen, evidence(seen.job))
    (made,) = machine.cluster.objects(CONFIG_MAP)
    with pytest.raises(StaleError):
        await carry_out(machine, seen, evidence(seen.job))
    machine.cluster.edit(CONFIG_MAP, "team", "c1", lambda found: found.update(data={"b": "2"}))
    with pytest.raises(StaleError):
        await carry_out(machine, seen, evidence(seen.job, made))
    machine.cluster.remove(CONFIG_MAP, "team", "c1")
    with pytest.raises(StaleError):
        await carry_out(machine, seen, evidence(seen.job, made))
    assert machine.written == ["evidence"]


async def test_an_object_that_is_leaving_is_waited_for(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.lingering.add(RAY_CLUSTER)
    machine.cluster.put(cluster_of(seen.job))
    machine.cluster.remove(RAY_CLUSTER, KEY.namespace, "c1")
    with pytest.raises(Conflict):
        await carry_out(machine, seen, CreateObject(cluster_of(seen.job)))
    assert refusals(machine, seen) == ()


async def test_the_token_is_derived_here_and_its_secret_is_made_once(machine: Machine) -> None:
    seen = await observed(machine)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": owned(seen.job)}
    effect = CreateToken(secret, seen.job["metadata"]["uid"], "c1")
    await carry_out(machine, seen, effect)
    await carry_out(machine, seen, effect)
    (made,) = machine.cluster.objects(SECRET)
    token = TokenKey(b"k" * 32).token(seen.job["metadata"]["uid"], "c1")
    assert base64.b64decode(made["data"]["auth_token"]).decode() == token
    assert "data" not in secret


async def test_a_token_that_may_not_be_made_is_remembered_until_it_is(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.faults.append(fail_calls("create", SECRET, Forbidden("quota"), times=2))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": owned(seen.job)}
    token = CreateToken(secret, seen.job["metadata"]["uid"], "c1")
    for _ in range(2):
        with pytest.raises(DeniedError):
            await carry_out(machine, seen, token)
        assert refusals(machine, seen) == (Refusal("Secret", "c1", "quota", RefusalCause.DENIED),)
    assert await carry_out(machine, seen, token)
    assert refusals(machine, seen) == ()


WEBHOOK = 'create /apis/ray.io/v1/namespaces/team/rayclusters: 400 admission webhook "v.example" denied the request: no'


@pytest.mark.parametrize(
    "error",
    [Forbidden("exceeded quota"), Invalid(WEBHOOK), OutcomeUnknown('500 failed calling webhook "v.example": no route')],
    ids=["quota", "a webhook's no", "a webhook that is down"],
)
async def test_what_the_clusters_rules_forbid_is_no_fault_of_the_manifest(
    machine: Machine, error: ClusterError
) -> None:
    seen = await observed(machine)
    machine.cluster.faults.append(fail_calls("create", RAY_CLUSTER, error, times=1))
    with pytest.raises(DeniedError) as raised:
        await carry_out(machine, seen, CreateObject(cluster_of(seen.job)))
    assert (raised.value.reason, raised.value.transient) == ("RayClusterRefused", True)
    (refusal,) = refusals(machine, seen)
    assert refusal == Refusal("RayCluster", "c1", str(error), RefusalCause.DENIED)


async def test_what_is_there_is_not_refused_by_a_quota_that_is_used_up(machine: Machine) -> None:
    seen = await observed(machine)
    await carry_out(machine, seen, CreateObject(cluster_of(seen.job)))
    machine.cluster.faults.append(fail_calls("create", RAY_CLUSTER, Forbidden("exceeded quota"), times=1))
    await carry_out(machine, seen, CreateObject(cluster_of(seen.job)))
    assert refusals(machine, seen) == ()


async def test_what_a_webhook_finds_invalid_stays_invalid(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.faults.append(fail_calls("create", RAY_CLUSTER, Invalid(WEBHOOK.replace("400", "422")), times=1))
    with pytest.raises(StaleError):
        await carry_out(machine, seen, CreateObject(cluster_of(seen.job)))
    assert refusals(machine, seen)[0].cause is RefusalCause.INVALID


async def test_a_deletion_is_not_done_when_the_job_has_changed(machine: Machine) -> None:
    seen = await observed(machine)
    there = machine.cluster.put(cluster_of(seen.job))
    machine.cluster.hold_events()
    machine.cluster.edit(RLJOB, *KEY, lambda job: job["spec"].update(suspend=True))
    with pytest.raises(StaleError):
        await carry_out(machine, seen, deletion(there))
    assert machine.cluster.objects(RAY_CLUSTER) == (there,)
    assert machine.reconciler.store.job(KEY) == machine.job()


@pytest.mark.parametrize("deletes", [True, False])
@pytest.mark.parametrize(("change", "doubts"), [({"status": PENDING}, 1), ({"spec": {"suspend": True}}, 0)])
async def test_only_a_status_of_somebody_else_makes_it_doubt_that_it_leads(
    machine: Machine, change: Manifest, doubts: int, *, deletes: bool
) -> None:
    seen = await observed(machine)
    there = machine.cluster.put(cluster_of(seen.job))
    machine.cluster.edit(RLJOB, *KEY, lambda job: job.update(change))
    plan = Plan(effects=(deletion(there),)) if deletes else Plan(status={"state": "Starting"})
    with pytest.raises(StaleError):
        await machine.reconciler.executor.execute(seen, plan)
    assert machine.doubts == doubts


async def test_a_job_that_was_made_anew_is_no_reason_for_doubt(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.remove(RLJOB, *KEY)
    machine.cluster.put({**rljob(), "status": PENDING})
    with pytest.raises(StaleError):
        await machine.reconciler.executor.execute(seen, Plan(status={"state": "Starting"}))
    assert machine.doubts == 0


async def test_a_deletion_is_known_before_any_event(machine: Machine) -> None:
    seen = await observed(machine)
    there = machine.cluster.put(cluster_of(seen.job))
    machine.cluster.hold_events()
    await carry_out(machine, seen, deletion(there))
    assert machine.cluster.objects(RAY_CLUSTER) == ()
    assert machine.reconciler.store.children(RAY_CLUSTER, KEY) == ()


async def test_a_cluster_that_takes_its_time_to_go_is_seen_leaving(machine: Machine) -> None:
    machine.cluster.lingering.add(RAY_CLUSTER)
    seen = await observed(machine)
    there = machine.cluster.put(cluster_of(seen.job))
    machine.cluster.hold_events()
    await carry_out(machine, seen, deletion(there))
    (leaving,) = machine.reconciler.store.children(RAY_CLUSTER, KEY)
    assert leaving["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize("remade", [True, False])
async def test_a_deletion_of_what_is_gone_is_done(machine: Machine, *, remade: bool) -> None:
    seen = await observed(machine)
    there = machine.cluster.put(cluster_of(seen.job))
    machine.cluster.remove(RAY_CLUSTER, KEY.namespace, "c1")
    kept = (machine.cluster.put(cluster_of(seen.job)),) if remade else ()
    assert await carry_out(machine, seen, deletion(there))
    assert machine.cluster.objects(RAY_CLUSTER) == kept


async def test_nothing_is_deleted_for_a_job_that_is_gone(machine: Machine) -> None:
    seen = await observed(machine)
    there = machine.cluster.put(cluster_of(seen.job))
    machine.cluster.edit(RAY_CLUSTER, KEY.namespace, "c1", lambda item: item["metadata"].pop("ownerReferences"))
    machine.cluster.remove(RLJOB, *KEY)
    with pytest.raises(StaleError):
        await carry_out(machine, seen, deletion(there))
    assert len(machine.cluster.objects(RAY_CLUSTER)) == 1


async def test_a_submission_whose_answer_was_lost_is_not_made_twice(machine: Machine) -> None:
    seen = await observed(machine)
    machine.ray.start_head("10.0.0.1", "p1", seen.job["metadata"]["uid"], "c1")
    machine.ray.lost_answers.append(HeadUnreachable("lost"))
    with pytest.raises(HeadUnreachable):
        await carry_out(machine, seen, submission(seen.job))
    await carry_out(machine, seen, submission(seen.job))
    assert len(machine.ray.submissions) == 1


async def test_effects_stop_at_the_first_that_fails(machine: Machine) -> None:
    seen = await observed(machine)
    with pytest.raises(HeadUnreachable):
        await carry_out(machine, seen, submission(seen.job), CreateObject(cluster_of(seen.job)))
    assert machine.cluster.objects(RAY_CLUSTER) == ()


async def test_each_committed_write_calls_the_hook_which_may_stop_the_operator_there(machine: Machine) -> None:
    seen = await observed(machine)
    first = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": owned(seen.job)}

    def crash(word: str) -> None:
        machine.written.append(word)
        raise CrashError

    machine.after_write = crash
    with pytest.raises(CrashError):
        await carry_out(machine, seen, CreateObject(first), CreateObject(cluster_of(seen.job)))
    assert machine.written == ["create ConfigMap"]
    assert len(machine.cluster.objects(CONFIG_MAP)) == 1
    assert machine.cluster.objects(RAY_CLUSTER) == ()


async def test_a_status_that_the_server_does_not_keep_is_counted(machine: Machine) -> None:
    seen = await observed(machine)

    async def prune(manifest: Manifest) -> Manifest:
        return await type(machine.cluster).apply_status(machine.cluster, {**manifest, "status": {}})

    machine.cluster.apply_status = prune  # type: ignore[method-assign]
    await machine.reconciler.executor.execute(seen, Plan(status=PENDING))
    exposition = machine.reconciler.metrics.exposition().decode()
    assert "rljob_operator_status_differs_total 1.0" in exposition


async def test_already_exists_for_a_name_that_is_free_again_is_looked_at_anew(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.faults.append(fail_calls("create", RAY_CLUSTER, AlreadyExists("c1"), times=1))
    with pytest.raises(StaleError):
        await carry_out(machine, seen, CreateObject(cluster_of(seen.job)))
    assert refusals(machine, seen) == ()


async def test_a_head_that_does_not_take_a_stop_fails_no_round_and_asks_for_no_hurry(machine: Machine) -> None:
    seen = await observed(machine)
    uid = seen.job["metadata"]["uid"]
    stop = StopRun("10.0.0.1", "p1", uid, "c1", 1, StopMode.AFTER_STEP)
    assert not await carry_out(machine, seen, stop)
    head = machine.ray.start_head("10.0.0.1", "p1", uid, "c1")
    assert not await carry_out(machine, seen, stop)
    assert machine.written == []
    head.progress = Progress(pod_uid="p1", phase=Phase.TRAINING, attempt=1)
    assert not await carry_out(machine, seen, stop)
    assert machine.written == ["stop"]
    assert head.progress.phase is Phase.STOPPING
    head.progress = Progress(pod_uid="p1", phase=Phase.ENDED, attempt=1)
    await carry_out(machine, seen, stop)
    assert head.progress.phase is Phase.ENDED


async def test_finalizers_are_set_and_known_at_once(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.hold_events()
    assert await carry_out(machine, seen, SetFinalizers(("rljob.dev/stop",)))
    assert machine.job()["metadata"]["finalizers"] == ["rljob.dev/stop"]
    assert machine.reconciler.store.job(KEY) == machine.job()
    assert machine.written == ["finalizers"]


async def test_finalizers_decided_on_an_old_version_are_not_set(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.edit(RLJOB, *KEY, lambda job: job["metadata"].update(finalizers=["example.com/other"]))
    with pytest.raises(StaleError):
        await carry_out(machine, seen, SetFinalizers(()))
    assert machine.job()["metadata"]["finalizers"] == ["example.com/other"]
    assert machine.reconciler.store.job(KEY) == machine.job()


@pytest.mark.parametrize("held", [True, False])
async def test_a_job_that_goes_with_its_last_finalizer_is_known_to_be_gone(machine: Machine, *, held: bool) -> None:
    await observed(machine)
    machine.cluster.edit(RLJOB, *KEY, lambda job: job["metadata"].update(finalizers=["rljob.dev/stop"]))
    machine.cluster.remove(RLJOB, *KEY)
    seen = Observed(job=machine.job())
    machine.cluster.hold_events()
    assert await carry_out(machine, seen, SetFinalizers(("example.com/other",) if held else ()))
    assert (machine.reconciler.store.job(KEY) is not None) is held


async def test_a_job_that_is_gone_already_needs_no_finalizers(machine: Machine) -> None:
    seen = await observed(machine)
    machine.cluster.hold_events()
    machine.cluster.remove(RLJOB, *KEY)
    with pytest.raises(StaleError):
        await carry_out(machine, seen, SetFinalizers(()))
    assert machine.reconciler.store.job(KEY) is None


async def test_a_ray_that_asks_for_no_token_is_refused(machine: Machine) -> None:
    seen = await observed(machine)
    machine.ray.start_head("10.0.0.1", "p1", seen.job["metadata"]["uid"], "c1")
    machine.ray.faults.append(HeadOpen("it answers without the token"))
    with pytest.raises(StaleError):
        await carry_out(machine, seen, submission(seen.job))
    assert refusals(machine, seen) == (Refusal("RayCluster", "c1", "it answers without the token", RefusalCause.OPEN),)
