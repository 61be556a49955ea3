"""From the frozen spec to the intent to submit."""

from dataclasses import replace

import pytest
from builders import (
    CLUSTER_NAME,
    IDENTITY,
    IDLE,
    SUBMISSION_ID,
    Json,
    answer,
    at,
    cluster,
    config,
    decide,
    job,
    pod,
    reasons,
    running,
    seen,
    small_spec,
    snapshot,
    status_after,
    status_initialized,
    status_recorded,
    status_training,
    wrote,
)

from rljob.api.status import State
from rljob.core import times
from rljob.core.manifest_facts import cluster_is_ready, pod_is_ready
from rljob.core.observed import UNSEEN, KubeRayWork, Manifest, Observed, Unseen
from rljob.core.plan import CreateObject, CreateToken, DeleteObject, Plan
from rljob.render import configmap, labels
from rljob.render.accelerator_table import OPERATOR_IMAGE
from rljob_runtime.contract import Phase, Progress


def starting(found: Manifest | Unseen | None, *clusters: Json) -> Plan:
    return decide(Observed(job(status=status_initialized()), clusters=clusters, snapshot=snapshot(), config=found))


def as_json(plan: Plan) -> Json:
    return wrote(plan).model_dump(mode="json", by_alias=True, exclude_none=True)


def waiting(seconds: float = 0, *, pods: tuple[Json, ...] | Unseen = ()) -> Plan:
    return decide(seen(job(status=status_initialized()), clusters=(cluster(),), pods=pods), seconds)


def test_token_and_rendering_are_made_together() -> None:
    token, frozen = starting(None).effects
    assert isinstance(token, CreateToken)
    assert (token.job_uid, token.cluster_name) == (IDENTITY.uid, CLUSTER_NAME)
    assert frozen == CreateObject(config())


def test_an_unseen_rendering_is_not_a_missing_one() -> None:
    assert starting(UNSEEN) == Plan(requeue_after_seconds=5.0)


def test_a_cluster_that_cannot_be_made_ends_the_job_at_the_start_deadline() -> None:
    world = Observed(job(status=status_initialized()), snapshot=snapshot(), config=config())
    assert isinstance(decide(world, 1799).effects[0], CreateObject)
    assert wrote(decide(world, 1800)).reason == "StartDeadlineExceeded"


def test_the_cluster_is_made_from_the_frozen_rendering_only() -> None:
    frozen = config()
    frozen["data"]["raycluster.json"] = frozen["data"]["raycluster.json"].replace("2.60.0", "2.59.0")
    effect = starting(frozen).effects[0]
    assert isinstance(effect, CreateObject)
    assert effect.manifest["spec"]["rayVersion"] == "2.59.0"


def renamed(text: str, new: str) -> Json:
    made = config()
    made["data"]["raycluster.json"] = made["data"]["raycluster.json"].replace(text, new)
    return made


@pytest.mark.parametrize(
    "foreign",
    [
        config() | {"metadata": {"ownerReferences": [{"kind": "RLJob", "uid": "another", "controller": True}]}},
        config() | {"metadata": {"ownerReferences": [{"kind": "RLJob", "uid": IDENTITY.uid}]}},
        config() | {"metadata": {"ownerReferences": [{"kind": "Other", "uid": IDENTITY.uid, "controller": True}]}},
        config() | {"data": {}},
        config() | {"data": {"raycluster.json": "no JSON"}},
        config() | {"data": {"raycluster.json": "[]"}},
        renamed('"kind":"RayCluster"', '"kind":"Pod"'),
        renamed('"namespace":"team"', '"namespace":"kube-system"'),
    ],
    ids=[
        "of another",
        "not controlled",
        "of another kind of owner",
        "empty",
        "no JSON",
        "a list",
        "of another kind",
        "in another namespace",
    ],
)
def test_nothing_is_ever_made_from_a_rendering_that_is_not_ours(foreign: Json) -> None:
    plan = starting(foreign)
    assert plan.effects == ()
    assert wrote(plan).conditions[-1].message.startswith(f"NameTaken: ConfigMap {CLUSTER_NAME}")


