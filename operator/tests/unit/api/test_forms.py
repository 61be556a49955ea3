"""Every pattern of the API has a sentence, and no message shows a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from builders import small_spec, validate
from property.mutations import put
from pydantic import BaseModel
from schema_samples import leaves

from rljob.api import forms
from rljob.api.accelerators import AcceleratorFacts
from rljob.api.status import RLJobStatus
from rljob.api.v1alpha1 import RecipeSpec, RLJobSpec

PATTERN = re.compile(r"\^.*\$|\[[^\]]*-[^\]]*\]|\\[.dws]")
NONE_OF_THEM = "!§ not this"
EXAMPLES = {
    forms.LABEL: ("trainer-0", "Trainer"),
    forms.ABSOLUTE_PATH: ("/data/model", "Qwen/Qwen3-8B"),
    forms.DECIMAL: ("1e-6", "-1"),
    forms.SIGNED_DECIMAL: ("-1", "one"),
    forms.METRIC: ("0.71", "nan"),
    forms.QUANTITY: ("12Gi", "8gi"),
    forms.VARIABLE_NAME: ("HF_HOME", "1A"),
    forms.REPOSITORY_URL: ("https://example.com/team/rewards.git", "ssh://git@example.com/x"),
    forms.SERVER_URL: ("https://huggingface.co", "huggingface.co"),
    forms.HUB_REPOSITORY: ("team/sums-7b", "sums-7b"),
    forms.COMMIT: ("0123456789" * 4, "main"),
    forms.HUB_REPOSITORY: ("Qwen/Qwen3-8B", "/data/model"),
    forms.HUB_REVISION: ("main", "-x"),
    forms.HUB_URL: ("https://hf-mirror.com", "https://user:pass@example.com"),
    forms.SHA256: ("0123456789abcdef" * 4, "0123456789" * 4),
    forms.FUNCTION_NAME: ("compute_score", "compute-score"),
    forms.METRIC_NAME: ("acc", "7"),
    forms.PINNED_WHEEL: (f"a==1.0 --hash=sha256:{'0' * 64}", "a==1.0"),
    forms.RELEASE: ("2.60.0", "2.60"),
    forms.REASON_WORD: ("StepSeen", "step seen"),
    forms.HOST_PATH_TYPE: ("File", "Socket"),
}


def patterns(schema: Any) -> Iterator[str]:  # noqa: ANN401 - a JSON schema
    if isinstance(schema, dict):
        if isinstance(found := schema.get("pattern"), str):
            yield found
        for member in schema.values():
            yield from patterns(member)
    elif isinstance(schema, list):
        for member in schema:
            yield from patterns(member)


@pytest.mark.parametrize("model", [RLJobSpec, RecipeSpec, RLJobStatus, AcceleratorFacts])
def test_every_pattern_of_a_schema_has_a_sentence(model: type[BaseModel]) -> None:
    found = set(patterns(model.model_json_schema()))
    assert found
    assert found <= {form.pattern for form in forms.FORMS}


@pytest.mark.parametrize("form", forms.FORMS, ids=lambda form: form.pattern)
def test_a_sentence_says_what_is_allowed_and_shows_no_pattern(form: forms.Form) -> None:
    good, bad = EXAMPLES[form]
    assert re.search(form.pattern, good)
    assert not re.search(form.pattern, bad)
    assert form.must.startswith("must ")
    assert not PATTERN.search(form.must)


@pytest.mark.parametrize(
    "path", [path for path, schema in leaves() if "pattern" in schema or "pattern" in schema.get("items", {})]
)
def test_a_text_of_a_wrong_form_is_described(path: tuple[str, ...]) -> None:
    spec = small_spec()
    is_list = isinstance(next(schema for at, schema in leaves() if at == path).get("items"), dict)
    put(spec, tuple(0 if part == "[]" else part for part in path), [NONE_OF_THEM] if is_list else NONE_OF_THEM)
    field = "spec." + ".".join(path).replace(".[]", "[0]") + ("[0]" if is_list else "")
    (message,) = [each.message for each in validate("sums", spec).violations if each.field == field]
    assert " must " in f" {message}"
    assert not PATTERN.search(message)


def test_types_are_named_as_in_a_manifest() -> None:
    spec = small_spec({"trainer": [], "stop": {"requireCheckpoint": "yes"}, "data": {"train": {}}, "suspend": 1})
    spec["workerGroups"][0]["template"] = {"nodeSelector": []}
    told = {each.field: each.message for each in validate("sums", spec).violations}
    assert told["spec.trainer"] == "must be a map of fields, as in {name: value}"
    assert told["spec.workerGroups[0].template.nodeSelector"] == "must be a map, as in {name: value}"
    assert told["spec.stop.requireCheckpoint"] == "'yes': must be true or false, without quotes"
    assert told["spec.data.train"] == "must be a list, as in [value, value]"
