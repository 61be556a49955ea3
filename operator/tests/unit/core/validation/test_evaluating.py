"""Every job whose checkpoints can be evaluated has an evaluation that is accepted."""

from __future__ import annotations

import pytest
import yaml
from builders import BUILT_IN_RECIPES, EXAMPLES, SPECS_OF_EXAMPLES, Json, merged, small_spec, validate
from corpus.bad import saved
from corpus.good import GOOD

from rljob.api.texts import read_texts


def specs() -> dict[str, Json]:
    """Return every example and accepted spec, on a volume with checkpoints where it has none."""
    examples: dict[str, Json] = {
        str(path.relative_to(EXAMPLES)): document["spec"]
        for path in SPECS_OF_EXAMPLES
        for document in yaml.safe_load_all(path.read_text())
        if document["kind"] == "RLJob"
    }
    good = {name: small_spec(merged(saved(), change)) for name, change in GOOD.items()}
    return {name: read_texts(spec, "spec")[0] for name, spec in (examples | good).items()}


def saves(spec: Json) -> bool:
    """Return whether a job has checkpoints that can be evaluated."""
    found = validate("sums", spec, BUILT_IN_RECIPES).spec
    return bool(found and not found.command and found.checkpoint and found.trainer.mode != "Evaluate")


SPECS = specs()
CASES = [name for name, spec in SPECS.items() if saves(spec)]


def test_most_jobs_can_be_evaluated() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize("case", CASES)
def test_what_is_accepted_is_accepted_with_evaluations(case: str) -> None:
    found = validate("sums", merged(SPECS[case], {"evaluation": {"every": 1}}), BUILT_IN_RECIPES)
    assert found.violations == ()
