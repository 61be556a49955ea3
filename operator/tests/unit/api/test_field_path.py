"""Paths of fields are written as they are read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rljob.api.field_path import bracketed, member, parse_path


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("trainer", ("trainer",)),
        ("spec.trainer.steps", ("spec", "trainer", "steps")),
        ("workerGroups[0].template.cpu", ("workerGroups", "0", "template", "cpu")),
        ("a[b.c/d]", ("a", "b.c/d")),
        ("a[b[0]]", ("a", "b[0]")),
        ('a["]"][""]', ("a", "]", "")),
        ("spec.verl.overrides[a]b]", ("spec", "verl", "overrides", "a]b")),
        ("verl.overrides[+a.b]", ("verl", "overrides", "+a.b")),
    ],
)
def test_a_path_has_parts(text: str, parts: tuple[str, ...]) -> None:
    assert parse_path(text) == parts


@pytest.mark.parametrize(
    "text", ["", ".", ".a", "a.", "a..b", "a b", "[a]", "a[", "a[]", 'a["', 'a["b"', 'a["b"c]', "a[b]c"]
)
def test_what_is_no_path_has_none(text: str) -> None:
    assert parse_path(text) is None


@given(st.lists(st.text(), max_size=4))
def test_whatever_a_key_contains_its_path_is_read_again(names: list[str]) -> None:
    path = "spec"
    for name in names:
        path = member(path, name)
    assert parse_path(path) == ("spec", *names)


def test_a_key_stands_in_brackets_and_in_quotes_where_it_must() -> None:
    assert [bracketed(name) for name in ("a", "a.b", "a]")] == ["[a]", "[a.b]", '["a]"]']
