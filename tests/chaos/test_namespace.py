"""A namespace that is deleted with a training run in it: the run saves first, and nothing hangs.

Everything goes at once then, in no order that anybody chose: Secrets and ConfigMaps may
be gone before the pods that use them have saved, and nothing new can be made there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.e2e import quickstart, runs, story
from tests.kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.lifecycle, pytest.mark.timeout(1200 * runs.SLOWER)]

NAMESPACE = "rljob-doomed"
GRACE_SECONDS = 240
JOB = "doomed"


@pytest.fixture
def doomed(admin: Kube) -> Iterator[Kube]:
    """Give a namespace of its own that holds the quickstart's code and storage; it is gone afterwards."""
    mine = admin.in_namespace(NAMESPACE)
    mine.delete("namespace", NAMESPACE)
    mine.run("create", "namespace", NAMESPACE)
    mine.apply(*quickstart.surroundings())
    yield mine
    mine.delete("namespace", NAMESPACE, wait=False)


def test_a_namespace_that_is_deleted_lets_its_run_save_and_goes(doomed: Kube) -> None:
    doomed.apply(
        runs.variant(
            JOB,
            trainer__steps=400,
            checkpoint=runs.saving(JOB, 400),
            stop={"graceSeconds": GRACE_SECONDS, "requireCheckpoint": True},
        )
    )
    record = story.Record(JOB)
    wait_for("the first step", lambda: story.look(doomed, record) == "Training" and record.step >= 1, 900, every=3)
    seen = record.step

    with doomed.watch("rljob", JOB, "{.status.checkpoint.step}") as steps:
        begin = time.monotonic()
        doomed.run("delete", "namespace", NAMESPACE, "--wait=false")
        wait_for("the namespace is gone", lambda: doomed.get("namespace", NAMESPACE) is None, GRACE_SECONDS + 60)
        print(f"gone after {time.monotonic() - begin:.0f} s")
    assert int(steps[-1]) >= seen
