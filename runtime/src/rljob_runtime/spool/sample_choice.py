"""Which answers of a step are recorded, and how much of them. Pure."""

from __future__ import annotations

import hashlib
import math
import numbers
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

from rljob_runtime.contract import legible
from rljob_runtime.contract.samples import PART_CHARACTERS, PARTS_MAX, shortened

T = TypeVar("T", bound=Hashable)
Tag = Mapping[str, Any]
SCORE = "score"


def final_answers(keys: Sequence[str], tags: Sequence[Tag]) -> dict[str, Tag]:
    """Return key and tag of the last answer of each session, without padding rows, in verl's order.

    Keys are <uid of the prompt>_<session>_<turn> (verl/trainer/ppo/v1/trainer_base.py, _validate, 0.9.1).
    """
    found: dict[str, tuple[int, str, Tag]] = {}
    for key, tag in zip(keys, tags, strict=True):
        session, _, turn = key.rpartition("_")
        if tag.get("is_padding", False) or not turn.isdigit():
            continue
        if session not in found or int(turn) > found[session][0]:
            found.pop(session, None)
            found[session] = (int(turn), key, tag)
    return {key: tag for _, key, tag in found.values()}


def by_score(scores: Mapping[T, float], longest: T | None, count: int) -> list[T]:
    """Return at most `count` answers: from the best to the worst, evenly spread over their order, and the longest."""
    order = sorted(scores, key=lambda each: -scores[each] if math.isfinite(scores[each]) else math.inf)
    room = min(len(order), max(1, count - 1 if longest is not None else count))
    places = {round(index * (len(order) - 1) / max(1, room - 1)) for index in range(room)}
    chosen = [order[place] for place in sorted(places)]
    return chosen if longest is None or longest in chosen or len(chosen) >= count else [*chosen, longest]


def same_prompts(prompts: Sequence[str], count: int) -> list[int]:
    """Return the places of `count` prompts: the same prompts whenever the same list is given, in whatever order."""
    places: dict[str, int] = {}
    for place, prompt in enumerate(prompts):
        places.setdefault(prompt, place)
    digests = {hashlib.sha256(prompt.encode(errors="replace")).digest(): place for prompt, place in places.items()}
    return [digests[key] for key in sorted(digests)[:count]]


def parts_of(reward: Mapping[str, object]) -> dict[str, float | str | bool]:
    """Return the entries of a reward's dict beside its score: numbers and short texts."""
    found: dict[str, float | str | bool] = {}
    for key, value in reward.items():
        if key == SCORE or len(found) == PARTS_MAX:
            continue
        kept = _part(value)
        if kept is not None:
            found[legible(str(key)[:PART_CHARACTERS])] = kept
    return found


def _part(value: object) -> float | str | bool | None:
    # Scalars of numpy become those of Python.
    plain = value.item() if hasattr(value, "item") and not hasattr(value, "__len__") else value
    if isinstance(plain, bool):
        return plain
    if isinstance(plain, str):
        return shortened(plain, PART_CHARACTERS)
    try:
        number = float(plain) if isinstance(plain, numbers.Real) else math.nan
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
