"""A second cause while a lost worker is replaced: each costs one attempt, and no step is lost.

One run on two worker pods. Both workers die; a worker dies while KubeRay is down; the cluster is preempted, and the job
is suspended, while a worker is replaced. The operator is killed after each. That the head dies meanwhile is covered by
`tests/e2e/test_lifecycle.py`. Part of `make chaos-cluster`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.chaos.kuberay import scale
from tests.cluster.addons import KUBERAY_NAMESPACE
from tests.e2e import recorded_run, runs
from tests.e2e.recorded_run import Record
from tests.kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2400)]

NAME, STEPS, SAVE_EVERY = "second-causes", 400, 5
STEP_SECONDS = 2.0
RUN_SECONDS = 1800
NOTICED_SECONDS = 240


def lose_workers(kube: Kube, record: Record) -> None:
    """Delete both worker pods by force, as if their nodes were gone."""
    for pod in _workers(kube, record):
        _delete(kube, pod)


def without_kuberay(kuberay: Kube) -> Callable[[Kube, Record], None]:
    """Return the fault: a worker is lost while nobody can replace it."""

    def lose_worker_without_kuberay(kube: Kube, record: Record) -> None:
        scale(kuberay, 0)
        try:
            _lose_one_and_wait(kube, record)
        finally:
            scale(kuberay, 1)

    return lose_worker_without_kuberay


def lose_worker_and_preempt(kube: Kube, record: Record) -> None:
    """Preempt the cluster once the loss has ended the attempt."""
    _lose_one_and_wait(kube, record)
    recorded_run.preempt(kube, record)


def lose_worker_and_suspend(kube: Kube, record: Record) -> None:
    """Suspend the job once the loss has ended the attempt, and resume it."""
    _lose_one_and_wait(kube, record)
    recorded_run.suspend(kube, record)


def _workers(kube: Kube, record: Record) -> list[str]:
    found = kube.find("pods", f"rljob.dev/job={record.name},ray.io/node-type=worker")
    return [pod["metadata"]["name"] for pod in found]


def _delete(kube: Kube, pod: str) -> None:
    kube.run("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")


def _lose_one_and_wait(kube: Kube, record: Record) -> None:
    _delete(kube, _workers(kube, record)[0])

    def ended() -> bool:
        recorded_run.observe(kube, record)
        return "endTime" in record.status["attempts"][-1]

    wait_for("the attempt has ended", ended, NOTICED_SECONDS, every=1)


@pytest.fixture(scope="module")
def run(kube: Kube, admin: Kube) -> Iterator[Record]:
    job = runs.variant(
        NAME,
        workerGroups__0__nodes=2,
        workerGroups__0__devicesPerNode=1,
        trainer__steps=STEPS,
        **runs.pace(STEP_SECONDS),
        checkpoint=runs.saving(NAME, SAVE_EVERY, keep=2),
        restart={"maxInfrastructureRestarts": 3, "backoffSeconds": 1},
        stop={"graceSeconds": 240},
    )
    away = without_kuberay(admin.in_namespace(KUBERAY_NAMESPACE))
    faults = ((7, lose_workers), (14, away), (21, lose_worker_and_preempt), (28, lose_worker_and_suspend))
    *_, record = recorded_run.run_with_faults(kube, job, faults, RUN_SECONDS)
    yield record
    kube.delete("rljob", NAME)


def test_each_costs_one_attempt_and_resumes_from_the_last_checkpoint(run: Record) -> None:
    attempts = run.status["attempts"]
    print(json.dumps(attempts, indent=1))
    assert len(attempts) == len(run.submissions) == 5
    # A pod whose hook hears of its deletion before it is gone has the run save: that costs no budget.
    assert {attempt.get("cause") for attempt in attempts[:-1]} <= {"Infrastructure", "Preemption"}
    counters = run.status["counters"]
    assert (counters["userFailures"], counters["infrastructureFailures"] + counters["preemptions"]) == (0, 4)
    recorded_run.assert_repeats_at_most(run, SAVE_EVERY)


def test_every_step_is_made(run: Record) -> None:
    assert [line["step"] for line in run.lines] == list(range(1, STEPS + 1))


def test_only_the_suspension_takes_a_new_cluster(run: Record) -> None:
    assert len(run.clusters) == 2
