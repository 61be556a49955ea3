"""The report's section with answers of the model: best, worst, longest, the same prompt over the run, by step. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from rljob.api.printing import printable
from rljob.reading.samples import Recorded, best_first, facts
from rljob_runtime.contract import SampleSource
from rljob_runtime.contract.samples import shortened

SHOWN = 5
"""Answers, or prompts, of each part but the last."""
OF_STEP = 8
"""Answers of a step: from both ends of their order."""
TITLE = 80
"""Characters from the end of a prompt, where prompts of a chat differ."""
CHARACTERS = 700
"""Of each text, so that a page with 200 answers stays below half a megabyte, or below two where every character is
escaped."""


def tables(found: Sequence[Recorded]) -> str:
    """Return HTML with the parts of the section, all of which can be opened."""
    rollout = [each for each in found if each.sample.source is SampleSource.ROLLOUT]
    scored = [each for each in best_first(rollout) if each.sample.score is not None]
    longest = sorted(rollout, key=lambda each: -(each.sample.tokens or 0))
    parts = [
        ("Best", _answers(_by_prompt(scored)[:SHOWN])),
        ("Worst", _answers(_by_prompt(sorted(scored, key=_lowest_first))[:SHOWN])),
        ("Longest", _answers(longest[:SHOWN])),
        ("The same prompt over the run", "".join(_prompts(found))),
        ("By step", "".join(_steps(found))),
    ]
    return "".join(_closed(title, body) for title, body in parts if body) + (
        "<p>Texts are shortened; <code>rljob samples</code> has them as they were recorded.</p>"
    )


def _lowest_first(each: Recorded) -> tuple[float, int]:
    return each.sample.score or 0.0, -each.sample.step


def _by_prompt(found: Sequence[Recorded]) -> list[Recorded]:
    """Return the first answer to each prompt."""
    first: dict[str, Recorded] = {}
    for each in found:
        first.setdefault(each.sample.prompt, each)
    return list(first.values())


def _prompts(found: Sequence[Recorded]) -> Iterator[str]:
    """Yield prompts that were answered in several steps, those of validations first."""
    by_prompt: dict[str, dict[int, Recorded]] = {}
    for each in sorted(found, key=lambda each: (each.sample.source is SampleSource.ROLLOUT, each.sample.step)):
        by_prompt.setdefault(each.sample.prompt, {}).setdefault(each.sample.step, each)
    several = [(prompt, own) for prompt, own in by_prompt.items() if len(own) > 1]
    for prompt, own in several[:SHOWN]:
        yield _closed(" ".join(prompt.split())[-TITLE:] or "(empty)", _answers(list(own.values()), prompt=False))


def _steps(found: Sequence[Recorded]) -> Iterator[str]:
    def step(each: Recorded) -> tuple[int, SampleSource]:
        return each.sample.step, each.sample.source

    for (number, source), own in groupby(sorted(found, key=step), step):
        order = best_first(own)
        ends = order if len(order) <= OF_STEP else [*order[: OF_STEP // 2], *order[-OF_STEP // 2 :]]
        yield _closed(f"Step {number}, {source.value}", _answers(ends))


def _answers(found: Sequence[Recorded], *, prompt: bool = True) -> str:
    return "".join(_answer(each, prompt=prompt) for each in found)


def _answer(each: Recorded, *, prompt: bool) -> str:
    sample = each.sample
    texts = [("prompt", sample.prompt)] if prompt else []
    texts += [("answer", sample.answer)] + ([] if sample.reference is None else [("right", sample.reference)])
    shown = "".join(
        f"<dt>{label}</dt><dd>{escape(printable(shortened(text, CHARACTERS)))}</dd>" for label, text in texts
    )
    return f'<div class="answer"><p>{escape(facts(each))}</p><dl>{shown}</dl></div>'


def _closed(title: str, body: str) -> str:
    return f"<details><summary>{escape(printable(title))}</summary>{body}</details>"
