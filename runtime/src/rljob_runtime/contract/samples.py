"""Samples of what the model answers: the trainer writes a file per recorded step, and `rljob samples` reads it.

A line is one answer. Its texts are those of the model and of the user's data, so readers must escape them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from rljob_runtime.contract import codec

PARTS_MAX = 16
"""Entries of a reward's dict that a sample keeps."""
PART_CHARACTERS = 200
"""Characters of such an entry, and of the right answer that the data states."""
CUT = "\n[... {count} characters are left out ...]\n"


@dataclass(frozen=True)
class SampleSettings:
    """What is recorded."""

    every_steps: int = 10
    """Also recorded are the first step of an attempt, the last step and every validation. 0 records nothing."""
    per_step: int = 8
    max_characters: int = 4000
    """Of a prompt, and of an answer. A longer one lacks its middle."""


class SampleSource(enum.StrEnum):
    """Where an answer comes from."""

    ROLLOUT = "rollout"
    """From the batch that the step trains."""
    VALIDATION = "validation"


class Finish(enum.StrEnum):
    """How an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    """It is as long as `trainer.maxResponseTokens` allows."""


@dataclass(frozen=True)
class Sample:
    """One answer."""

    step: int
    source: SampleSource
    prompt: str
    answer: str
    score: float | None = None
    """Sum of the reward over the answer's tokens; None for NaN."""
    parts: dict[str, float | str | bool] = field(default_factory=dict)
    """Other entries of the dict that the reward function returned."""
    reference: str | None = None
    """The right answer according to the data; unknown of a validation."""
    data_source: str | None = None
    tokens: int | None = None
    """Length of the answer."""
    prompt_tokens: int | None = None
    finish: Finish | None = None
    turns: int | None = None
    """Messages of the conversation; 2 without calls of tools."""

    def to_json(self) -> bytes:
        """Return canonical bytes, without a line end."""
        return codec.dumps(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Sample:
        """Read one, leniently. Raises ContractError."""
        return codec.loads(cls, data, strict=False)


def sample_file(step: int, source: SampleSource) -> str:
    """Return the name of a step's file, which sorts by step."""
    return f"{step:09d}-{source.value}.jsonl"


def shortened(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters besides the mark in place of its middle."""
    if len(text) <= limit:
        return text
    head = limit // 2
    return text[:head] + CUT.format(count=len(text) - limit) + text[len(text) - (limit - head) :]
