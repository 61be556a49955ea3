"""A driver that refuses its configuration ends the job with the cause: one attempt, Failed, and the NPUs are free.

A run that fails at a step is in test_collected_logs.
"""

from __future__ import annotations

import pytest

from tests.e2e import runs
from tests.kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.lifecycle]

NAME, REASON = "unknown-override", "UnknownOverride"
MISSPELT, WORDS = (
    ("actor_rollout_ref.actor.optim.weight_dcay", ("weight_dcay", "actor_rollout_ref.actor.optim.weight_decay"))
    if runs.VERL
    else ("+contract.rollout_second", ("rollout_second:", "+contract.rollout_seconds"))
)


def test_the_cause_is_in_the_status(kube: Kube) -> None:
    kube.apply(runs.variant(NAME, verl__overrides={MISSPELT: 0.1}))
    kube.run("wait", f"rljob/{NAME}", "--for=condition=Finished", "--timeout=600s", seconds=630)
    status = (kube.get("rljob", NAME) or {})["status"]
    assert (status["state"], status["reason"]) == ("Failed", REASON), status
    assert all(word in status["message"] for word in WORDS), status["message"]
    assert [attempt["outcome"] for attempt in status["attempts"]] == ["Failed"]
    wait_for("an event", lambda: [event for event in kube.events(NAME) if event.get("reason") == REASON], 30)
    wait_for("the cluster is freed", lambda: not kube.find("rayclusters", f"rljob.dev/job={NAME}"), 60)
    kube.delete("rljob", NAME)
