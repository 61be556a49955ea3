"""The generated page on settings that upstream code refuses, for users. Pure: it reads rules and committed tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rljob.launchers.verl.checks.upstream import ascend, environment, megatron, mindspeed, training
from rljob.launchers.verl.checks.upstream.environment import VariableRule
from rljob.launchers.verl.checks.upstream.rule import Rule
from scripts.reference import HEADER, table
from upstream.conditions.sources import SOURCES
from upstream.conditions.table import read
from upstream.conditions.verdicts import Judgement, read_verdicts, verdict_on

INTRODUCTION = """\
Settings on which a pinned release of verl, vLLM, vllm-ascend, MindSpeed or Megatron-Core ends a run after its pods have
started. `rljob validate` and the operator refuse them before. What a field sets cannot get there; these are keys of
`verl.overrides`, and variables of pods. The tables of all conditions with their verdicts, also of those that no spec
reaches, are in `upstream/conditions`; a seam test compares them with the installed releases.
"""
DOUBTFUL = "These are accepted with a warning: they fail in some runs only.\n"
UNKNOWN = """\
No check can see these before the start. Where a run ends at one of the places, this is what to look at.
"""
PREFIXES: Mapping[str, str] = {
    "actor_rollout_ref.actor.megatron.override_transformer_config.": "…transformer.",
    "actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.": "…additional_config.",
    "actor_rollout_ref.rollout.engine_kwargs.vllm.": "…vllm.",
    "actor_rollout_ref.": "",
}
"""Beginnings of keys, and how the page shortens them."""
SHORTENED = "Keys are shortened: " + ", ".join(
    f"`{short}` stands for `{long}`" if short else f"`{long}` is left out" for long, short in PREFIXES.items()
)


def upstream_conditions_page() -> str:
    """Return the page."""
    refused = [*training.RULES, *megatron.RULES, *mindspeed.RULES, *ascend.RULES]
    return "\n".join(
        [
            HEADER,
            "# Settings that upstream refuses\n",
            f"{INTRODUCTION}\n{SHORTENED}.\n",
            "## Keys\n",
            _rules(refused),
            "## Variables of pods\n",
            _rules(environment.RULES),
            "## Warnings\n",
            DOUBTFUL,
            _rules(training.DOUBTFUL),
            "## What only the run shows\n",
            UNKNOWN,
            _unknown(),
        ]
    )


def _rules(rules: Iterable[Rule | VariableRule]) -> str:
    rows: dict[tuple[str, str], list[str]] = {}
    for rule in rules:
        name = rule.variable if isinstance(rule, VariableRule) else _short(rule.key)
        message = rule.message.replace("{value}", "the value")
        rows.setdefault((f"`{name}`", message), []).append(f"`{rule.source}`")
    return table(
        ("setting", "why it is refused, and what to do", "source"), [(*row, ", ".join(at)) for row, at in rows.items()]
    )


def _short(key: str) -> str:
    for long, short in PREFIXES.items():
        if key.startswith(long):
            return short + key.removeprefix(long)
    return key


def _unknown() -> str:
    verdicts = read_verdicts()
    places: dict[str, dict[str, list[str]]] = {}
    for source in SOURCES:
        for row in read(source):
            verdict = verdict_on(source, row, verdicts)
            if verdict and verdict.judgement is Judgement.CANNOT_BE_KNOWN:
                places.setdefault(verdict.reason, {}).setdefault(row.file, []).append(str(row.line))
    rows = [
        (reason, ", ".join(f"`{file}`:{','.join(lines)}" for file, lines in files.items()))
        for reason, files in places.items()
    ]
    return table(("it depends on", "places"), rows)
