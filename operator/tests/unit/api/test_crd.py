"""The generated CRDs follow the rules of structural schemas and of this project, and the types parse manifests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import BUILT_IN_RECIPES, SPECS_OF_EXAMPLES, Json, small_spec, status_finished, status_training, validate
from pydantic import BaseModel, ValidationError
from schema_check import violations

from rljob.api.base import LIST_KEYS, LIST_TYPE, RULES
from rljob.api.crd import COLUMNS, build_crds
from rljob.api.schema import UnsupportedSchemaError, structural_schema
from rljob.api.v1alpha1 import NOT_IN_A_RECIPE, RLJobSpec
from scripts.generate import crd_text

CRDS = {crd["spec"]["names"]["kind"]: crd for crd in build_crds()}


def schema_of(kind: str) -> Json:
    schema: Json = CRDS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


SCHEMA = schema_of("RLJob")
SPEC, STATUS = SCHEMA["properties"]["spec"], SCHEMA["properties"]["status"]
RECIPE = schema_of("ClusterRLRecipe")["properties"]["spec"]


def nodes(schema: Json, path: str) -> Iterator[tuple[str, Json]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from nodes(schema[name], f"{path}[]")


NODES = [*nodes(SPEC, "spec"), *nodes(STATUS, "status"), *nodes(RECIPE, "recipe")]


def offenders(bad: Any) -> list[str]:  # noqa: ANN401 - a predicate
    return [path for path, node in NODES if bad(node)]


def of(kind: str) -> Any:  # noqa: ANN401 - a predicate
    return lambda node: node.get("type") == kind


@pytest.mark.parametrize("kind", CRDS)
def test_a_crd_is_small(kind: str) -> None:
    """`kubectl apply` stores the manifest as compact JSON in an annotation, and annotations may hold 256 KiB."""
    assert len(crd_text(CRDS[kind])) < 300_000
    assert len(json.dumps(CRDS[kind], separators=(",", ":")).encode()) < 220_000


def test_a_recipe_holds_every_field_of_a_job_but_those_of_one_job() -> None:
    assert set(RECIPE["properties"]["template"]["properties"]) == set(SPEC["properties"]) - NOT_IN_A_RECIPE
    assert schema_of("RLRecipe")["properties"]["spec"] == RECIPE


# The rules of kube-api-linter that apply to generated types (its docs/linters.md). "Conditions first" is left out,
# because the properties of a CRD have no order that an API server would keep.

BOOLEANS = {
    *("suspend", "trustRemoteCode", "readOnly", "runAsNonRoot", "eager", "chunkedPrefill", "parameters", "gradients"),
    *("optimizer", "reference", "evaluateBeforeTraining", "requireCheckpoint", "keepOnFailure", "requested"),
    "unauthenticatedRay",
    # Of core/v1.
    *("privileged", "allowPrivilegeEscalation", "readOnlyRootFilesystem"),
}
"""Fields that will never need a third value; a field that may is an enum."""


def fields(path: str) -> Iterator[tuple[str, Json]]:
    return ((found.rpartition(".")[2].removesuffix("[]"), node) for found, node in NODES if found.startswith(path))


def test_every_field_is_documented_and_its_text_begins_with_its_name() -> None:
    said = [(path, node.get("description", "")) for path, node in NODES if not path.endswith("[]") and "." in path]
    assert [path for path, text in said if not text.startswith(f"{path.rpartition('.')[2]}: ")] == []


def test_a_boolean_is_one_that_never_grows_a_third_value() -> None:
    assert {name for name, node in fields("spec") if node.get("type") == "boolean"} == BOOLEANS


def test_a_duration_is_a_whole_number_with_its_unit() -> None:
    for name, node in fields("spec"):
        if name.endswith(("timeout", "deadline", "Duration", "grace")):
            raise AssertionError(f"{name} has no unit")
        # launcher.command.progress.metrics.stepSeconds is the name of a figure.
        if name.endswith("Seconds") and name != "stepSeconds":
            assert node["type"] == "integer", name


def test_references_are_called_ref_and_nothing_is_a_phase_or_a_timestamp() -> None:
    for name, _ in (*fields("spec"), *fields("status"), *fields("recipe")):
        assert not name.endswith(("Reference", "References", "Timestamp")), name
        assert name != "phase"


def test_conditions_are_a_map_by_type() -> None:
    conditions = STATUS["properties"]["conditions"]
    assert (conditions[LIST_TYPE], conditions[LIST_KEYS]) == ("map", ["type"])


@pytest.mark.parametrize("word", ["$ref", "$defs", "anyOf", "oneOf", "allOf", "title", "default", "const", "nullable"])
def test_a_word_that_is_not_structural_or_not_wanted_is_absent(word: str) -> None:
    assert offenders(lambda node: word in node) == []


def test_only_keys_of_lists_and_the_spec_are_required() -> None:
    keyed = {f"{path}[]": node[LIST_KEYS] for path, node in NODES if node.get(LIST_TYPE) == "map"}
    assert {path: node["required"] for path, node in NODES if "required" in node} == keyed
    assert SCHEMA["required"] == ["spec"]


def test_every_node_has_a_type_and_none_takes_anything() -> None:
    assert offenders(lambda node: "type" not in node) == []
    assert offenders(lambda node: "x-kubernetes-preserve-unknown-fields" in node) == []
    closed = {"properties", "additionalProperties"}
    assert offenders(lambda node: of("object")(node) and not closed & set(node)) == []


def test_every_text_is_bounded() -> None:
    assert offenders(lambda n: of("string")(n) and not ("enum" in n or n.get("maxLength", 0) > 0)) == []


def test_every_list_is_bounded_and_says_how_it_merges() -> None:
    assert offenders(lambda n: of("array")(n) and not (n.get("maxItems") and n.get(LIST_TYPE))) == []


def test_every_map_is_bounded_and_none_has_fixed_keys_too() -> None:
    maps = [node for _, node in NODES if "additionalProperties" in node]
    assert maps
    assert all(node.get("maxProperties") and "properties" not in node for node in maps)


def test_every_number_has_a_format_and_a_least_value() -> None:
    assert offenders(lambda n: of("integer")(n) and not ({"format", "minimum"} <= set(n))) == []
    assert offenders(of("number")) == [], "fractions are decimal strings"


def test_every_rule_has_a_message() -> None:
    rules = [rule for _, node in [*NODES, ("", SCHEMA)] for rule in node.get(RULES, ())]
    assert len(rules) >= 4
    assert all(rule["rule"] and rule["message"] for rule in rules)


def test_a_description_is_one_line() -> None:
    assert offenders(lambda node: "\n" in node.get("description", "")) == []


def test_every_column_shows_something_that_exists() -> None:
    known = {path for path, _ in NODES} | {"metadata.creationTimestamp"}
    assert {column["jsonPath"].lstrip(".") for column in COLUMNS} <= known


@pytest.mark.parametrize("path", SPECS_OF_EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_valid_for_the_schema_and_for_the_core(path: Path) -> None:
    jobs = [document for document in yaml.safe_load_all(path.read_text()) if document["kind"] == "RLJob"]
    assert jobs
    for job in jobs:
        assert list(violations(SPEC, job["spec"])) == []
        assert validate(job["metadata"]["name"], job["spec"], BUILT_IN_RECIPES).violations == ()


@pytest.mark.parametrize("recipe", BUILT_IN_RECIPES.values(), ids=lambda recipe: recipe["metadata"]["name"])
def test_a_built_in_recipe_is_valid_for_the_schema(recipe: Json) -> None:
    version = CRDS[recipe["kind"]]["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert recipe["apiVersion"] == f"rljob.dev/{version['name']}"
    assert list(violations(schema, recipe["spec"])) == []


@pytest.mark.parametrize("status", [status_training(), status_finished()])
def test_what_the_core_writes_fits_the_schema(status: Json) -> None:
    assert list(violations(STATUS, status)) == []


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"trainer": {"steps": 0}}, ".trainer.steps"),
        ({"trainer": {"learningRate": "fast"}}, ".trainer.learningRate"),
        ({"accelerator": {"class": "H100"}}, ".accelerator.class"),
        ({"madeUp": 1}, ".madeUp"),
        ({"data": {"train": ["/x"] * 65}}, ".data.train"),
        ({"workerGroups": [{"nodes": 1}]}, ".workerGroups[0].name"),
        ({"initializers": [{"name": "a"}, {"name": "a"}]}, ".initializers"),
    ],
)
def test_schema_and_types_refuse_the_same(change: Json, path: str) -> None:
    assert any(found.startswith(f"{path}: ") for found in violations(SPEC, small_spec(change)))


def test_outside_names_are_camel_case_and_unknown_ones_are_errors() -> None:
    spec = RLJobSpec.model_validate(small_spec())
    assert "samplesPerPrompt" in spec.model_dump(by_alias=True)["trainer"]
    with pytest.raises(ValidationError):
        RLJobSpec.model_validate(small_spec({"trainer": {"samples": 1}}))
    with pytest.raises(ValidationError, match="frozen"):
        spec.code = spec.code  # type: ignore[misc]


class Two(BaseModel):
    either: int | str


class Many(BaseModel):
    some: list[int | str]


@pytest.mark.parametrize(("model", "path"), [(Two, "Two.either"), (Many, "Many.some\\[\\]")])
def test_a_union_has_no_structural_form_and_the_error_names_it(model: type[BaseModel], path: str) -> None:
    with pytest.raises(UnsupportedSchemaError, match=path):
        structural_schema(model)