def test_another_cluster_of_this_job_goes_first() -> None:
    other = cluster(name="sums-0a1b2-0", uid="other")
    plan = starting(config(), other)
    assert plan.effects == (DeleteObject("ray.io/v1", "RayCluster", "team", "sums-0a1b2-0", "other"),)
    assert plan.requeue_after_seconds == 5.0
    other["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert starting(config(), other) == Plan(requeue_after_seconds=5.0)


WAITS = (pod(ready=False),)
READY: Json = {"clusters": (cluster(ready=1),), "head_pod": pod(), "progress": IDLE}


@pytest.mark.parametrize(
    ("world", "seconds"), [({"clusters": (cluster(),), "pods": WAITS}, 900), (READY, 0)], ids=["waits", "is ready"]
)
def test_the_clusters_uid_is_written_down_with_the_first_news_of_it(world: Json, seconds: float) -> None:
    status = wrote(decide(seen(job(status=status_initialized()), **world), seconds))
    assert status.intent is not None
    assert status.intent.cluster_uid == "cluster-uid"
    assert status.ray_cluster is not None
    assert status.ray_cluster.dashboard_url == f"http://{CLUSTER_NAME}-head-svc.team.svc:8265"


OLD_RAY = small_spec({"runtime": {"rayVersion": "2.48.0", "unauthenticatedRay": True}})


def test_the_ports_of_a_ray_without_tokens_are_closed_before_its_cluster_is_made() -> None:
    world = Observed(job(OLD_RAY, status_initialized()), snapshot=snapshot(OLD_RAY), config=config(OLD_RAY))
    policy, made = (effect.manifest for effect in decide(world).effects if isinstance(effect, CreateObject))
    assert (policy["kind"], made["kind"]) == ("NetworkPolicy", "RayCluster")


def test_the_dashboard_of_a_ray_without_tokens_has_no_address() -> None:
    found = configmap.read_raycluster(config(OLD_RAY))
    found["metadata"]["uid"] = "cluster-uid"
    found["metadata"]["creationTimestamp"] = cluster()["metadata"]["creationTimestamp"]
    world: Json = {"clusters": (found,), "snapshot": snapshot(OLD_RAY), "pods": WAITS}
    status = wrote(decide(seen(job(OLD_RAY, status_initialized()), **world), 900))
    assert status.ray_cluster is not None
    assert status.ray_cluster.dashboard_url is None


def test_on_the_nodes_network_the_dashboard_is_at_the_port_of_the_block() -> None:
    spec = small_spec({"network": {"mode": "Host"}})
    status = status_initialized() | {"network": {"portBlock": 20_000}}
    told = wrote(decide(seen(job(spec, status), **READY | {"snapshot": snapshot(spec)})))
    assert told.ray_cluster is not None
    assert told.ray_cluster.dashboard_url == f"http://{CLUSTER_NAME}-head-svc.team.svc:20001"


def test_the_packages_of_the_cluster_are_written_down() -> None:
    wheels = [f"a==1.0 --hash=sha256:{'0' * 64} --hash=sha256:{'1' * 64}", f"b==2.0 --hash=sha256:{'2' * 64}"]
    spec = small_spec({"runtime": {"packages": {"requirements": wheels}}})
    told = wrote(decide(seen(job(spec, status_initialized()), **READY | {"snapshot": snapshot(spec)})))
    assert told.ray_cluster is not None
    assert told.ray_cluster.packages == "a==1.0 b==2.0"


@pytest.mark.parametrize(("image", "verl"), [(OPERATOR_IMAGE, "0.9.1"), (None, None)])
def test_the_runtime_of_the_cluster_is_written_down_and_its_verl_is_kept(image: str | None, verl: str | None) -> None:
    marks = {} if image is None else {labels.RUNTIME_IMAGE: image}
    status = status_initialized() | {"rayCluster": {"name": CLUSTER_NAME} | ({"verlVersion": verl} if verl else {})}
    told = wrote(decide(seen(job(status=status), **READY | {"clusters": (cluster(ready=1, annotations=marks),)})))
    assert told.ray_cluster is not None
    assert (told.ray_cluster.runtime_image, told.ray_cluster.verl_version) == (image, verl)


def test_the_verl_of_an_earlier_cluster_is_not_that_of_the_next() -> None:
    status = status_initialized() | {"rayCluster": {"name": "sums-0a1b2-0", "verlVersion": "0.8.0"}}
    told = wrote(decide(seen(job(status=status), **READY)))
    assert told.ray_cluster is not None
    assert told.ray_cluster.verl_version is None


def test_a_cluster_that_is_there_is_no_news() -> None:
    assert decide(seen(job(status=status_initialized()), clusters=(cluster(),), pods=WAITS)).empty


def test_a_vanished_cluster_is_created_again_when_its_pods_are_gone() -> None:
    left = seen(job(status=status_initialized()), config=config(), former_heads=(pod(),))
    assert decide(left) == Plan(requeue_after_seconds=5.0)
    assert wrote(decide(left, 1800)).reason == "StartDeadlineExceeded"
    assert starting(config()).effects == (CreateObject(configmap.read_raycluster(config())),)


def test_a_lost_status_finds_its_cluster_before_it_initializes() -> None:
    assert (intent := wrote(decide(seen(job(), clusters=(cluster(),)))).intent) is not None
    assert intent.cluster_uid == "cluster-uid"


@pytest.mark.parametrize(("clusters", "word"), [((), "deleted"), ((cluster(uid="another"),), "replaced")])
def test_a_cluster_that_somebody_took_away_ends_the_job(clusters: tuple[Json, ...], word: str) -> None:
    plan = decide(seen(job(status=status_recorded()), clusters=clusters, live_cluster=None))
    assert wrote(plan).conditions[-1].message == f"ClusterLost: RayCluster {CLUSTER_NAME} was {word} by somebody else"


@pytest.mark.parametrize("live", [UNSEEN, cluster()])
def test_a_cluster_that_only_the_watch_lacks_is_not_lost(live: Json | Unseen) -> None:
    plan = decide(seen(job(status=status_recorded()), live_cluster=live))
    assert plan == Plan(requeue_after_seconds=5.0)


def test_an_unschedulable_pod_is_reported_with_an_event() -> None:
    unschedulable = pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "no NPU"}])
    plan = waiting(pods=(unschedulable,))
    assert reasons(plan)["ClusterReady"] == ("False", "PodUnschedulable")
    assert [note.type for note in plan.events] == ["Warning"]
    assert plan.requeue_after_seconds == 7.5


