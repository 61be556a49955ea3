"""The order of prompts by the lengths of their responses: which batches it makes, and what it learns from a step."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rljob_runtime.verl_plugin.trainer.prompt_order import BUCKETS, RETAINED, PromptOrder, order_epoch

LONGEST = 1600
WIDTH = LONGEST / BUCKETS
TRAIN, VALIDATION = "train", "val"


def keep(length: int) -> Sequence[int]:
    return range(length)


def reverse(length: int) -> Sequence[int]:
    return range(length - 1, -1, -1)


class Buffer:
    """A replay buffer of verl's: what it holds, by partition."""

    def __init__(self) -> None:
        self.partitions: dict[str, dict[str, Mapping[str, Any]]] = {}
        self.cleared: list[set[str]] = []

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
        held = self.partitions[partition_id]
        keys = [key for key in held if key.split("_")[0] not in set().union(*self.cleared)][:batch_size]
        batch = SimpleNamespace(partition_id=partition_id, keys=keys, tags=[held[key] for key in keys])
        return batch, {"step": global_steps}

    def _clear_groups(self, partition_id: str, uids: set[str]) -> None:
        assert partition_id in self.partitions
        self.cleared.append(uids)


def responses(**lengths: int) -> dict[str, Mapping[str, Any]]:
    return {key: {"response_len": tokens} for key, tokens in lengths.items()}


def sampled(buffer: Buffer, partition: str = TRAIN) -> dict[str, Any]:
    return buffer.sample(global_steps=3, partition_id=partition, batch_size=100)[1]


def test_prompts_with_responses_of_similar_length_share_a_batch() -> None:
    expected = {0: 1500.0, 1: 20.0, 2: 1450.0, 3: 50.0, 4: 700.0, 5: 750.0}
    order = order_epoch([5, 0, 1, 2, 3, 4], expected, 2, WIDTH, keep)
    assert [set(order[start : start + 2]) for start in (0, 2, 4)] == [{1, 3}, {4, 5}, {0, 2}]
    assert order_epoch([5, 0, 1, 2, 3, 4], expected, 2, WIDTH, reverse) == [2, 0, 5, 4, 1, 3]


def test_prompts_of_one_bucket_keep_the_order_in_which_verl_drew_them() -> None:
    expected = {row: 10.0 + row for row in range(6)}
    assert order_epoch([5, 3, 1, 0, 2, 4], expected, 2, WIDTH, keep) == [5, 3, 1, 0, 2, 4]
    assert order_epoch([0, 1, 2, 3, 4, 5], expected, 2, WIDTH, keep) == [0, 1, 2, 3, 4, 5]


def test_the_rest_that_verl_drops_is_the_one_that_it_would_have_dropped() -> None:
    expected = {row: 100.0 * row for row in range(8)}
    assert order_epoch([7, 6, 5, 4, 3, 2, 1, 0], expected, 3, WIDTH, keep) == [2, 3, 4, 5, 6, 7, 1, 0]


def test_prompts_that_were_never_measured_share_batches_beside_the_longest() -> None:
    assert order_epoch([3, 2, 1, 0], {1: 5.0, 3: 1500.0}, 2, WIDTH, keep) == [1, 3, 2, 0]


@given(
    rows=st.integers(1, 60),
    batch=st.integers(1, 16),
    seed=st.integers(0, 1000),
    lengths=st.dictionaries(st.integers(0, 59), st.floats(0, 2 * LONGEST)),
)
def test_an_epoch_has_every_prompt_once_and_the_prompts_of_verls_batches(
    rows: int, batch: int, seed: int, lengths: dict[int, float]
) -> None:
    chance = random.Random(seed)  # noqa: S311 - a reproducible shuffle
    drawn = chance.sample(range(rows), rows)
    order = order_epoch(drawn, lengths, batch, WIDTH, lambda count: chance.sample(range(count), count))
    assert sorted(order) == list(range(rows))
    whole = rows // batch * batch
    assert set(order[:whole]) == set(drawn[:whole])
    assert order[whole:] == drawn[whole:]


def test_nothing_changes_before_a_response_was_measured() -> None:
    assert PromptOrder(4, 2, LONGEST).epoch([3, 1, 0, 2], reverse) is None


