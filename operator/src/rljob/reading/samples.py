"""Samples of a run: the files with recorded answers, which of them count, and what they contain. Pure.

They are read where the step records are (`reading.kept_records`): their names first, then the chosen ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rljob.api.printing import one_line
from rljob_runtime.contract import ContractError, Finish, Sample, SampleSource, SpoolFile

LIST_SAMPLES = (
    'cd "$0" 2>/dev/null || exit 0; for f in $1attempt-*/'
    f"{SpoolFile.SAMPLES.value}"
    '/*.jsonl; do if [ -f "$f" ]; then echo "$f"; fi; done'
)
"""Prints the files of samples below the folder $0; $1 is a pattern of the folders between."""
READ_SAMPLES = (
    'cd "$0" 2>/dev/null || exit 0; for f in $*; do if [ -f "$f" ]; then echo; echo "==> $f"; cat "$f"; fi; done'
)
"""Prints files below the folder $0; each further argument is a path or a pattern, without spaces."""
MARK = "==> "
FILE = re.compile(
    rf"(?:[^/\s]+/)?attempt-(?P<attempt>[0-9]{{1,9}})/{SpoolFile.SAMPLES.value}/"
    rf"(?P<step>[0-9]{{9}})-(?P<source>{'|'.join(SampleSource)})\.jsonl"
)
FILES_MAX = 10_000
"""Names that are considered, newest first: 100,000 steps, each tenth of which is recorded."""
ALL = f"attempt-*/{SpoolFile.SAMPLES.value}/*.jsonl"
"""Pattern of all files, below the folders of `record_folders`."""
STEPS_SHOWN = 12
"""Recorded steps that a message lists."""


@dataclass(frozen=True, order=True)
class SampleFile:
    """A file with samples of one step."""

    step: int
    source: SampleSource
    attempt: int
    path: str
    """Below the folder of the records."""


@dataclass(frozen=True)
class Recorded:
    """An answer, and the attempt that recorded it."""

    attempt: int
    sample: Sample


def pattern(step: int | None) -> str:
    """Return the pattern of the files of a step, or of all."""
    return ALL if step is None else ALL.replace("*.jsonl", f"{step:09d}-*.jsonl")


def files(names: Iterable[str]) -> list[SampleFile]:
    """Return the files by step; a step that was repeated counts for the later attempt."""
    found: dict[tuple[int, SampleSource], SampleFile] = {}
    for name in names:
        if (parts := FILE.fullmatch(name.strip())) is None:
            continue
        each = SampleFile(int(parts["step"]), SampleSource(parts["source"]), int(parts["attempt"]), parts[0])
        known = found.get((each.step, each.source))
        if known is None or known.attempt <= each.attempt:
            found[each.step, each.source] = each
    return sorted(found.values())[-FILES_MAX:]


def of_step(found: Sequence[SampleFile], step: int | None, source: SampleSource | None) -> list[SampleFile]:
    """Return the files of a step, by default of the newest; without a source those of the rollout, if there are any.

    Raises LookupError, which says what is recorded instead.
    """
    own = [each for each in found if source in (None, each.source)]
    if not own:
        raise LookupError(f"no answer {'' if source is None else f'of a {source.value} '}is recorded yet")
    chosen = [each for each in own if each.step == (own[-1].step if step is None else step)]
    if not chosen:
        steps = sorted({each.step for each in own})
        shown = ", ".join(map(str, steps[-STEPS_SHOWN:]))
        before = f"{steps[0]}, ..., " if len(steps) > STEPS_SHOWN else ""
        raise LookupError(f"no answer of step {step} is recorded; recorded steps are {before}{shown}")
    return [each for each in chosen if each.source == chosen[0].source]


def spread(found: Sequence[SampleFile], count: int) -> list[SampleFile]:
    """Return at most `count` files of each source, evenly spread over the run, the first and the last among them."""
    chosen: set[SampleFile] = set()
    for source in SampleSource:
        own = [each for each in found if each.source is source]
        room = min(count, len(own))
        chosen |= {own[round(place * (len(own) - 1) / max(1, room - 1))] for place in range(room)}
    return sorted(chosen)


def parse_samples(text: str) -> list[Recorded]:
    """Parse what READ_SAMPLES prints; a line that is no sample is skipped."""
    found: list[Recorded] = []
    for part in f"\n{text}".split(f"\n{MARK}")[1:]:
        name, _, lines = part.partition("\n")
        if (parts := FILE.fullmatch(name)) is not None:
            found += parse_lines(lines, int(parts["attempt"]))
    return found


def newest_attempts(found: Iterable[Recorded]) -> list[Recorded]:
    """Return answers by step, without those of steps that a later attempt repeated."""
    kept: dict[tuple[int, SampleSource], list[Recorded]] = {}
    for each in found:
        known = kept.setdefault((each.sample.step, each.sample.source), [])
        if known and known[0].attempt < each.attempt:
            known.clear()
        if not known or known[0].attempt == each.attempt:
            known.append(each)
    return [each for key in sorted(kept) for each in kept[key]]


def parse_lines(text: str, attempt: int) -> list[Recorded]:
    """Parse a file; a line that is no sample is skipped."""
    found = []
    for line in text.split("\n"):
        try:
            found.append(Recorded(attempt, Sample.from_json(line)))
        except ContractError:
            continue
    return found


def best_first(found: Iterable[Recorded]) -> list[Recorded]:
    """Return answers by score, of the same score the newest first; those without one last."""

    def order(each: Recorded) -> tuple[float, int]:
        return (math.inf if each.sample.score is None else -each.sample.score), -each.sample.step

    return sorted(found, key=order)


def row(each: Recorded) -> dict[str, Any]:
    """Return an answer as plain data; unknown values are null."""
    sample = each.sample
    return {
        "attempt": each.attempt,
        "step": sample.step,
        "source": sample.source.value,
        "score": sample.score,
        "parts": dict(sample.parts),
        "tokens": sample.tokens,
        "finish": sample.finish and sample.finish.value,
        "turns": sample.turns,
        "dataSource": sample.data_source,
        "reference": sample.reference,
        "promptTokens": sample.prompt_tokens,
        "prompt": sample.prompt,
        "answer": sample.answer,
    }


def facts(each: Recorded) -> str:
    """Return one line: where an answer comes from, its score with parts, length and end."""
    sample = each.sample
    words = [f"step {sample.step}"] + (["validation"] if sample.source is SampleSource.VALIDATION else [])
    words.append("no score" if sample.score is None else f"score {_figure(sample.score)}")
    words += [f"{name} {_figure(value)}" for name, value in sample.parts.items()]
    if sample.tokens is not None:
        words.append(f"{sample.tokens} tokens")
    if sample.finish is Finish.LENGTH:
        words.append("cut off at its maximum length")
    if sample.data_source is not None:
        words.append(sample.data_source)
    return one_line("  ".join(words))


def _figure(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
