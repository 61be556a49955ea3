"""A manifest in a file: what the API server would say about its keys and its metadata."""

from __future__ import annotations

import pytest
from builders import Json, small_spec

from rljob.core.observed import Manifest
from rljob.core.spec.recipes import recipe_id
from rljob.core.validation.document import ANNOTATIONS_MAX, validate_document
from rljob.core.validation.validate import Checked
from rljob.launchers import LAUNCHER
from rljob.render.accelerators import BUILT_IN

API = "rljob.dev/v1alpha1"


def job(metadata: object = None, **more: object) -> Json:
    found = {"name": "sums"} if metadata is None else metadata
    return {"apiVersion": API, "kind": "RLJob", "metadata": found, "spec": small_spec(), **more}


def judged(document: Json, *recipes: Manifest) -> Checked:
    known = {recipe_id(recipe): recipe for recipe in recipes}
    return validate_document(document, known, launcher=LAUNCHER, accelerators=BUILT_IN)


SERVER = {
    "name": "sums",
    "namespace": "team-a",
    "uid": "u",
    "resourceVersion": "7",
    "generation": 2,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "managedFields": [],
    "finalizers": ["x"],
    "ownerReferences": [],
    "labels": {"team": "vision", "example.com/empty": ""},
    "annotations": {"Example.com/Note": "any text\n", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
}


@pytest.mark.parametrize(
    "document",
    [
        job(),
        job(SERVER, status={"state": "Failed"}),
        job({"name": "sums", "namespace": None, "labels": None, "annotations": None, "generateName": ""}),
        job({"generateName": "sums-"}),
        job({"generateName": "x" * 35}),
        job({"name": "sums", "generateName": "IGNORED"}),
    ],
)
def test_what_the_api_server_takes_is_valid(document: Json) -> None:
    checked = judged(document)
    assert checked.violations == ()
    assert checked.spec is not None


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        (job(specs={}), "specs", "did you mean spec?"),
        (job(kinds="x"), "kinds", "did you mean kind?"),
        (job(qqqq=1), "qqqq", "remove it; the fields are apiVersion, kind, metadata, spec, status"),
        (job(trainer={}), "trainer", "it is a field of spec; indent it below spec (spec.trainer)"),
        (job(labels={}), "labels", "it is a field of metadata; indent it below metadata (metadata.labels)"),
        (job(**{"a b": 1}), "[a b]", "is not a field of RLJob"),
        (job({"name": "sums", "label": {}}), "metadata.label", "did you mean labels?"),
        (job({"name": "sums", "qqqq": {}}), "metadata.qqqq", "the fields are annotations, creationTimestamp"),
        (job({}), "metadata.name", "is required and not set; set it, or metadata.generateName"),
        (job({"name": 5}), "metadata.name", "5: must be a string; put it in quotes"),
        (job({"name": "Sums"}), "metadata.name", "must be lower-case"),
        (job({"generateName": True}), "metadata.generateName", "True: must be a string"),
        (job({"generateName": "x" * 36}), "metadata.generateName", "36 characters; at most 35 are allowed"),
        (job({"generateName": "Sums-"}), "metadata.generateName", "such as sums-"),
        (job({"name": "sums", "namespace": "Bad NS"}), "metadata.namespace", "(an RFC 1123 label), such as team-a"),
        (job({"name": "sums", "namespace": "a" * 64}), "metadata.namespace", "at most 63"),
        (job({"name": "sums", "namespace": ["a"]}), "metadata.namespace", "must be a string"),
        (job({"name": "sums", "labels": ["a"]}), "metadata.labels", "must be a map of strings"),
        (job({"name": "sums", "labels": {"a b": "x"}}), "metadata.labels[a b]", "is not a label name"),
        (job({"name": "sums", "labels": {"a..b/c": "x"}}), "metadata.labels[a..b/c]", "is not a label name"),
        (job({"name": "sums", "labels": {"a": "x y"}}), "metadata.labels[a]", "is not a label value"),
        (job({"name": "sums", "labels": {"a": 1}}), "metadata.labels[a]", "1: must be a string; put it in quotes"),
        (job({"name": "sums", "annotations": {"a b": "x"}}), "metadata.annotations[a b]", "name of an annotation"),
        (job({"name": "sums", "annotations": {"a": True}}), "metadata.annotations[a]", "must be a string"),
        (
            job({"name": "sums", "annotations": {"a": "x" * ANNOTATIONS_MAX}}),
            "metadata.annotations",
            "262145 bytes; at most 262144",
        ),
    ],
)
def test_what_the_api_server_refuses_is_named(document: Json, field: str, message: str) -> None:
    checked = judged(document)
    assert checked.spec is None
    (violation,) = checked.violations
    assert violation.field == field
    assert message in violation.message


def recipe(name: str = "base", **more: object) -> Json:
    made = {"apiVersion": API, "kind": "ClusterRLRecipe", "metadata": {"name": name}}
    return {**made, "spec": {"template": {"trainer": {"steps": 7}}}, **more}


def test_recipes_that_the_job_uses_are_checked_in_the_same_way() -> None:
    own = job()
    own["spec"]["recipeRef"] = {"name": "base"}
    assert judged(own, recipe()).violations == ()
    (violation,) = judged(own, recipe(template={})).violations
    assert violation.field == "ClusterRLRecipe base: template"
    assert "indent it below spec" in violation.message
    own["spec"]["recipeRef"] = {"name": "Base"}
    (violation,) = judged(own, recipe("Base")).violations
    assert violation.field == "ClusterRLRecipe Base: metadata.name"
    # An unused recipe is not judged, and neither is one that does not exist.
    assert judged(job(), recipe("Base")).violations == ()
    assert [each.field for each in judged(own).violations] == ["spec.recipeRef"]


def test_violations_of_metadata_and_spec_come_together() -> None:
    document = job({"name": "Sums", "nam": 1})
    document["spec"]["trainer"]["steps"] = 0
    fields = [each.field for each in judged(document).violations]
    assert fields == ["metadata.nam", "metadata.name", "spec.trainer.steps"]
