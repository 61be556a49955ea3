"""Both sides of every rule about upstream, as the operator judges them; upstream judges the same sides in its image.

RLJOB_WRITE_GOLDEN=1 writes the keys of both sides, from which the test in the image reads them; review them as code.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders import IDENTITY, Json, small_spec, typed, validate
from corpus.rules import RULES, Rule, Verdict

from rljob.launchers import LAUNCHER
from rljob_runtime.contract import JobConfig, OverrideValue

FILE = Path(__file__).parents[6] / "runtime/tests/upstream/rules.json"
"""Upstream's side."""


def findings(change: Json) -> dict[Verdict, list[str]]:
    checked = validate("sums", small_spec(change))
    return {
        Verdict.REFUSED: [violation.field for violation in checked.violations],
        Verdict.WARNED: [warning.field for warning in checked.warnings],
    }


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_the_inside_is_accepted_and_the_outside_is_not(rule: Rule) -> None:
    inside, outside = findings(rule.inside), findings(rule.outside)
    assert inside[Verdict.REFUSED] == []
    assert rule.field not in inside[rule.verdict]
    assert rule.field in outside[rule.verdict]
    assert outside[Verdict.REFUSED] in ([], [rule.field])


def test_the_keys_for_upstream_are_up_to_date() -> None:
    text = rendered()
    if os.environ.get("RLJOB_WRITE_GOLDEN"):
        FILE.write_text(text)
    assert FILE.read_text() == text, "RLJOB_WRITE_GOLDEN=1 writes it"


def rendered() -> str:
    """Return the keys of every side as changes of those of the smallest spec."""
    base = job({})
    rows = {
        name: {
            "probe": rule.probe,
            "source": rule.source,
            "field": rule.field,
            "verdict": rule.verdict.value,
            "inside": side(base, rule.inside),
            "outside": side(base, rule.outside),
        }
        for name, rule in RULES.items()
    }
    document = {"base": base.overrides, "rules": rows}
    return json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def job(change: Json) -> JobConfig:
    spec = typed(small_spec(change))
    return LAUNCHER(spec).job_config(IDENTITY, spec, 1)


def side(base: JobConfig, change: Json) -> dict[str, Any]:
    """Return how the job of one side differs."""
    mine = job(change)
    keys: dict[str, OverrideValue] = {
        key: value for key, value in mine.overrides.items() if base.overrides.get(key, Ellipsis) != value
    }
    without = sorted(set(base.overrides) - set(mine.overrides))
    places = {"platform": mine.platform.value, "nodes": mine.nodes, "devices": mine.devices}
    return {"set": keys, "without": without, **places}