def test_pods_that_are_starting_are_reported_after_half_of_the_deadline_without_an_event() -> None:
    # The cluster is 30 s old at 0.
    early = waiting(884, pods=WAITS)
    assert early.empty
    assert early.requeue_after_seconds == 60.0
    plan = waiting(885, pods=WAITS)
    assert reasons(plan)["ClusterReady"] == ("False", "PodStarting")
    assert plan.events == ()


def test_a_pod_that_takes_long_is_reported_after_five_minutes() -> None:
    slow = pod(ready=False)
    slow["metadata"]["creationTimestamp"] = "2026-01-01T12:00:10Z"
    assert waiting(309, pods=(slow,)).empty
    assert reasons(waiting(310, pods=(slow,)))["ClusterReady"] == ("False", "PodStarting")


def test_another_pod_that_is_waited_for_updates_the_message() -> None:
    told = as_json(waiting(885, pods=WAITS))
    other = decide(seen(job(status=told), clusters=(cluster(),), pods=(pod("worker", ready=False),)), 945)
    assert wrote(other).message == "pod worker waits for its containers"


def test_missing_pods_are_reported_after_two_minutes_without_an_event() -> None:
    young = waiting(89)
    assert young.empty
    assert young.requeue_after_seconds == pytest.approx(29.75)
    plan = waiting(90)
    assert reasons(plan)["ClusterReady"] == ("False", "NoPods")
    assert plan.events == ()


UNTOUCHED = {key: value for key, value in cluster().items() if key != "status"}
SUSPENDED = cluster() | {"status": {"state": "suspended"}}
BUSY = KubeRayWork("2026-01-01T12:01:30Z", "2026-01-01T12:00:29Z")
"""At 90 s, with clusters that were created at most 59 s after ours."""


@pytest.mark.parametrize(
    ("found", "kuberay", "seconds", "told"),
    [
        (UNTOUCHED, BUSY, 90, False),
        (SUSPENDED, BUSY, 90, False),
        (UNTOUCHED, replace(BUSY, wrote="2026-01-01T12:00:30Z"), 90, True),
        (UNTOUCHED, replace(BUSY, reached="2026-01-01T12:00:31Z"), 90, True),
        (UNTOUCHED, KubeRayWork(), 90, True),
        (UNTOUCHED, KubeRayWork(), 89, False),
        (UNTOUCHED, replace(BUSY, wrote="2026-01-01T12:15:00Z"), 885, True),
        (cluster(), BUSY, 90, True),
    ],
    ids=["turn to come", "let go", "idle", "passed by", "never seen", "too soon", "half of the time", "looked"],
)
def test_a_cluster_that_waits_for_its_turn_at_kuberay_is_no_news(
    found: Json, kuberay: KubeRayWork, seconds: float, *, told: bool
) -> None:
    world = seen(job(status=status_initialized()), clusters=(found,), pods=(), kuberay=kuberay)
    assert decide(world, seconds).empty is not told


