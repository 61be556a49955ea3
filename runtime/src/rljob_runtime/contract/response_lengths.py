"""The file of response lengths: the trainer writes that of a step, and `rljob plan` reads it.

A line is one response as JSON, in the order in which prompts were sent:

    {"prompt": "17", "response_tokens": 2311, "prompt_tokens": 98}

`prompt` is any text or number that the responses to one prompt share. `prompt_tokens` may be left out, and so may keys
that are not named here be added.
"""

from __future__ import annotations

import json

RESPONSES_MAX = 1 << 17
"""Responses of a step: sixteen times the largest published batch."""


def response_line(prompt: int, tokens: int, prompt_tokens: int) -> str:
    """Return the line of a response."""
    return json.dumps({"prompt": prompt, "response_tokens": tokens, "prompt_tokens": prompt_tokens}) + "\n"
