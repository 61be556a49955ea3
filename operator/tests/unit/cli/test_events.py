"""Which events `rljob events` shows."""

from __future__ import annotations

from builders import IDENTITY, Json

from rljob.cli.verbs.events import of_job


def event(name: str, uid: str = "") -> Json:
    return {"metadata": {}, "regarding": {"name": name, "uid": uid}}


def test_events_are_those_of_the_job_and_of_its_objects() -> None:
    own = [
        event("sums", IDENTITY.uid),
        event("sums-0a1b2-1"),
        event("sums-0a1b2-1-head-abcde"),
        event("sums-0a1b2-export-20-0a1b2"),
    ]
    others = [
        event("sums", "another"),
        event("sums-0a1b2-e20"),
        event("sums-0a1b2-e20-1c2d3-1-head-abcde"),
        event("sums-0a1b20-1"),
        {"metadata": {}},
    ]
    assert of_job([*own, *others], IDENTITY) == own
