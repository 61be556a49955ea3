"""Writes to heads that are under way: bounded by namespace and in total."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from rljob.cluster.errors import HeadBusy
from rljob.control.head_writes import HeadWrites


def test_a_namespace_has_a_quarter_of_the_workers_and_all_have_three_quarters() -> None:
    writes = HeadWrites.of_workers(16)
    with ExitStack() as stack:
        for namespace in "abc":
            for _ in range(4):
                stack.enter_context(writes.under_way(namespace))
            with pytest.raises(HeadBusy, match=f"namespace {namespace}"), writes.under_way(namespace):
                raise AssertionError
        with pytest.raises(HeadBusy), writes.under_way("d"):
            raise AssertionError
    with writes.under_way("d"), writes.under_way("a"):
        pass


def test_one_worker_may_write() -> None:
    writes = HeadWrites.of_workers(1)
    with pytest.raises(RuntimeError), writes.under_way("a"):
        raise RuntimeError
    with writes.under_way("a"), pytest.raises(HeadBusy), writes.under_way("b"):
        raise AssertionError
