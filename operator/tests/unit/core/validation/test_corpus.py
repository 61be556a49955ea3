"""Every invalid manifest is rejected with one violation: its field, and what to do; no message repeats a secret."""

import pytest
from builders import validate
from corpus import BAD
from corpus.bad import Bad
from corpus.pods import LITERALS


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_a_bad_manifest_is_refused_with_field_and_fix(bad: Bad) -> None:
    checked = validate("sums", bad.spec)
    assert checked.spec is None
    assert [violation.field for violation in checked.violations] == [bad.field]
    assert bad.message in checked.violations[0].message
    assert not any(literal in str(checked.violations[0]) for literal in LITERALS)


def test_the_corpus_is_large() -> None:
    assert len(BAD) >= 60
