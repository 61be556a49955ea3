"""Keeps the ledger of prompts in step with verl's replay buffer and with TransferQueue.

The buffer decides which prompts are sampled, dropped and replaced, each in one method (replay_buffer.py, 0.9.1); the
ledger follows these methods. A prompt whose rollout or reward failed is tried again before the buffer may replace it:
as released, verl skips it for ever.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import transfer_queue as tq

from rljob_runtime.checkpoints import prompt_ledger
from rljob_runtime.checkpoints.prompt_ledger import Dropped, LedgerMismatchError, PromptLedger, strays
from rljob_runtime.spool import prompt_metrics

if TYPE_CHECKING:
    from pathlib import Path

    from verl.trainer.ppo.v1.replay_buffer import KVBatchMeta, ReplayBuffer

    from rljob_runtime.verl_plugin.trainer.discarded_tokens import DiscardedTokens

TRAINING = "train"
"""verl's partition of the queue."""
Tags = Mapping[str, Mapping[str, Any]]
Reasons = tuple[set[str], set[str], set[str], Any]
"""Of an eviction: stale, filtered and failed prompts, and verl's counts of scores."""


class PromptFlow:
    """The prompts of one attempt."""

    def __init__(self, resubmit: Callable[[Sequence[str]], None], discarded: DiscardedTokens) -> None:
        self.ledger = PromptLedger()
        self._resubmit = resubmit
        self._discarded = discarded
        self._sampled: list[str] = []
        """Prompts of the updates of this step."""
        self._trained: set[str] = set()
        """Prompts and paddings of the last batch, whose responses stay in the queue until after its save."""
        self._lost = 0
        self._kept: set[str] = set()
        """Prompts whose responses the last completed step has."""

    def begin_step(self) -> None:
        """Forget the batch of the step before."""
        self._trained, self._lost, self._sampled = set(), 0, []

    @property
    def lost(self) -> int:
        """Return how many prompts were given up in this step because they failed."""
        return self._lost

    def watch(self, buffer: ReplayBuffer) -> None:
        """Follow what the buffer samples and drops from now on, and let it keep prompts that are tried again."""
        reasons, evict = buffer._terminal_eviction_reasons, buffer._evict_terminal_groups  # noqa: SLF001 - it has no other access
        materialize = buffer._materialize_batch  # noqa: SLF001 - as above

        def find(global_steps: int, partition_id: str) -> Reasons:
            stale, filtered, failed, counts = reasons(global_steps, partition_id)
            again = {uid for uid in failed if partition_id == TRAINING and self.ledger.may_retry(uid)}
            if again:
                self._try_again(buffer, sorted(again))
            return stale, filtered, failed - again, counts

        def drop(global_steps: int, partition_id: str, found: Reasons) -> Any:  # noqa: ANN401 - verl's
            result = evict(global_steps, partition_id, found)
            if partition_id == TRAINING:
                self._dropped(found)
            return result

        def sample(partition_id: str, uids: list[str], snapshot: Tags) -> KVBatchMeta:
            if partition_id == TRAINING:
                self._sampled += uids
            return materialize(partition_id, uids, snapshot)

        buffer._terminal_eviction_reasons = find  # noqa: SLF001
        buffer._evict_terminal_groups = drop  # noqa: SLF001
        buffer._materialize_batch = sample  # noqa: SLF001

    def _try_again(self, buffer: ReplayBuffer, uids: list[str]) -> None:
        answers = buffer.partitions[TRAINING]
        keys = [key for key in answers if key.split("_", 1)[0] in uids]
        self._discarded.add(answers.pop(key) for key in keys)
        if keys:
            tq.kv_clear(keys=keys, partition_id=TRAINING)
        # Until the buffer looks again, it must not take them for prompts that have ended.
        buffer.failure_keys[TRAINING].difference_update(uids)
        self._resubmit(uids)
        self.ledger.retry(uids)

    def _dropped(self, found: Reasons) -> None:
        stale, filtered, failed, _ = found
        self.ledger.drop(sorted(stale), Dropped.STALE)
        self.ledger.drop(sorted(filtered - stale), Dropped.FILTERED)
        self.ledger.drop(sorted(lost := failed - filtered - stale), Dropped.FAILED)
        self._lost += len(lost)

    def fetched(self, uids: Iterable[str], epoch: int, rows: Iterable[int]) -> None:
        """Note prompts that the loader gave."""
        for uid, row in zip(map(str, uids), rows, strict=True):
            self.ledger.fetch(uid, epoch, row)

    def trained(self, keys: Iterable[str]) -> None:
        """Note the prompts that the buffer gave the step; `keys` are those of the trained rows."""
        self.ledger.train(self._sampled)
        self._trained = {*self._sampled, *(key.split("_", 1)[0] for key in keys)}
        self._sampled = []

    def resume(self, step: Path, drawn: int) -> None:
        """Continue the ledger of a step whose queue was loaded. Raises LedgerMismatchError if they do not agree."""
        ledger, items = prompt_ledger.read(step), queue_items()
        prompts = prompts_of(items)
        if left := strays(items, prompts):
            tq.kv_clear(keys=left, partition_id=TRAINING)
        if found := ledger.problems(prompts, (), drawn):
            raise LedgerMismatchError(f"{step}: {'; '.join(found)}")
        self.ledger, self._kept = ledger, ended(prompts)
        told = f"{len(prompts)} prompts are in flight; {len(left)} responses of trained prompts were removed"
        print(f"rljob: {told}", file=sys.stderr, flush=True)  # noqa: T201

    def seal(self, step: Path, drawn: int) -> None:
        """Complete the folder of a step. Raises LedgerMismatchError if its parts do not agree."""
        items = queue_items()
        prompts = prompts_of(items)
        if found := self.ledger.problems(prompts, strays(items, prompts.keys() | self._trained), drawn):
            raise LedgerMismatchError("; ".join(found))
        prompt_ledger.write(step, self.ledger, prompts)
        self.ledger.completed()
        self._kept = ended(prompts)

    def has_news(self) -> bool:
        """Return whether prompts have ended whose responses the last completed step lacks."""
        return bool(ended(prompts_of(queue_items())) - self._kept)

    def figures(self, batch: KVBatchMeta, step: int, drawn: int) -> dict[str, float]:
        """Return the metrics of a step."""
        prompts = prompts_of(queue_items())
        # A contradiction keeps steps from being saved, also where the sums agree.
        unaccounted = max(self.ledger.unaccounted(prompts, drawn), len(self.ledger.faults))
        return (
            prompt_metrics.staleness(batch.tags, step)
            | prompt_metrics.queue(prompts.values(), step)
            | prompt_metrics.prompts(self.ledger, unaccounted)
        )


def queue_items() -> dict[str, dict[str, Any]]:
    """Return the tags of prompts and responses in the queue, by key."""
    items: dict[str, dict[str, Any]] = (tq.kv_list(partition_id=TRAINING) or {}).get(TRAINING, {})
    return items


def prompts_of(items: Tags) -> dict[str, Mapping[str, Any]]:
    """Return the tags of the prompts, by uid."""
    return {key: tag for key, tag in items.items() if tag.get("is_prompt", False)}


def ended(prompts: Tags) -> set[str]:
    """Return the prompts whose responses are all there."""
    return {uid for uid, tag in prompts.items() if tag.get("status") == "finished"}
