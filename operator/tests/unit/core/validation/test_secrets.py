"""Formats of secrets."""

from __future__ import annotations

import pytest

from rljob.api.secret_shapes import shape_of_secret


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"key: eyJ{'a' * 8}.eyJ{'b' * 5_000}.{'c' * 5_000}", "a JSON web token"),
        (f"key: eyJ{'a' * 8}.eyJ{'b' * 5_000}", None),
        ("-----BEGIN RSA PRIVATE KEY-----", "a private key"),
        ("-----BEGIN PRIVATE KEY-----", "a private key"),
        ("git+https://me:geheim@example.com/x", "a URL with a password"),
        ("https://example.com:8080/a@b", None),
    ],
)
def test_a_secret_is_known_by_its_format(text: str, found: str | None) -> None:
    assert shape_of_secret(text) == found
