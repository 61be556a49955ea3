"""Texts that hold maps: what is read, what is refused, and that writing and reading give the same."""

from __future__ import annotations

import pytest
from builders import Json, small_spec
from corpus.good import GOOD

from rljob.api.texts import (
    DEPTH_MAX,
    NODES_MAX,
    TextError,
    parse_text,
    read_texts,
    text_fields,
    write_texts,
)
from rljob.core.spec.merge import layer, merge, values

MOST = 100_000


def test_every_field_of_free_content_is_a_text() -> None:
    assert list(text_fields()) == [
        ("head", "template", "affinity"),
        ("workerGroups", "[]", "template", "affinity"),
        ("podSpecPatch", "head"),
        ("podSpecPatch", "workers"),
        ("model", "config"),
        ("verl", "overrides"),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        ("# nothing yet\n", {}),
        ("{}", {}),
        ("a.b: 1e-6\n+c: [x, 1, null, {d: yes}]\n", {"a.b": 1e-6, "+c": ["x", 1, None, {"d": True}]}),
        ('{"a": {"b": [1, 2.5, "c", true, null]}}', {"a": {"b": [1, 2.5, "c", True, None]}}),
        ("1: 2\nyes: no\n'3': 4\n", {"1": 2, "true": False, "3": 4}),
        ("a: |\n  two\n  lines\n", {"a": "two\nlines\n"}),
        ("a: 2.0\nb: '2.0'\n", {"a": 2, "b": "2.0"}),
        ("---\na: 1\n...\n", {"a": 1}),
        ("名: 值", {"名": "值"}),
        ('"<<": 1', {"<<": 1}),
    ],
)
def test_a_text_is_read_as_kubectl_reads_yaml(text: str, value: Json) -> None:
    assert parse_text(text, MOST) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1]", "must be a map, with lines such as `name: value`"),
        ("7", "must be a map"),
        ("a: 1\na: 2", "line 2, column 1: duplicate key 'a'; remove one"),
        ("a: &x 1", "line 1, column 4: anchors (&) and aliases (*) are not allowed"),
        ("a: *x", "anchors (&) and aliases (*) are not allowed"),
        ("a: &x [1]", "anchors (&)"),
        ("a: !!int 3", "the tag tag:yaml.org,2002:int is not allowed; remove it"),
        ("a: !!map {}", "the tag tag:yaml.org,2002:map is not allowed"),
        ("<<: {a: 1}", "merges (<<) are not allowed"),
        ("? [a]\n: b", "a key must be a string; put it in quotes"),
        ("? {a: b}\n: b", "a key must be a string"),
        ("1.5: a", "a key must be a string"),
        ("a: .nan", ".nan is not a number in JSON"),
        ("a: 1\n---\nb: 2", "line 2, column 1: a second document (---) begins"),
        ("a: [", "not YAML: line 2, column 1: did not find expected node content"),
        ("a: \x01", "not YAML: control characters are not allowed"),
        ("a: \ud800", "not YAML: "),
        ("a: " + "[" * DEPTH_MAX, f"nested deeper than {DEPTH_MAX} levels"),
        ("a: [" + "1," * NODES_MAX + "]", f"more than {NODES_MAX} values"),
        ("é" * MOST, f"{2 * MOST} bytes; at most {MOST} are allowed"),
    ],
)
def test_what_is_no_plain_map_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(TextError) as caught:
        parse_text(text, MOST)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 200


def test_the_work_grows_with_the_text_and_not_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    from rljob.api import texts  # noqa: PLC0415 - to count its calls

    calls = 0

    def counted(parent: object, value: object, event: object) -> None:
        nonlocal calls
        calls += 1
        added(parent, value, event)  # type: ignore[arg-type]

    added = texts._add
    monkeypatch.setattr(texts, "_add", counted)
    counts = []
    for length in (500, 1000, 2000):
        calls = 0
        parse_text("".join(f"k{n}: v\n" for n in range(length)), MOST)
        counts.append(calls)
    assert counts == [1001, 2001, 4001]


@pytest.mark.parametrize("change", GOOD.values(), ids=GOOD)
def test_what_is_written_is_read(change: Json) -> None:
    spec, problems = read_texts(small_spec(), "spec")
    assert (spec, problems) == (small_spec(), ())
    written = write_texts(small_spec(change))
    read, problems = read_texts(written, "spec")
    assert problems == ()
    assert write_texts(written) == written
    assert read == read_texts(write_texts(read), "spec")[0]


def test_a_value_of_another_shape_is_left_to_the_types() -> None:
    odd: Json = {"verl": 7, "workerGroups": {"a": 1}, "head": {"template": None}, "model": {"config": None}}
    assert read_texts(odd, "spec") == (odd, ())
    assert write_texts(odd) == odd
    entries: Json = {"workerGroups": [7, {"template": {"affinity": "a: 1"}}]}
    assert read_texts(entries, "spec")[0] == {"workerGroups": [7, {"template": {"affinity": {"a": 1}}}]}


def test_a_map_is_answered_with_how_to_write_it_and_still_judged() -> None:
    read, (problem,) = read_texts({"verl": {"overrides": {"a": 1}}}, "RLRecipe r: spec.template")
    assert read == {"verl": {"overrides": {"a": 1}}}
    assert problem.field == "RLRecipe r: spec.template.verl.overrides"
    assert problem.message == ("is a map, but must be text: write `overrides: |` and indent the lines below it")
    read, (problem,) = read_texts({"workerGroups": [{"template": {"affinity": 7}}]}, "spec")
    assert (read, problem.field) == ({"workerGroups": [{"template": {}}]}, "spec.workerGroups[0].template.affinity")
    assert "must be text in YAML or JSON" in problem.message


def test_texts_of_recipe_and_job_merge_key_by_key() -> None:
    below, _ = read_texts({"verl": {"overrides": "a: 1\nb: 2"}}, "spec")
    above, _ = read_texts({"verl": {"overrides": '{"b": 3}'}}, "spec")
    layers = [layer("recipe", below), layer("job", above, ["verl.overrides[a]"])]
    assert values(merge(layers)) == {"verl": {"overrides": {"b": 3}}}
