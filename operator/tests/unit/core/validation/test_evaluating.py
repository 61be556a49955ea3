"""Every job whose checkpoints can be evaluated has an evaluation that is accepted."""

from __future__ import annotations

import pytest
import yaml
from builders import BUILT_IN_RECIPES, EXAMPLES, SPECS_OF_EXAMPLES, Json, merged, small_spec, validate
from corpus.bad import saved
from corpus.good import GOOD

from rljob.api.texts import read_texts


def candidates() -> dict[str, Json]:
    """Return every example and accepted spec, on a volume with checkpoints where it has none."""
    examples: dict[str, Json] = {
        str(path.relative_to(EXAMPLES)): document["spec"]
        for path in SPECS_OF_EXAMPLES
        for document in yaml.safe_load_all(path.read_text())
        if document["kind"] == "RLJob"
    }
    good = {name: small_spec(merged(saved(), change)) for name, change in GOOD.items()}
    return examples | good


CASES = candidates()


@pytest.mark.parametrize("case", CASES)
def test_what_is_accepted_is_accepted_with_evaluations(case: str) -> None:
    spec = read_texts(CASES[case], "spec")[0]
    checked = validate("sums", spec, BUILT_IN_RECIPES)
    if checked.spec is None or checked.spec.command or checked.spec.checkpoint is None:
        pytest.skip("nothing can be evaluated")
    if checked.spec.trainer.mode == "Evaluate":
        pytest.skip("it is an evaluation")
    found = validate("sums", merged(spec, {"evaluation": {"every": 1}}), BUILT_IN_RECIPES)
    assert found.violations == ()