@pytest.mark.parametrize("seconds", [7200, 600])
def test_an_edited_deadline_counts_for_the_start_under_way_and_is_no_news(seconds: int) -> None:
    edited = small_spec({"deadlines": {"startSeconds": seconds}})

    def plan(status: Json, after: float) -> Plan:
        return decide(seen(job(edited, status), clusters=(cluster(),), pods=WAITS), after)

    moved = plan(status_initialized(), 100)
    assert (moved.events, moved.effects) == ((), ())
    before, after = status_initialized(), status_after(moved)
    intent = before["intent"] | {"startDeadline": times.to_text(at(seconds)), "startSeconds": seconds}
    assert after == before | {"intent": intent}
    assert wrote(plan(after, seconds)).reason == "StartDeadlineExceeded"
    waits = plan(after, min(seconds - 1, 1800))
    assert waits.status is None or wrote(waits).reason == "PodStarting"


def test_the_deadline_of_a_start_that_an_earlier_version_began_stays() -> None:
    begun = status_initialized()
    del begun["intent"]["startSeconds"]
    edited = small_spec({"deadlines": {"startSeconds": 7200}})
    assert decide(seen(job(edited, begun), clusters=(cluster(),), pods=WAITS)).empty


def test_an_edited_deadline_leaves_a_run_alone() -> None:
    edited = job(small_spec({"deadlines": {"startSeconds": 7200}}), status_training())
    assert decide(running(job=edited, progress=answer())).empty


def test_pods_that_come_late_update_the_condition_at_once() -> None:
    plan = decide(seen(job(status=as_json(waiting(90))), clusters=(cluster(),), pods=WAITS), 100)
    assert reasons(plan)["ClusterReady"] == ("False", "PodStarting")


def refused(name: str) -> Json:
    made = cluster()
    said = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreateWorkerPod", "message": f"{name}: quota"}
    made["status"]["conditions"] = [said]
    return made


def test_pods_that_kuberay_cannot_create_are_reported_at_once_and_once() -> None:
    def plan(name: str, status: Json) -> Plan:
        return decide(seen(job(status=status), clusters=(refused(name),), pods=(pod(),)))

    first = plan("worker-abcde", status_initialized())
    assert (wrote(first).reason, wrote(first).message) == (
        "PodsRefused",
        "KubeRay: FailedCreateWorkerPod: worker-abcde: quota",
    )
    assert [note.type for note in first.events] == ["Warning"]
    assert plan("worker-fghij", as_json(first)).empty


def test_pods_that_become_schedulable_update_the_condition_at_once() -> None:
    unschedulable = pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "no NPU"}])
    told = as_json(waiting(pods=(unschedulable,)))
    plan = decide(seen(job(status=told), clusters=(cluster(),), pods=WAITS), 10)
    assert reasons(plan)["ClusterReady"] == ("False", "PodStarting")


def test_an_image_that_cannot_be_pulled_is_reported_at_once() -> None:
    failed = {"name": "ray", "state": {"waiting": {"reason": "ErrImagePull"}}}
    assert reasons(waiting(0, pods=(pod(ready=False, containerStatuses=[failed]),)))["ClusterReady"] == (
        "False",
        "ImagePullFailed",
    )


def test_nothing_is_reported_about_pods_that_were_not_read() -> None:
    assert waiting(pods=UNSEEN) == Plan(requeue_after_seconds=7.5)


def test_a_young_clusters_pods_are_looked_at_when_most_are_up() -> None:
    young = cluster(creationTimestamp="2026-01-01T11:59:57Z")
    plan = decide(seen(job(status=status_recorded()), clusters=(young,)))
    assert plan == Plan(requeue_after_seconds=7.0)


@pytest.mark.parametrize(("seconds", "pause"), [(0, 7.5), (50, 20.0), (1700, 60.0)])
def test_the_longer_pods_take_the_more_seldom_they_are_looked_at(seconds: float, pause: float) -> None:
    assert waiting(seconds).requeue_after_seconds == pytest.approx(pause)


