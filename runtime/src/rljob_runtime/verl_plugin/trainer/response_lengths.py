"""The lengths of a batch's responses, as `rljob plan rollout --trace` reads them.

verl stores both lengths in the tag of each response (agent_loop_tq.py:195-210, 0.9.1), and its key begins with the uid
of its prompt. A line is one response; prompts are numbered in the order in which the sampled batch has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rljob_runtime.contract.response_lengths import RESPONSES_MAX, response_line

Tag = Mapping[str, Any]


def lines(keys: Sequence[str], tags: Sequence[Tag]) -> Iterator[str]:
    """Yield a line for each response, without padding rows, and no more than a trace may have."""
    numbers: dict[str, int] = {}
    for key, tag in list(zip(keys, tags, strict=True))[:RESPONSES_MAX]:
        if "response_len" in tag and not tag.get("is_padding", False):
            number = numbers.setdefault(key.split("_")[0], len(numbers))
            yield response_line(number, int(tag["response_len"]), int(tag.get("prompt_len", 0)))
