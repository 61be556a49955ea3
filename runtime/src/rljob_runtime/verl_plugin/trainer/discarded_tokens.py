"""Count tokens of responses that were generated in a step but not trained.

verl's metrics count the groups that its replay buffer discards (DAPO's filter, surplus, failures), not tokens. The
buffer stores each response's length in its tag until it clears the group, so the tokens are counted at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rljob_runtime.spool.step_metrics import Tokens

if TYPE_CHECKING:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

Tag = Mapping[str, Any]


class DiscardedTokens:
    """Counts the discarded tokens of one step."""

    def __init__(self) -> None:
        self._prompt = self._response = 0

    def watch(self, buffer: ReplayBuffer) -> None:
        """Count what the buffer clears from now on."""
        clear = getattr(buffer, "_clear_groups", None)
        if clear is None:
            return  # a sampler of the job

        def count_and_clear(partition_id: str, uids: set[str]) -> None:
            # Keys are <uid of the prompt>_<session>_<turn>, as verl parses them in _clear_groups.
            answers = buffer.partitions[partition_id]
            self.add(tag for key, tag in answers.items() if key.split("_")[0] in uids)
            clear(partition_id, uids)

        buffer._clear_groups = count_and_clear  # noqa: SLF001

    def add(self, tags: Iterable[Tag]) -> None:
        """Count responses by their tags. An entry without length is not a response."""
        for tag in tags:
            self._prompt += int(tag.get("prompt_len", 0))
            self._response += int(tag.get("response_len", 0))

    def take(self) -> Tokens:
        """Return the counts of the step and reset them."""
        counted = Tokens(self._prompt, self._response)
        self._prompt = self._response = 0
        return counted


def padded_rows(tags: Iterable[Tag]) -> int:
    """Count the padding rows that verl added, which belong to no prompt."""
    return sum(bool(tag.get("is_padding", False)) for tag in tags)
