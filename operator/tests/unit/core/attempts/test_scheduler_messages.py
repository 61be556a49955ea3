"""The words of kube-scheduler in plain English."""

from __future__ import annotations

import pytest

from rljob.core.attempts.scheduler_messages import explained


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("2 Insufficient cpu. no new claims to deallocate, preemption: 0/9 nodes …", "2 with too little cpu free"),
        ("1 node(s) were unschedulable.", "1 cordoned"),
        (
            "3 node(s) didn't match pod affinity rules.",
            "3 outside of the domain of its other pods",
        ),
        ("1 something new.", "1 something new"),
    ],
)
def test_the_schedulers_words_are_translated(said: str, sentence: str) -> None:
    assert explained(f"0/9 nodes are available: {said}") == f"none of 9 nodes can run it: {sentence}"


@pytest.mark.parametrize("head", ["", "0/9 nodes are available: "])
@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ('persistentvolumeclaim "data" not found. preemption: 0/9 nodes …', "claim data does not exist in the name"),
        ('persistentvolumeclaim "data" is being deleted', "claim data is being deleted; create a claim, or name"),
        ('persistentvolumeclaim "data" bound to non-existent persistentvolume "v"', "volume v of the claim data no"),
        ("pod has unbound immediate PersistentVolumeClaims. not found", "`kubectl get pvc` shows which"),
    ],
)
def test_a_claim_that_no_node_can_mount_is_named_with_the_fix(head: str, said: str, sentence: str) -> None:
    assert sentence in explained(head + said).replace("PersistentVolumeClaim ", "claim ")


def test_other_words_of_the_scheduler_are_passed_on() -> None:
    said = "running PreBind plugin failed"
    assert explained(said) == f"the scheduler reports: {said}"
    assert explained(" ") == "the scheduler reports: no reason"
