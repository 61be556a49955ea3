"""Patterns of secrets in manifests."""

from __future__ import annotations

import pytest

from rljob.core.validation.secrets import shape_of_secret

HEADER_MAX = 1024


@pytest.mark.parametrize(("characters", "found"), [(8, True), (HEADER_MAX, True), (HEADER_MAX + 1, False)])
def test_the_first_part_of_a_web_token_has_a_bound(characters: int, found: bool) -> None:
    """It may start anywhere in a text of its own characters; the bound keeps the search linear."""
    text = f"key: eyJ{'a' * characters}.eyJ{'b' * 5_000}.{'c' * 5_000}"
    assert shape_of_secret(text) == ("a JSON web token" if found else None)
