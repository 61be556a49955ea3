"""Overrides have one plain form, however they are spelt."""

from __future__ import annotations

import pytest

from rljob_runtime.planning.flattening import VLLM, plain_keys


def test_a_map_sets_the_keys_below_it_and_the_last_value_counts() -> None:
    keys = {"+a.b": {"c": 1, "d": {"e": 2}}, "a.b.c": 3, "f": {}, "g": [1]}
    assert plain_keys(keys) == {"a.b.c": 3, "a.b.d.e": 2, "f": {}, "g": [1]}


def test_json_text_is_a_map_only_where_vllm_reads_it() -> None:
    text = '{"a": {"b": 1}}'
    assert plain_keys({f"+{VLLM}.c": text, "d.e": text}) == {f"{VLLM}.c.a.b": 1, "d.e": text}


@pytest.mark.parametrize("text", ["{", "{}", '{"a": ' * 100_000])
def test_text_that_is_no_map_stays_text(text: str) -> None:
    assert plain_keys({f"{VLLM}.c": text}) == {f"{VLLM}.c": text}