def test_what_a_step_measured_orders_the_next_epoch() -> None:
    order, buffer = PromptOrder(4, 2, LONGEST), Buffer()
    order.watch(buffer)
    order.draw(["a", "b", "c", "d"], [0, 1, 2, 3])
    buffer.partitions[TRAIN] = responses(a_0_0=1500, a_1_0=1300, b_0_0=10, c_0_0=1400, d_0_0=30)
    assert sampled(buffer) == {"step": 3}
    assert order.state() == {"rows": 4, "expected": {0: 1400.0, 1: 10.0, 2: 1400.0, 3: 30.0}}
    assert order.epoch([0, 1, 2, 3], keep) == [1, 3, 0, 2]


def test_an_estimate_is_a_moving_average() -> None:
    order = PromptOrder(1, 1, LONGEST)
    for uid, tokens in (("a", 100), ("b", 200)):
        order.draw([uid], [0])
        order.measure([(f"{uid}_0_0", {"response_len": tokens})])
    assert order.state()["expected"] == {0: pytest.approx(RETAINED * 100 + (1 - RETAINED) * 200)}


def test_a_session_of_several_turns_is_one_response() -> None:
    order = PromptOrder(1, 1, LONGEST)
    order.draw(["a"], [0])
    turns = {"a_0_0": 10, "a_0_1": 30, "a_1_0": 60}
    order.measure((key, {"response_len": tokens}) for key, tokens in turns.items())
    assert order.state()["expected"] == {0: 50.0}


def test_responses_that_the_buffer_discards_are_measured() -> None:
    # DAPO's filter, or more prompts than the step needed.
    order, buffer = PromptOrder(4, 1, LONGEST), Buffer()
    order.watch(buffer)
    order.draw(["a", "b"], [0, 1])
    buffer.partitions[TRAIN] = responses(a_0_0=100, b_0_0=200)
    buffer._clear_groups(TRAIN, {"a"})
    assert buffer.cleared == [{"a"}]
    assert order.state()["expected"] == {0: 100.0}
    sampled(buffer)
    assert order.state()["expected"] == {0: 100.0, 1: 200.0}


def test_a_validation_and_baselines_teach_nothing_and_lose_nothing() -> None:
    order, buffer = PromptOrder(4, 1, LONGEST), Buffer()
    order.watch(buffer)
    order.draw(["a"], [2])
    buffer.partitions = {VALIDATION: responses(v_0_0=7), TRAIN: responses(a_0_0=100) | {"a_1_0": {}}}
    sampled(buffer, VALIDATION)
    assert order.state()["expected"] == {}
    sampled(buffer)
    assert order.state()["expected"] == {2: 100.0}


def test_a_prompt_without_a_response_is_forgotten_after_its_step() -> None:
    order, buffer = PromptOrder(4, 1, LONGEST), Buffer()
    order.watch(buffer)
    order.draw(["a", "failed"], [0, 1])
    buffer.partitions[TRAIN] = responses(a_0_0=100)
    sampled(buffer)
    buffer.partitions[TRAIN] = responses(failed_0_0=100)
    sampled(buffer)
    assert order.state()["expected"] == {0: 100.0}


def test_a_replay_buffer_of_the_job_is_watched_as_far_as_it_can_be() -> None:
    order = PromptOrder(4, 1, LONGEST)
    batch = SimpleNamespace(partition_id=TRAIN, keys=["a_0_0"], tags=[{"response_len": 5}])
    buffer = SimpleNamespace(sample=lambda *_: (batch, {}))
    order.watch(buffer)
    order.draw(["a"], [0])
    buffer.sample(1, TRAIN, 1)
    assert order.state()["expected"] == {0: 5.0}


def test_the_state_before_a_step_is_not_changed_by_the_step() -> None:
    order = PromptOrder(4, 1, LONGEST)
    before = order.state()
    order.draw(["a"], [0])
    order.measure([("a_0_0", {"response_len": 5})])
    assert before["expected"] == {}
    later = PromptOrder(4, 1, LONGEST)
    later.load(order.state())
    assert later.state() == order.state()


def test_a_run_without_the_order_neither_learns_nor_orders() -> None:
    order, buffer = PromptOrder(2, 1, LONGEST, learns=False), Buffer()
    order.watch(buffer)
    order.load({"rows": 2, "expected": {0: 5.0}})
    order.draw(["a"], [0])
    buffer.partitions[TRAIN] = responses(a_0_0=100)
    sampled(buffer)
    assert order.epoch([1, 0], keep) is None
