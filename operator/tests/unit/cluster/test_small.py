"""Small modules: limiter, token, kinds."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
from doubles.clock import FrozenClock
from hypothesis import given
from hypothesis import strategies as st

from rljob.cluster.kinds import KINDS, LEASE, POD, RAY_CLUSTER, kind_named
from rljob.cluster.limiter import TimeShare, TokenBucket
from rljob.cluster.manifests import same_json, without_fields, without_nulls
from rljob.cluster.token import TokenKey

if TYPE_CHECKING:
    from pathlib import Path


async def test_the_limiter_grants_a_burst_and_then_its_rate_in_order() -> None:
    clock, slept = FrozenClock(), list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    bucket = TokenBucket(10, 3, clock.monotonic, sleep)
    assert [await bucket.take() for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    assert slept == pytest.approx([0.1, 0.2])
    clock.advance(60)
    assert [await bucket.take() for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


def test_requests_that_can_wait_take_their_share_of_a_servers_time() -> None:
    clock = FrozenClock()
    time = TimeShare(0.1, 2.0, 60.0, clock.monotonic)

    def ask(seconds: float) -> None:
        with time.timed():
            clock.advance(seconds)

    for _ in range(100):
        assert time.has_room()
        ask(0.02)
        clock.advance(0.2)
    ask(1.5)
    assert time.has_room(), "unused time accumulates"
    with time.timed():
        assert not time.has_room(), "a running request counts like the previous one"
    assert time.has_room(), "it took no time"
    ask(300.0)
    clock.advance(59)
    assert not time.has_room()
    clock.advance(1.1)
    assert time.has_room(), "no pause is longer than a minute"


def test_a_token_belongs_to_one_job_and_one_cluster() -> None:
    key = TokenKey(b"k" * 32)
    tokens = {key.token(job, cluster) for job, cluster in [("j1", "c1"), ("j1", "c2"), ("j2", "c1"), ("j1c", "1")]}
    assert len(tokens) == 4
    assert key.token("j1", "c1") == TokenKey(b"k" * 32).token("j1", "c1")
    assert key.token("j1", "c1") != TokenKey(b"x" * 32).token("j1", "c1")


def test_a_key_that_is_short_or_absent_is_refused_and_never_shown(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 32"):
        TokenKey(b"short")
    with pytest.raises(ValueError, match="mount its Secret"):
        TokenKey.from_file(tmp_path / "none")
    assert "kkkk" not in repr(TokenKey(b"k" * 32, TokenKey(b"k" * 33)))


def test_the_previous_key_is_beside_the_current_one(tmp_path: Path) -> None:
    file, previous = tmp_path / "key", tmp_path / "previous"
    file.write_bytes(b"n" * 32)
    assert TokenKey.from_file(file) == TokenKey(b"n" * 32)
    previous.write_bytes(b"o" * 32)
    assert TokenKey.from_file(file) == TokenKey(b"n" * 32, TokenKey(b"o" * 32))
    assert TokenKey.from_file(file).token("j1", "c1") == TokenKey(b"n" * 32).token("j1", "c1")
    previous.write_bytes(b"short")
    with pytest.raises(ValueError, match="at least 32"):
        TokenKey.from_file(file)


def test_a_kind_knows_its_path() -> None:
    assert POD.path("team", "head") == "/api/v1/namespaces/team/pods/head"
    assert POD.path(None) == "/api/v1/pods"
    assert RAY_CLUSTER.path("team", "c1", "status") == "/apis/ray.io/v1/namespaces/team/rayclusters/c1/status"
    assert RAY_CLUSTER.path("team", "a/b") == "/apis/ray.io/v1/namespaces/team/rayclusters/a%2Fb"
    assert LEASE.resource == "leases.coordination.k8s.io"
    assert all(kind_named(*names) is kind for names, kind in KINDS.items())


def test_an_unknown_kind_says_where_to_add_it() -> None:
    with pytest.raises(ValueError, match="add a row"):
        kind_named("v1", "Nothing")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_dropping_nulls_twice_is_dropping_them_once(value: object) -> None:
    assert same_json(without_nulls(without_nulls(value)), without_nulls(value))


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": 2}, False),
        ([1, 2], [2, 1], False),
    ],
)
def test_the_same_json_has_the_same_text_whatever_the_order_of_its_keys(
    left: object, right: object, *, same: bool
) -> None:
    assert same_json(left, right) is same


def test_fields_are_left_out_and_the_original_stays_whole() -> None:
    group = {"groupName": "a", "template": {"spec": {}}}
    whole: dict[str, object] = {
        "metadata": {"name": "a", "managedFields": [1]},
        "spec": {"groups": [group, "odd"], "kept": 1},
    }
    before = copy.deepcopy(whole)
    paths = (("metadata", "managedFields"), ("spec", "groups", "*", "template"), ("spec", "absent", "deeper"), ("no",))
    assert without_fields(whole, paths) == {
        "metadata": {"name": "a"},
        "spec": {"groups": [{"groupName": "a"}, "odd"], "kept": 1},
    }
    assert whole == before


def test_a_token_that_is_not_there_may_be_done_without() -> None:
    clock = FrozenClock()
    bucket = TokenBucket(2, 1, clock.monotonic)
    assert [bucket.try_take(), bucket.try_take()] == [True, False]
    clock.advance(0.5)
    assert bucket.try_take()
