"""JSON that somebody else wrote: what is within the bounds is parsed as json.loads does, and nothing else passes."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rljob_runtime.contract import ContractError, ForeignJSONError, Progress, parse_foreign_json
from rljob_runtime.contract.foreign_json import INTEGER_MAX, NESTING_MAX

HOSTILE = {
    "nested lists": "[" * 60_000,
    "nested lists that are closed": "[" * 60_000 + "]" * 60_000,
    "nested objects": '{"a":' * 60_000,
    "nesting behind a string with brackets": '["]]]]' + '\\"' * 9 + '",' + "[" * 60_000,
    "an integer that no float holds": "1" + "0" * 400,
    "an integer that int() refuses": "9" * 5000,
    "a negative one": "-" + "9" * 5000,
    "infinity by exponent": "1e999",
    "negative infinity": "-1e999",
    "NaN": "NaN",
    "Infinity": '{"a": -Infinity}',
    "a key twice": '{"a": 1, "a": 2}',
    "bytes that are no UTF-8": b'"\xff"',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "too long": " " * (1 << 20) + "1",
    "not closed": '{"a": "',
    "a backslash at the end": '"' + "\\" * 60_001,
    "nothing": "",
}
PROGRESS = ("step", "observedTime", "reward", "attempt", "checkpointBytes")

leaf = st.none() | st.booleans() | st.integers(-INTEGER_MAX, INTEGER_MAX) | st.floats(allow_nan=False) | st.text()
value = st.recursive(leaf, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_out_of_bounds_is_refused_with_one_kind_of_error(text: str | bytes) -> None:
    with pytest.raises(ForeignJSONError) as caught:
        parse_foreign_json(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("field", PROGRESS)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_document_of_the_contract_fails_as_the_contract_says(field: str, text: str | bytes) -> None:
    wrapped = f'{{"podUid": "p", "phase": "Idle", "{field}": '.encode() + (
        text if isinstance(text, bytes) else text.encode()
    )
    for document in (text, wrapped + b"}"):
        with pytest.raises(ContractError):
            Progress.from_json(document)


@given(value)
def test_everything_else_is_read_as_it_was_written(value: object) -> None:
    if any(math.isinf(number) for number in _floats(value)):
        return
    assert parse_foreign_json(json.dumps(value)) == parse_foreign_json(json.dumps(value, ensure_ascii=False)) == value


def _floats(value: object) -> list[float]:
    if isinstance(value, dict):
        return [number for member in value.values() for number in _floats(member)]
    if isinstance(value, list):
        return [number for member in value for number in _floats(member)]
    return [value] if isinstance(value, float) else []


def test_halves_of_surrogate_pairs_become_text_that_can_be_stored() -> None:
    found = parse_foreign_json(r'{"\ud800": ["\udfff", "\ud83d\ude00", 1]}')
    assert found == {r"\ud800": [r"\udfff", "\N{GRINNING FACE}", 1]}
    assert parse_foreign_json('["\ud800"]') == [r"\ud800"]


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_nesting_is_allowed_up_to_its_bound(opening: str) -> None:
    closing = {"[": "]"}.get(opening, "}")
    assert parse_foreign_json(opening * NESTING_MAX + "0" + closing * NESTING_MAX)
    with pytest.raises(ForeignJSONError, match="nesting"):
        parse_foreign_json(opening * (NESTING_MAX + 1) + "0" + closing * (NESTING_MAX + 1))


def test_many_brackets_beside_each_other_or_in_strings_are_no_nesting() -> None:
    assert parse_foreign_json(json.dumps([[], {}] * 1000)) == [[], {}] * 1000
    assert parse_foreign_json(json.dumps("[{" * 1000)) == "[{" * 1000


@pytest.mark.parametrize("number", [INTEGER_MAX, -INTEGER_MAX])
def test_integers_are_allowed_up_to_their_bound(number: int) -> None:
    assert parse_foreign_json(str(number)) == number
    with pytest.raises(ForeignJSONError, match="64 bits"):
        parse_foreign_json(str(number * 2))
