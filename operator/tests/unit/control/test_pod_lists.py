"""How often pods may be listed."""

from builders import at

from rljob.cluster.limiter import TokenBucket
from rljob.control.pod_lists import PodLists


def lists(capacity: int = 9) -> PodLists:
    return PodLists(TokenBucket(1.0, capacity, lambda: 0.0), TokenBucket(1.0, capacity, lambda: 0.0))


def test_a_job_that_starts_is_listed_no_oftener_than_it_is_worth() -> None:
    looks = lists()
    assert looks.try_take("a", at(0), 10.0)
    assert not looks.try_take("a", at(9), 10.0)
    assert looks.try_take("b", at(9), 10.0)
    assert looks.try_take("a", at(10), 10.0)


def test_what_must_be_known_now_waits_for_no_other_look() -> None:
    looks = lists()
    assert all(looks.try_take("a", at(0), every) for every in (10.0, 0.0, 0.0))
    assert not looks.try_take("a", at(5), 10.0)


def test_a_list_that_the_bound_of_all_refused_was_none() -> None:
    looks = lists(capacity=1)
    assert looks.try_take("a", at(0), 10.0)
    assert not looks.try_take("b", at(0), 10.0)
    assert "b" not in looks.last
