"""Clusters that a former leader created too late are deleted, and nothing else."""

from __future__ import annotations

from builders import Json, cluster, decide, job, saving, seen, small_spec, status_recorded, status_submitted

from rljob.core.plan import DeleteObject


def ended() -> Json:
    status = status_recorded()
    return {**status, "intent": {**status["intent"], "ended": True}}


def deleted(**metadata: str) -> list[str]:
    found = cluster()
    found["metadata"] |= metadata
    effects = decide(seen(job(small_spec(saving({"suspend": True})), ended()), clusters=(found,))).effects
    return [effect.name for effect in effects if isinstance(effect, DeleteObject)]


def test_a_cluster_between_two_generations_is_deleted() -> None:
    assert deleted() == ["sums-0a1b2-1"]


def test_one_that_is_leaving_already_is_not_deleted_twice() -> None:
    assert deleted(deletionTimestamp="2026-01-01T12:00:00Z") == []


def test_the_cluster_of_a_generation_under_way_is_not_touched() -> None:
    assert decide(seen(job(status=status_submitted()), clusters=(cluster(ready=1),))).effects == ()
