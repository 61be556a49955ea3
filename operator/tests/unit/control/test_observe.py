"""Observing a job: which requests are sent, and how answers that fail or refer to something else are handled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from doubles.fake import fail_calls
from machine import KEY, Machine, cluster_of, head_of, left, observe, owned, rljob, start_with_head, submission

from rljob.api.v1alpha1 import RecipeKind
from rljob.cluster.errors import Forbidden, HeadNonsense, HeadUnreachable, Unavailable
from rljob.cluster.kinds import CLUSTER_RL_RECIPE, CONFIG_MAP, EVENT, JOB, POD, RAY_CLUSTER, RL_RECIPE, RLJOB
from rljob.control.job_memory import JobMemory
from rljob.control.pod_lists import POD_LISTS_AT_ONCE, URGENT_LISTS_AT_ONCE
from rljob.control.store_reads import PROGRESS_JITTER
from rljob.core.derived import Derived
from rljob.core.jitter import fraction
from rljob.core.observed import UNSEEN, Manifest, Observed, Silence, Unseen
from rljob.core.requirements import STOPS_HERE, Evidence, Pods, Requirements
from rljob_runtime.contract import Phase, Progress


def memory(machine: Machine) -> JobMemory:
    return machine.reconciler.memories.of(machine.job())


def derived(machine: Machine, seen: Observed) -> Derived:
    return memory(machine).derived(seen)


async def test_a_job_that_is_gone_is_none(machine: Machine) -> None:
    assert await machine.reconciler.observer.observe(KEY, machine.clock.now()) is None


async def test_a_job_that_needs_nothing_costs_no_request(machine: Machine) -> None:
    await start_with_head(machine)
    machine.cluster.faults.append(fail_calls("get", CONFIG_MAP, Unavailable("asked"), times=9))
    seen = await observe(machine)
    assert (seen.pods, seen.config, seen.snapshot) == (UNSEEN, UNSEEN, UNSEEN)
    assert (seen.ray_job, seen.progress, seen.initializers) == (UNSEEN, UNSEEN, {})
    assert len(seen.clusters) == 1
    assert seen.head_pod is not None


async def test_what_is_not_there_is_none_and_what_fails_is_unseen(machine: Machine) -> None:
    await start_with_head(machine)
    machine.wanted = Requirements(
        snapshot_name="none", config_name="conf", initializer_names=("prepare",), pods=Pods("")
    )
    seen = await observe(machine)
    assert seen.snapshot is None
    assert seen.config not in (None, UNSEEN)
    assert seen.initializers == {"prepare": None}
    assert isinstance(seen.pods, tuple)
    machine.cluster.faults += [
        fail_calls("get", CONFIG_MAP, Unavailable("down"), times=2),
        fail_calls("get", JOB, Unavailable("down"), times=1),
        fail_calls("list", POD, Unavailable("down"), times=1),
    ]
    seen = await observe(machine)
    assert (seen.snapshot, seen.config, seen.pods, seen.initializers) == (UNSEEN, UNSEEN, UNSEEN, {})


async def test_the_users_code_and_its_copy_are_asked_for(machine: Machine) -> None:
    await start_with_head(machine)
    machine.wanted = Requirements(code_name="conf", code_copy_name="none")
    seen = await observe(machine)
    assert seen.code not in (None, UNSEEN)
    assert seen.code_copy is None


async def test_the_log_is_that_of_the_initializer_that_runs(machine: Machine) -> None:
    await start_with_head(machine)
    machine.wanted = Requirements(pods=Pods("kind=initializer"), initializer_log=True)
    assert (await observe(machine)).initializer_log is UNSEEN
    metadata = {"namespace": "team", "name": "prepare-1", "labels": {"kind": "initializer"}}
    running = {"containerStatuses": [{"name": "initializer", "state": {"running": {}}}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "a"}, "status": running}
    machine.cluster.put(pod)
    assert (await observe(machine)).initializer_log is UNSEEN
    machine.cluster.logs["team", "prepare-1", "initializer"] = "half\n"
    assert (await observe(machine)).initializer_log == "half\n"
    machine.wanted = Requirements(pods=Pods("kind=initializer"))
    assert (await observe(machine)).initializer_log is UNSEEN
    machine.wanted = Requirements(initializer_log=True)
    assert (await observe(machine)).initializer_log is UNSEEN


async def test_the_head_is_asked_for_progress_and_then_for_the_job(machine: Machine) -> None:
    job, head = await start_with_head(machine)
    await machine.ray.submit(submission(job, head.pod_uid))
    machine.wanted = Requirements(head=head, progress=True, ray_job_id="c1-1")
    seen = await observe(machine)
    assert isinstance(seen.progress, Progress)
    assert seen.progress.phase is Phase.IDLE
    assert seen.ray_job not in (None, UNSEEN)


async def test_the_job_api_is_left_alone_when_progress_says_enough(machine: Machine) -> None:
    _, head = await start_with_head(machine)
    machine.wanted = Requirements(head=head, progress=True, ray_job_id="c1-1")
    machine.asks_ray_job = False
    assert (await observe(machine)).ray_job is UNSEEN


async def test_a_submission_that_the_head_does_not_know_is_none(machine: Machine) -> None:
    _, head = await start_with_head(machine)
    machine.wanted = Requirements(head=head, ray_job_id="c1-1")
    assert (await observe(machine)).ray_job is None


@pytest.mark.parametrize("change", [{"pod_uid": "another"}, {"submission_id": "c1-0"}])
async def test_progress_of_another_pod_or_submission_is_dropped(machine: Machine, change: dict[str, str]) -> None:
    _, head = await start_with_head(machine)
    machine.wanted = Requirements(head=head, progress=True)
    right = Progress(pod_uid=head.pod_uid, phase=Phase.TRAINING, submission_id="c1-1", step=3)
    machine.ray.heads["10.0.0.1"].progress = right
    assert (await observe(machine)).progress == right
    machine.ray.heads["10.0.0.1"].progress = replace(right, **change)  # type: ignore[arg-type]
    assert (await observe(machine)).progress is UNSEEN


async def test_a_head_that_still_reports_the_attempt_before_is_idle_and_not_silent(machine: Machine) -> None:
    _, head = await start_with_head(machine)
    machine.wanted = Requirements(head=head, progress=True)
    ended = Progress(pod_uid=head.pod_uid, phase=Phase.ENDED, attempt=1, submission_id="c1-1", step=3)
    machine.ray.heads["10.0.0.1"].progress = ended
    assert (await observe(machine)).progress == ended
    following = {"attempt": 2, "submissionId": "c1-2"}
    machine.cluster.edit(RLJOB, *KEY, lambda job: job["status"]["intent"].update(following))
    assert (await observe(machine)).progress == Progress(pod_uid=head.pod_uid, phase=Phase.IDLE)
    assert (await observe(machine)).silence is None


@pytest.mark.parametrize("error", [HeadUnreachable("young"), HeadNonsense("garbage")])
async def test_a_head_that_does_not_answer_is_unseen(machine: Machine, error: HeadUnreachable) -> None:
    _, head = await start_with_head(machine)
    machine.wanted = Requirements(head=head, progress=True)
    machine.asks_ray_job = False
    machine.ray.faults.append(error)
    assert (await observe(machine)).progress is UNSEEN


async def test_labels_copied_by_somebody_else_deceive_nobody(machine: Machine) -> None:
    job = await machine.start()
    forged = cluster_of(job)
    forged["metadata"]["ownerReferences"] = []
    machine.cluster.put(forged)
    assert (await observe(machine)).clusters == ()


async def test_of_several_heads_the_intended_one_is_shown(machine: Machine) -> None:
    _, head = await start_with_head(machine)
    cluster = machine.cluster.objects(RAY_CLUSTER)[0]
    machine.clock.advance(5)
    younger = machine.cluster.put(head_of(cluster, "c1-head-2", "10.0.0.2"))
    shown = (await observe(machine)).head_pod
    assert shown is not None
    assert shown["metadata"]["uid"] == head.pod_uid
    machine.cluster.remove(POD, "team", "c1-head")
    seen = await observe(machine)
    assert (seen.head_pod, seen.former_heads) == (younger, ())


async def test_the_head_of_a_deleted_cluster_is_a_former_head(machine: Machine) -> None:
    await start_with_head(machine)
    pod = machine.cluster.objects(POD)[0]
    # Its pods are terminating meanwhile, and may take as long as their grace period.
    machine.reconciler.store.vanished(RAY_CLUSTER, machine.cluster.objects(RAY_CLUSTER)[0]["metadata"]["uid"])
    seen = await observe(machine)
    assert (seen.head_pod, seen.former_heads) == (None, (pod,))


async def test_while_rayclusters_are_not_served_a_job_with_a_cluster_is_not_judged(machine: Machine) -> None:
    await start_with_head(machine)
    machine.cluster.unserved.add(RAY_CLUSTER)
    restarted = machine.build()
    await restarted.prime()
    with pytest.raises(Unavailable):
        await restarted.observer.observe(KEY, machine.clock.now())
    machine.wanted = STOPS_HERE
    with pytest.raises(Unavailable):
        await observe(machine)


async def test_the_deletion_of_a_job_needs_nothing_that_could_be_out_of_sight(machine: Machine) -> None:
    await start_with_head(machine)
    machine.cluster.edit(RLJOB, *KEY, lambda job: job["metadata"].update(finalizers=["rljob.dev/stop"]))
    machine.cluster.remove(RLJOB, *KEY)
    machine.cluster.unserved.add(RAY_CLUSTER)
    await machine.build().prime()
    machine.wanted = STOPS_HERE
    assert (await observe(machine)).progress is UNSEEN


async def test_a_snapshot_is_read_once(machine: Machine) -> None:
    job = await machine.start()
    metadata = owned(job) | {"name": "s"}
    data = {"spec.json": "{}", "recipes.json": "[]"}
    made = machine.cluster.put(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "data": data}
    )
    machine.wanted = Requirements(snapshot_name="s")
    assert (await observe(machine)).snapshot == made
    machine.cluster.faults.append(fail_calls("get", CONFIG_MAP, Unavailable("asked again"), times=9))
    assert (await observe(machine)).snapshot == made
    machine.wanted = Requirements(snapshot_name="another")
    assert (await observe(machine)).snapshot is UNSEEN
    assert memory(machine).snapshot == made


async def test_of_a_frozen_cluster_only_the_snapshot_is_kept(machine: Machine) -> None:
    job = await machine.start()
    data = {"spec.json": "{}", "raycluster.json": "{}"}
    machine.cluster.put(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": owned(job) | {"name": "s"}, "immutable": True}
        | {"data": data}
    )
    machine.wanted = Requirements(snapshot_name="s", config_name="s")
    for _ in range(2):
        seen = await observe(machine)
        assert isinstance(seen.snapshot, dict)
        assert isinstance(seen.config, dict)
        assert (seen.snapshot["data"], seen.config["data"]) == ({"spec.json": "{}"}, data)


@pytest.mark.parametrize("change", [{"immutable": False}, {"metadata": {"ownerReferences": []}}], ids=["may", "alien"])
async def test_what_may_change_is_read_each_time(machine: Machine, change: dict[str, Any]) -> None:
    job = await machine.start()
    metadata = owned(job) | {"name": "s"} | change.pop("metadata", {})
    machine.cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True} | change)
    machine.wanted = Requirements(snapshot_name="s")
    await observe(machine)
    assert memory(machine).snapshot is None


async def test_recipes_are_seen_without_a_request(machine: Machine) -> None:
    machine.cluster.put(recipe("base"))
    machine.cluster.put(rljob() | {"spec": rljob()["spec"] | {"recipeRef": {"name": "base"}}})
    await machine.start()
    seen = await observe(machine)
    assert [str(found) for found in seen.recipes] == ["ClusterRLRecipe base"]
    assert seen.unreadable == {}


async def test_unreadable_recipes_are_distinct_from_missing_ones(machine: Machine) -> None:
    machine.cluster.unserved.add(RL_RECIPE)
    machine.cluster.faults.append(fail_calls("list", CLUSTER_RL_RECIPE, Forbidden("no"), times=1))
    await machine.start()
    why = (await observe(machine)).unreadable
    assert "may not list clusterrlrecipes.rljob.dev" in why[RecipeKind.CLUSTER_RL_RECIPE]
    assert "does not serve rlrecipes.rljob.dev" in why[RecipeKind.RL_RECIPE]


def recipe(name: str) -> dict[str, Any]:
    return {
        "apiVersion": CLUSTER_RL_RECIPE.api_version,
        "kind": "ClusterRLRecipe",
        "metadata": {"name": name},
        "spec": {"template": {}},
    }


async def test_the_snapshot_below_is_read_while_the_next_one_is_not_there(machine: Machine) -> None:
    job = await machine.start()
    below = machine.cluster.put(left(job, "s1", "spec/1"))
    machine.wanted = Requirements(snapshot_name="s2", base_snapshot_name="s1")
    seen = await observe(machine)
    assert (seen.snapshot, seen.base_snapshot) == (None, below)
    machine.cluster.put(left(job, "s2", "spec/2"))
    assert (await observe(machine)).base_snapshot is UNSEEN


@pytest.mark.parametrize(("heads", "seconds"), [(1, 30.0), (180, 30.0), (186, 31.0), (1000, 1000 / 6)])
async def test_the_more_jobs_run_the_less_often_each_writes_its_progress(
    machine: Machine, heads: int, seconds: float
) -> None:
    job = await machine.start()
    cluster = machine.cluster.put(cluster_of(job))
    for number in range(heads):
        machine.reconciler.store.put(POD, machine.cluster.put(head_of(cluster, f"head-{number}")))
    spread = 1 + (PROGRESS_JITTER * fraction(job["metadata"]["uid"]) if heads > 180 else 0.0)
    assert (await observe(machine)).progress_write_seconds == pytest.approx(seconds * spread)


async def test_queued_jobs_do_not_make_running_ones_write_progress_less_often(machine: Machine) -> None:
    job = await machine.start()
    for number in range(1000):
        machine.reconciler.store.put(RAY_CLUSTER, machine.cluster.put(cluster_of(job, "1", number + 1)))
    assert machine.reconciler.store.count(RAY_CLUSTER) == 1000
    assert (await observe(machine)).progress_write_seconds == 30.0


async def test_what_was_computed_is_handed_on_until_its_inputs_change(machine: Machine) -> None:
    machine.cluster.put(recipe("base"))
    machine.cluster.put(rljob() | {"spec": rljob()["spec"] | {"recipeRef": {"name": "base"}}})
    await machine.start()
    first = derived(machine, await observe(machine))
    first.differences.get(lambda: ("a lot",))
    machine.cluster.edit(RLJOB, *KEY, lambda job: job.update(status={"state": "Training"}))
    assert derived(machine, await observe(machine)) is first
    changes = (
        (RLJOB, *KEY, lambda job: job["spec"].update(suspend=True)),
        (RLJOB, *KEY, lambda job: job["metadata"].update(annotations={"rljob.dev/refresh": "1"})),
        (CLUSTER_RL_RECIPE, "", "base", lambda found: found["spec"].update(description="another")),
    )
    for kind, namespace, name, change in changes:
        before = derived(machine, await observe(machine))
        machine.cluster.edit(kind, namespace, name, change)
        after = derived(machine, await observe(machine))
        assert after is not before
        assert after == Derived()


async def test_what_is_remembered_of_a_job_that_is_gone_is_forgotten(machine: Machine) -> None:
    await machine.start()
    await observe(machine)
    assert len(machine.reconciler.memories.by_uid) == 1
    machine.cluster.remove(RLJOB, *KEY)
    machine.reconciler.forget_gone()
    assert machine.reconciler.memories.by_uid == {}


async def test_pods_are_unseen_when_all_jobs_together_have_looked_often_enough(machine: Machine) -> None:
    await start_with_head(machine)
    machine.wanted = Requirements(pods=Pods(""))
    looks = [isinstance((await observe(machine)).pods, tuple) for _ in range(POD_LISTS_AT_ONCE + 1)]
    assert looks == [True] * POD_LISTS_AT_ONCE + [False]
    machine.wanted = Requirements(pods=Pods("", urgent=True))
    looks = [isinstance((await observe(machine)).pods, tuple) for _ in range(URGENT_LISTS_AT_ONCE + 1)]
    assert looks == [True] * URGENT_LISTS_AT_ONCE + [False], "a lost head waits for no diagnosis"
    machine.wanted = Requirements(pods=Pods(""))
    machine.clock.advance(1.0)
    assert isinstance((await observe(machine)).pods, tuple)


async def test_a_config_map_that_was_made_after_the_job_was_listed_costs_no_request(machine: Machine) -> None:
    job = await machine.start()
    machine.wanted = Requirements(recall=True)
    await observe(machine)
    machine.wanted = Requirements(config_name="c1")
    machine.cluster.faults.append(fail_calls("get", CONFIG_MAP, Unavailable("asked"), times=9))
    assert (await observe(machine)).config is None
    made = machine.cluster.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": owned(job)})
    memory(machine).add_config_map(made)
    assert (await observe(machine)).config == made
    machine.reconciler.store.put(RAY_CLUSTER, machine.cluster.put(cluster_of(job)))
    assert (await observe(machine)).config is UNSEEN


async def test_a_silence_begins_with_the_first_question_in_vain_and_ends_with_an_answer(machine: Machine) -> None:
    _, head = await start_with_head(machine)
    machine.wanted = Requirements(head=head, progress=True)
    began = machine.clock.now()
    machine.ray.heads["10.0.0.1"].reachable = False
    assert (await observe(machine)).silence == Silence(began, began)
    machine.clock.advance(60)
    assert (await observe(machine)).silence == Silence(began, began)
    machine.ray.heads["10.0.0.1"].reachable = True
    assert (await observe(machine)).silence is None
    machine.ray.heads["10.0.0.1"].reachable = False
    now = machine.clock.now()
    assert (await observe(machine)).silence == Silence(now, now)


async def test_a_head_that_nobody_asks_is_not_silent(machine: Machine) -> None:
    _, head = await start_with_head(machine)
    machine.ray.heads["10.0.0.1"].reachable = False
    machine.wanted = Requirements(head=head, progress=True)
    await observe(machine)
    machine.wanted = Requirements()
    assert (await observe(machine)).silence is None
    machine.wanted = Requirements(head=head, progress=True)
    now = machine.clock.now()
    assert (await observe(machine)).silence == Silence(now, now)


def left_by(job: Manifest, name: str, **data: str) -> dict[str, Any]:
    metadata = owned(job) | {"name": name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def event_of(name: str, kind: str = "Warning") -> dict[str, Any]:
    metadata = {"namespace": "team", "name": name}
    return {"apiVersion": EVENT.api_version, "kind": "Event", "metadata": metadata, "type": kind}


async def test_what_an_ended_attempt_left_is_looked_at_until_it_is_written_down(machine: Machine) -> None:
    job, _ = await start_with_head(machine)
    machine.cluster.put(event_of("bad"))
    machine.cluster.put(event_of("good", "Normal"))
    machine.wanted = Requirements(evidence=Evidence("left", "attempt-1.json", "c1"))
    seen = await observe(machine)
    assert seen.evidence is None
    assert not isinstance(seen.warnings, Unseen)
    assert [event["metadata"]["name"] for event in seen.warnings] == ["bad"]
    assert not isinstance(seen.pods, Unseen)
    assert [pod["metadata"]["name"] for pod in seen.pods] == ["c1-head"]
    machine.cluster.put(left_by(job, "left", **{"attempt-1.json": "{}"}))
    seen = await observe(machine)
    assert isinstance(seen.evidence, dict)
    assert (seen.pods, seen.warnings) == (UNSEEN, UNSEEN)


async def test_what_kuberay_says_of_the_cluster_is_read_after_a_bad_end_or_on_demand(machine: Machine) -> None:
    job = await machine.start()
    machine.cluster.edit(RLJOB, *KEY, lambda found: found.update(status={"intent": {"clusterName": "c1"}}))
    machine.reconciler.store.put(RLJOB, machine.cluster.find(RLJOB, *KEY) or job)
    for name in ("c1", "c2"):
        about = {"regarding": {"kind": "RayCluster", "name": name}}
        machine.cluster.put(event_of(f"of-{name}", "Normal") | about)
        machine.cluster.put(event_of(f"bad-{name}") | about | {"reason": "InvalidRayClusterSpec"})
    machine.wanted = Requirements()
    assert (await observe(machine)).cluster_events == ()
    for wanted, names in (
        (Requirements(held=True), ["bad-c1", "of-c1"]),
        (Requirements(cluster_events=True), ["bad-c1"]),
    ):
        machine.wanted = wanted
        assert [event["metadata"]["name"] for event in (await observe(machine)).cluster_events] == names
    machine.wanted = Requirements(held=True)
    machine.cluster.faults.append(fail_calls("list", EVENT, Forbidden("no"), times=1))
    assert (await observe(machine)).cluster_events == ()


async def test_evidence_that_cannot_be_read_costs_no_further_request(machine: Machine) -> None:
    await start_with_head(machine)
    machine.wanted = Requirements(evidence=Evidence("left", "attempt-1.json", "c1"))
    machine.cluster.faults.append(fail_calls("get", CONFIG_MAP, Unavailable("down"), times=1))
    seen = await observe(machine)
    assert (seen.evidence, seen.pods, seen.warnings) == (UNSEEN, UNSEEN, UNSEEN)


async def test_evidence_without_its_warnings_is_evidence(machine: Machine) -> None:
    await start_with_head(machine)
    machine.wanted = Requirements(evidence=Evidence("left", "attempt-1.json", "c1"))
    machine.cluster.faults.append(fail_calls("list", EVENT, Forbidden("no"), times=1))
    seen = await observe(machine)
    assert (seen.evidence, seen.warnings) == (None, UNSEEN)
    assert not isinstance(seen.pods, Unseen)
