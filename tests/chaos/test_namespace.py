"""A namespace is deleted during a run: the run saves first, and the deletion does not hang.

Kubernetes deletes the objects of a namespace in no particular order. Secrets and ConfigMaps may be gone before the pods
that use them have saved, and no objects can be created any more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.e2e import quickstart, recorded_run, runs
from tests.kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.lifecycle, pytest.mark.timeout(1200 * runs.SLOWER)]

NAMESPACE = "rljob-deleted"
GRACE_SECONDS = 240
JOB = "deleted"


@pytest.fixture
def deleted(admin: Kube) -> Iterator[Kube]:
    """Yield kubectl for a separate namespace with the quickstart's code and storage."""
    access = admin.in_namespace(NAMESPACE)
    access.delete("namespace", NAMESPACE)
    access.run("create", "namespace", NAMESPACE)
    access.apply(*quickstart.surroundings())
    yield access
    access.delete("namespace", NAMESPACE, wait=False)


def test_a_run_in_a_deleted_namespace_saves_before_the_namespace_is_gone(deleted: Kube) -> None:
    deleted.apply(
        runs.variant(
            JOB,
            trainer__steps=400,
            checkpoint=runs.saving(JOB, 400),
            stop={"graceSeconds": GRACE_SECONDS, "requireCheckpoint": True},
        )
    )
    record = recorded_run.Record(JOB)
    wait_for(
        "the first step", lambda: recorded_run.observe(deleted, record) == "Training" and record.step >= 1, 900, every=3
    )
    seen = record.step

    with deleted.watch("rljob", JOB, "{.status.checkpoint.step}") as steps:
        begin = time.monotonic()
        deleted.run("delete", "namespace", NAMESPACE, "--wait=false")
        wait_for("the namespace is gone", lambda: deleted.get("namespace", NAMESPACE) is None, GRACE_SECONDS + 60)
        print(f"gone after {time.monotonic() - begin:.0f} s")
    assert int(steps[-1]) >= seen
