"""Manifests are read as kubectl reads them; `contract/test_yaml.py` compares the same cases with kubectl itself."""

import json
import math

import pytest
import yaml
from yaml_cases import DOCUMENTS, REFUSED, SCALARS, STRICTER

from rljob.api.yaml11 import dump_all, load_all


@pytest.mark.parametrize(("text", "meaning"), SCALARS.items())
def test_a_scalar_means_what_kubectl_takes_it_for(text: str, meaning: object) -> None:
    (document,) = load_all(f"value: {text}\n")
    assert document["value"] == meaning
    assert type(document["value"]) is type(meaning)


@pytest.mark.parametrize(("text", "meaning"), DOCUMENTS.items())
def test_a_document_means_what_kubectl_takes_it_for(text: str, meaning: object) -> None:
    assert load_all(text) == [meaning]


@pytest.mark.parametrize("text", [*REFUSED, *STRICTER])
def test_what_is_no_json_or_never_meant_is_refused(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load_all(f"value: {text}\n")


@pytest.mark.parametrize("code", [*range(0x20), 0x7F, 0x85, 0x9B, 0x061C, 0x200F, 0x2028, 0x202E, 0x2066])
def test_what_controls_a_terminal_is_written_as_an_escape_and_read_again(code: int) -> None:
    for text in (
        f"a {chr(code)} b",
        f"{chr(code)}",
        f"line\n  {chr(code)}: x\n",
        f"{'w ' * 100}{chr(code)}{' w' * 100}",
    ):
        document = {"value": text, text: [text]}
        written = dump_all([document])
        assert load_all(written) == [document]
        assert [character for character in written if not character.isprintable() and character not in "\n\t"] == []


def test_json_may_escape_an_emoji_as_two_surrogates() -> None:
    document = {"\N{GRINNING FACE}": "\N{GRINNING FACE}"}
    assert load_all(json.dumps(document)) == [document]


def test_aliases_do_not_grow_without_bounds() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 7)]
    with pytest.raises(yaml.YAMLError, match="excessive aliasing"):
        load_all("\n".join(lines))


def test_a_tower_of_lists_is_refused() -> None:
    with pytest.raises(yaml.YAMLError, match="nested deeper than 100 levels"):
        load_all("[" * 120 + "]" * 120)


def test_documents_are_read_one_by_one() -> None:
    assert load_all("a: 1\n---\n# nothing\n---\nb: off\n") == [{"a": 1}, None, {"b": False}]


def test_a_number_of_a_thousand_digits_is_no_work() -> None:
    (document,) = load_all(f"a: {'9' * 200}\nb: {'9' * 5000}\nc: 0x{'f' * 5000}\n")
    assert math.isclose(document["a"], 1e200)
    assert document["b"] == "9" * 5000
    assert document["c"].startswith("0xfff")


@pytest.mark.parametrize("text", [*SCALARS, "two\nlines\n", "a: b", "- x", "#", "é", " ", "x\ty"])
def test_a_text_stays_a_text_when_it_is_written(text: str) -> None:
    assert load_all(dump_all([{"a": text, text: [text]}])) == [{"a": text, text: [text]}]


@pytest.mark.parametrize("text", ["[" * 1_000_000, "{a: " * 100_000, "- " * 500_000, "? " * 100_000])
def test_deep_nesting_is_refused_as_soon_as_it_is_read(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="nested deeper than 100 levels"):
        load_all(text)


def test_nesting_up_to_the_bound_is_read() -> None:
    (document,) = load_all("[" * 100 + "]" * 100)
    for _ in range(99):
        (document,) = document
    assert document == []
