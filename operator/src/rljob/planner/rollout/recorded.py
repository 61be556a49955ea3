"""Read a trace from a file of response lengths (`rljob_runtime.contract.response_lengths`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from rljob.planner.rollout.step_time import Origin
from rljob.planner.rollout.traces import RolloutRequest, Trace
from rljob_runtime.contract.response_lengths import RESPONSES_MAX

TOKENS_MAX = 1 << 24
"""Tokens of a response or a prompt."""
LINE_MAX = 1 << 16
"""Characters of a line, which has about a hundred."""
EXAMPLE = '{"prompt": "17", "response_tokens": 2311, "prompt_tokens": 98}'


class TraceError(ValueError):
    """A trace cannot be read; the message says where and why."""


def read_trace(name: str, lines: Iterable[str]) -> Trace:
    """Return the trace of a file's lines. Raise TraceError with the number of the line that is wrong.

    Responses to one prompt become adjacent, at the place of the prompt's first one.
    """
    groups: dict[str, list[tuple[int, int]]] = {}
    for count, (prompt, tokens, prompt_tokens) in enumerate(_responses(name, lines)):
        if count == RESPONSES_MAX:
            raise TraceError(f"{name}: more than {RESPONSES_MAX:,} responses; pass those of a single step")
        groups.setdefault(prompt, []).append((tokens, prompt_tokens))
    if not groups:
        raise TraceError(f"{name}: no responses; each line is one, such as {EXAMPLE}")
    requests = tuple(
        RolloutRequest(number, tokens, prompt_tokens)
        for number, group in enumerate(groups.values())
        for tokens, prompt_tokens in group
    )
    return Trace(name, requests, Origin.MEASURED, f"{len(requests):,} recorded responses of {name}")


def _responses(name: str, lines: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    for number, line in enumerate(lines, 1):
        place = f"{name}, line {number}"
        if len(line) > LINE_MAX:
            raise TraceError(f"{place}: longer than {LINE_MAX:,} characters; each line is one response")
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"{place}: not JSON: {error}; each line is one response, such as {EXAMPLE}") from error
        if not isinstance(document, dict) or "prompt" not in document:
            raise TraceError(f"{place}: no object with the key prompt; each line is one response, such as {EXAMPLE}")
        prompt = document["prompt"]
        if isinstance(prompt, bool) or not isinstance(prompt, str | int):
            raise TraceError(f"{place}: prompt is neither text nor a whole number; use the prompt's number or id")
        tokens = _tokens(document, "response_tokens", place)
        yield str(prompt), max(1, tokens), _tokens(document, "prompt_tokens", place, 0)


def _tokens(document: dict[str, object], key: str, place: str, default: int | None = None) -> int:
    value = document.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= TOKENS_MAX:
        raise TraceError(f"{place}: {key} is not a whole number from 0 to {TOKENS_MAX:,}; write the tokens' number")
    return value