def test_at_the_start_deadline_the_last_word_about_pods_counts_where_they_cannot_be_looked_at() -> None:
    told = as_json(waiting(900, pods=WAITS))
    plan = decide(seen(job(status=told), clusters=(cluster(),), pods=UNSEEN), 1800)
    assert "PodStarting: pod head waits for its containers" in str(wrote(plan).message)


def test_the_start_deadline_holds_for_pods_that_cannot_be_looked_at() -> None:
    assert wrote(waiting(1800, pods=UNSEEN)).reason == "StartDeadlineExceeded"


def test_a_queued_cluster_says_so() -> None:
    queued = cluster()
    queued["spec"]["suspend"] = True
    plan = decide(seen(job(status=status_recorded()), clusters=(queued,), pods=()))
    assert wrote(plan).reason == "WaitingForQueue"


def test_the_time_in_the_queue_does_not_count_against_the_start_deadline() -> None:
    queued = cluster()
    queued["spec"]["suspend"] = True
    told = decide(seen(job(status=status_recorded()), clusters=(queued,), pods=()), 100_000)
    assert wrote(told).reason == "WaitingForQueue"
    admitted = decide(seen(job(status=told.status), clusters=(cluster(),)), 100_010)
    after = wrote(admitted)
    assert after.reason == "ClusterStarting"
    assert after.message == "waiting until the pods of RayCluster sums-0a1b2-1 are scheduled and ready"
    assert after.intent is not None
    before = wrote(told).intent
    assert before is not None
    assert after.intent.start_deadline > before.start_deadline
    still = decide(seen(job(status=admitted.status), clusters=(cluster(),)), 100_010 + 1799)
    assert still.empty
    late = decide(seen(job(status=admitted.status), clusters=(cluster(),), pods=()), 100_010 + 1800)
    assert wrote(late).reason == "StartDeadlineExceeded"


def test_the_start_deadline_ends_the_wait_with_its_cause() -> None:
    assert wrote(waiting(1799)).state is State.STARTING
    assert wrote(waiting(1800)).conditions[-1].message == "StartDeadlineExceeded: NoPods: no pod exists yet"


def ready(told: Progress | Unseen, seconds: float = 0) -> Plan:
    world = seen(job(status=status_recorded()), clusters=(cluster(ready=1),), head_pod=pod(), progress=told)
    return decide(world, seconds)


def test_the_submission_is_intended_when_all_is_ready() -> None:
    plan = ready(IDLE)
    intent = wrote(plan).intent
    assert intent is not None
    assert (intent.attempt, intent.submission_id, intent.head_pod_uid) == (1, SUBMISSION_ID, "head-uid")
    assert plan.effects == ()


def test_the_head_says_first_what_it_knows_unless_it_is_silent_for_too_long() -> None:
    plan = ready(UNSEEN, 59)
    assert (plan.empty, plan.requeue_after_seconds) == (True, 2.0)
    assert wrote(ready(UNSEEN, 60)).intent == wrote(ready(IDLE, 60)).intent


@pytest.mark.parametrize(
    ("number", "submission", "intended"),
    [(3, "sums-0a1b2-1-3", 3), (3, "another", 1), (1, SUBMISSION_ID, 1), (0, "", 1)],
)
def test_what_a_head_runs_after_a_lost_status_is_the_jobs_own(number: int, submission: str, intended: int) -> None:
    told = Progress(pod_uid="head-uid", phase=Phase.TRAINING, attempt=number, submission_id=submission)
    intent = wrote(ready(told)).intent
    assert intent is not None
    assert (intent.attempt, intent.submission_id) == (intended, f"sums-0a1b2-1-{intended}")


@pytest.mark.parametrize(
    ("found", "head", "ready"),
    [
        (cluster(ready=1), pod(), True),
        (cluster(ready=0), pod(), False),
        (cluster(ready=1), None, False),
        (cluster(ready=1), pod(ready=False), False),
        (cluster(ready=1), pod(podIP=None), False),
        (cluster(ready=1, deletionTimestamp="2026-01-01T00:00:00Z"), pod(), False),
        ({key: value for key, value in cluster().items() if key != "status"}, pod(), False),
    ],
)
def test_a_cluster_is_ready_by_its_live_facts(found: Json, head: Json | None, *, ready: bool) -> None:
    assert cluster_is_ready(found, head) is ready


def test_a_pod_without_status_is_not_ready() -> None:
    assert not pod_is_ready({"metadata": {}})
    assert configmap.read_raycluster(config())["kind"] == "RayCluster"
