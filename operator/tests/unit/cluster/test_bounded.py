"""What is kept of the API server's answers: item by item, and no more of a large one than the operator reads."""

from __future__ import annotations

import json

import pytest
from builders import Json, small_spec

from rljob.api.limits import SPEC_BYTES_MAX, SPEC_TOO_LARGE
from rljob.cluster.bounded import KEPT_VALUE_MAX, USUAL_BYTES, decode, reduced, reduced_line

LARGE = "x" * (USUAL_BYTES + 1)


def job(name: str = "a", spec: Json | None = None, **metadata: object) -> Json:
    return {"kind": "RLJob", "metadata": {"name": name, **metadata}, "spec": small_spec() if spec is None else spec}


def test_small_answers_are_kept_as_they_are() -> None:
    for answer in (job(managedFields=[{}]), {"items": [job()]}, [1], "text", 7):
        assert decode(json.dumps(answer)) == answer


def test_a_list_is_read_item_by_item_and_only_large_items_are_reduced() -> None:
    small, large = job("a", managedFields=[{}]), job("b", managedFields=[{"f": LARGE}], annotations={"a": "b"})
    listing = {"apiVersion": "v1", "items": [small, large, 7], "kind": "List", "metadata": {"continue": "c"}}
    for indent in (None, 2):
        read = decode(json.dumps(listing, indent=indent))
        assert read["items"] == [small, job("b", annotations={"a": "b"}), 7]
        assert (read["metadata"], read["kind"]) == ({"continue": "c"}, "List")
    assert decode(json.dumps({"items": [], "pad": LARGE})) == {"items": [], "pad": LARGE}
    assert decode(json.dumps({"items": None, "pad": LARGE})) == {"items": None, "pad": LARGE}
    assert decode(json.dumps([LARGE])) == [LARGE]


@pytest.mark.parametrize("text", ["{", "[1", '{"a" 1}', '{"items": [1 2]}', '{"items": [1', '{"a": [}', "[" * 100_000])
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    for pad in ("", " " * USUAL_BYTES):
        with pytest.raises(ValueError, match=r".+"):
            decode(pad + text)


def test_metadata_of_tenants_is_bounded() -> None:
    own = {"rljob.dev/refresh": "1", "rljob.dev/long": "x" * (KEPT_VALUE_MAX + 1)}
    found = decode(json.dumps(job(annotations={"a": LARGE, **own}, labels={f"l{n}": "v" * 63 for n in range(400)})))
    assert found["metadata"] == {"name": "a", "annotations": {"rljob.dev/refresh": "1"}, "labels": {}}
    assert found["spec"] == small_spec()


@pytest.mark.parametrize("kind", ["RLJob", "RLRecipe", "ClusterRLRecipe"])
def test_a_spec_that_is_too_large_leaves_its_size_and_what_decides_whose_job_it_is(kind: str) -> None:
    spec = {"verl": {"overrides": "a" * SPEC_BYTES_MAX}, "managedBy": "other", "suspend": True}
    item = job(spec=spec) | {"kind": kind}
    left = {SPEC_TOO_LARGE: len(json.dumps(spec, separators=(",", ":"))), "managedBy": "other", "suspend": True}
    assert decode(json.dumps(item))["spec"] == left
    del item["kind"]
    assert decode(json.dumps({"items": [item]}), kind)["items"][0]["spec"] == left
    assert decode(json.dumps({"items": [item]}), "Pod")["items"][0]["spec"] == spec


def test_a_spec_within_the_bound_is_kept_and_a_strange_one_is_not_looked_into() -> None:
    spec = {"verl": {"overrides": "a" * 200_000}, "managedBy": 7}
    assert decode(json.dumps(job(spec=spec)))["spec"] == spec
    huge = job() | {"spec": ["x" * SPEC_BYTES_MAX]}
    assert set(decode(json.dumps(huge))["spec"]) == {SPEC_TOO_LARGE}
    assert set(decode(json.dumps(job(spec={"a": "x" * SPEC_BYTES_MAX, "managedBy": 7})))["spec"]) == {SPEC_TOO_LARGE}
    assert reduced({"data": LARGE}, len(LARGE)) == {"data": LARGE}


def test_lines_of_a_watch_are_reduced_too() -> None:
    small = json.dumps({"type": "ADDED", "object": job()}).encode()
    assert reduced_line(small) is small
    large = {"type": "MODIFIED", "object": job(managedFields=[{"f": LARGE}])}
    assert json.loads(reduced_line(json.dumps(large).encode())) == {"type": "MODIFIED", "object": job()}
    for odd in ([LARGE], {"type": "ERROR", "object": LARGE}):
        assert json.loads(reduced_line(json.dumps(odd).encode())) == odd
