"""Label selectors of the fake."""

from __future__ import annotations

import pytest
from doubles.selectors import matches

LABELS = {"rljob.dev/job": "sums", "ray.io/node-type": "head"}


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ("", True),
        ("rljob.dev/job", True),
        ("rljob.dev/job,ray.io/node-type=head", True),
        ("rljob.dev/job=other", False),
        ("!rljob.dev/job", False),
        ("!absent", True),
        ("ray.io/node-type!=worker", True),
        ("ray.io/node-type in (head, worker),rljob.dev/job", True),
        ("ray.io/node-type notin (head)", False),
    ],
)
def test_a_selector_chooses_as_the_api_server_does(selector: str, *, fits: bool) -> None:
    assert matches(selector, LABELS) is fits


def test_a_selector_that_is_not_understood_is_an_error() -> None:
    with pytest.raises(ValueError, match="not understood"):
        matches("a > 3", LABELS)
