"""The order of prompts by the lengths of their responses: what earlier epochs measured decides who shares a batch.

A step of a synchronous run ends with its longest response, so prompts with responses of similar length waste least in
one batch. An epoch has the prompts that verl's shuffle drew, each once; only their order changes. Nothing is ordered
before a response was measured: the first epoch has verl's own order.

This module needs no torch. `ordered_loader` gives the order to verl's dataloader and keeps it in checkpoints.

Source: Length-Aware Resampler (hicann/cann-recipes-train, docs/features/length_aware_resampler.md). Its cap on the
length of responses is left out, because it changes what is trained.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verl.trainer.ppo.v1.replay_buffer import KVBatchMeta, ReplayBuffer

RETAINED = 0.7
"""Weight of the earlier estimate in a new one: ema_decay of the source's example."""
BUCKETS = 16
"""Of equal width up to the longest response: the source's bucket_size of 1,024 tokens, in its runs with 16,384."""
TRAINING = "train"
"""verl's partition of the samples of a step (trainer_base.py:569, 0.9.1); that of a validation is `val`."""
Tag = Mapping[str, Any]
Shuffle = Callable[[int], Sequence[int]]
"""Return a permutation of range(n)."""


def order_epoch(
    drawn: Sequence[int], expected: Mapping[int, float], batch: int, bucket_tokens: float, shuffle: Shuffle
) -> list[int]:
    """Return the prompts of an epoch, as rows of the dataset, in batches of responses of similar length.

    `drawn` is the epoch in verl's order. What does not fill a batch stays at its end, where verl drops it: otherwise
    the longest responses would never be trained. Within a bucket the order is verl's, so that batches differ between
    epochs. Prompts that were never measured share batches, beside the longest.
    """

    def bucket(row: int) -> float:
        tokens = expected.get(row)
        return math.inf if tokens is None else tokens // bucket_tokens

    whole = len(drawn) // batch * batch
    rows = sorted(drawn[:whole], key=bucket)
    batches = [rows[start : start + batch] for start in range(0, whole, batch)]
    return [row for number in shuffle(len(batches)) for row in batches[number]] + list(drawn[whole:])


class PromptOrder:
    """The expected lengths of one dataset's responses, and the order that follows from them."""

    def __init__(self, rows: int, batch: int, longest: int, *, learns: bool = True) -> None:
        """Prepare for a dataset of `rows` prompts, steps of `batch` prompts and responses of at most `longest` tokens.

        Without `learns`, only an epoch from a checkpoint keeps its order.
        """
        self.rows = rows
        self._batch = batch
        self._bucket_tokens = longest / BUCKETS
        self._learns = learns
        self._expected: dict[int, float] = {}
        self._drawn: dict[str, int] = {}

    def epoch(self, drawn: Sequence[int], shuffle: Shuffle) -> list[int] | None:
        """Return the order of a new epoch; None if nothing is known, so that verl's order remains."""
        if not self._expected:
            return None
        return order_epoch(drawn, self._expected, self._batch, self._bucket_tokens, shuffle)

    def draw(self, uids: Iterable[str], rows: Iterable[int]) -> None:
        """Note which prompts were drawn, by the ids that verl gives them for one step."""
        if self._learns:
            self._drawn.update(zip(map(str, uids), rows, strict=True))

    def watch(self, buffer: ReplayBuffer) -> None:
        """Measure what the replay buffer returns, and what it discards, from now on."""
        if not self._learns:
            return
        sample = buffer.sample

        def sample_and_measure(*place: Any, **named: Any) -> tuple[KVBatchMeta, dict[str, Any]]:  # noqa: ANN401 - verl's
            batch, metrics = sample(*place, **named)
            self.measure(zip(batch.keys, batch.tags, strict=True))
            if batch.partition_id == TRAINING:
                # A synchronous step draws no prompt after it, and samples no other group.
                self._drawn.clear()
            return batch, metrics

        buffer.sample = sample_and_measure
        clear = getattr(buffer, "_clear_groups", None)
        if clear is None:
            return  # a sampler of the job

        def measure_and_clear(partition_id: str, uids: set[str]) -> None:
            answers = buffer.partitions[partition_id]
            self.measure((key, tag) for key, tag in answers.items() if key.split("_")[0] in uids)
            clear(partition_id, uids)

        buffer._clear_groups = measure_and_clear  # noqa: SLF001

    def measure(self, answers: Iterable[tuple[str, Tag]]) -> None:
        """Update the estimates with responses of drawn prompts, by their keys <uid>_<session>_<turn> and their tags.

        Other prompts, of a validation for example, are left out. A session with several turns is one response.
        """
        sessions: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for key, tag in answers:
            uid, session, *_ = f"{key}_".split("_")
            if uid in self._drawn and "response_len" in tag:
                sessions[uid][session] += int(tag["response_len"])
        for uid, tokens in sessions.items():
            row, mean = self._drawn.pop(uid), sum(tokens.values()) / len(tokens)
            earlier = self._expected.get(row, mean)
            self._expected[row] = RETAINED * earlier + (1 - RETAINED) * mean

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: a copy, because the next step changes the estimates."""
        return {"rows": self.rows, "expected": dict(self._expected)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue with the estimates of a checkpoint."""
        if self._learns:
            self._expected = dict(state["expected"])
