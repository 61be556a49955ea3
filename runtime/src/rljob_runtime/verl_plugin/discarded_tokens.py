"""Tokens of answers that were generated in a step and not trained.

verl's metrics count groups that its replay buffer threw away (DAPO's filter, surplus, failures), not tokens. The buffer
knows each answer's length by its tag, until it clears the group: there we look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rljob_runtime.step_metrics import Tokens

if TYPE_CHECKING:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

Tag = Mapping[str, Any]


class DiscardedTokens:
    """Counts one step's."""

    def __init__(self) -> None:
        self._prompt = self._response = 0

    def watch(self, buffer: ReplayBuffer) -> None:
        """Count what the buffer clears from now on."""
        clear = getattr(buffer, "_clear_groups", None)
        if clear is None:
            return  # a sampler of the job's own

        def count_and_clear(partition_id: str, uids: set[str]) -> None:
            # Keys are <uid of the prompt>_<session>_<turn>, as verl reads them in _clear_groups.
            answers = buffer.partitions[partition_id]
            self.add(tag for key, tag in answers.items() if key.split("_")[0] in uids)
            clear(partition_id, uids)

        buffer._clear_groups = count_and_clear  # noqa: SLF001

    def add(self, tags: Iterable[Tag]) -> None:
        """Count answers by their tags; what has no length is no answer."""
        for tag in tags:
            self._prompt += int(tag.get("prompt_len", 0))
            self._response += int(tag.get("response_len", 0))

    def take(self) -> Tokens:
        """Give the step's, and begin anew."""
        counted = Tokens(self._prompt, self._response)
        self._prompt = self._response = 0
        return counted


def padded_rows(tags: Iterable[Tag]) -> int:
    """Count the rows that verl made up: they belong to no prompt."""
    return sum(bool(tag.get("is_padding", False)) for tag in tags)
