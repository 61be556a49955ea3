"""The ConfigMap of ended attempts: bounded, the oldest are dropped first."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders import IDENTITY, UID, Json

from rljob.render.evidence import BYTES_MAX, build_evidence, has_entry, key_of


def with_entries(*entries: tuple[int, Json], found: Json | None = None) -> Json:
    for number, entry in entries:
        found = build_evidence(IDENTITY, found, number, entry)
        found["metadata"].setdefault("resourceVersion", "1")
    assert found is not None
    return found


def size(manifest: Json) -> int:
    return sum(len(text.encode()) for text in manifest["data"].values())


def test_the_first_entry_makes_it_for_the_job_and_not_for_its_cluster() -> None:
    made = build_evidence(IDENTITY, None, 3, {"attempt": {"number": 3}})
    assert made["metadata"]["name"] == "sums-0a1b2-attempts"
    assert [(owner["kind"], owner["uid"]) for owner in made["metadata"]["ownerReferences"]] == [("RLJob", UID)]
    assert made["metadata"]["annotations"]["rljob.dev/intent"] == f"{UID}/attempts"
    assert "immutable" not in made
    assert json.loads(made["data"]["attempt-3.json"]) == {"attempt": {"number": 3}}
    assert has_entry(made, key_of(3))
    assert not has_entry(made, key_of(1))
    assert not has_entry({}, key_of(1))


def test_a_further_entry_replaces_what_was_read_and_says_which_version_that_was() -> None:
    found = with_entries((1, {"a": 1}))
    found["metadata"] |= {"resourceVersion": "77", "labels": {"mine": "too"}, "managedFields": [{}]}
    new = build_evidence(IDENTITY, found, 2, {"b": 2})
    assert list(new["data"]) == ["attempt-1.json", "attempt-2.json"]
    assert (new["metadata"]["resourceVersion"], new["metadata"]["labels"]) == ("77", {"mine": "too"})
    assert "managedFields" not in new["metadata"]


def test_the_last_ten_attempts_are_kept_in_their_order() -> None:
    kept = with_entries(*((number, {"n": number}) for number in range(1, 13)))["data"]
    assert list(kept) == [f"attempt-{number}.json" for number in range(3, 13)]


def test_the_oldest_go_first_where_there_is_no_room() -> None:
    made = with_entries(*((number, {"message": "ü" * 10_000}) for number in range(1, 8)))
    assert list(made["data"]) == ["attempt-5.json", "attempt-6.json", "attempt-7.json"]
    assert size(made) <= BYTES_MAX


@pytest.mark.parametrize("part", ["pods", "warnings"])
def test_an_entry_that_is_too_long_alone_loses_its_last_pods_and_warnings(part: str) -> None:
    entry: Json = {"attempt": {"number": 1}, part: [{"name": f"n{n}", "message": "x" * 5000} for n in range(40)]}
    made = with_entries((1, entry))
    kept = json.loads(made["data"]["attempt-1.json"])
    assert kept["attempt"] == {"number": 1}
    assert [found["name"] for found in kept[part]] == [f"n{n}" for n in range(len(kept[part]))]
    assert 0 < len(kept[part]) < 40
    assert size(made) <= BYTES_MAX


@pytest.mark.parametrize("key", ["notes", "attempt-x.json", "attempt-.json", "attempt-0.json", "attempt-1.json.json"])
def test_what_is_no_attempts_does_not_stay(key: str) -> None:
    strange: dict[str, Any] = with_entries((1, {})) | {"data": {key: "x"}}
    assert list(build_evidence(IDENTITY, strange, 2, {})["data"]) == ["attempt-2.json"]
