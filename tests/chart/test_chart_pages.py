"""README and schema of the chart, generated from a values.yaml of the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import chart_pages

VALUES = """\
# About the chart.

# How many.
# @schema minimum: 1, maximum: 9
count: 3
place:
  # Where it is.
  # Example: here
  # @schema is: namespace or empty
  name: ""
  # @schema enum: [Near, Far]
  distance: Near
  open: true
# @schema propertyNames: {is: name},
# @schema additionalProperties: {type: object, properties: {of: {is: objects, maxItems: 2}}}
groups: {}
# @schema type: [boolean, 'null']
maybe: null
# @schema type: object
free:
  a: 1
"""


@pytest.fixture
def schema_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a function
    def schema(text: str) -> dict[str, Any]:
        (tmp_path / "values.yaml").write_text(text)
        monkeypatch.setattr(chart_pages, "VALUES", tmp_path / "values.yaml")
        found: dict[str, Any] = json.loads(chart_pages.schema_text())
        return found

    return schema


def test_types_come_from_defaults_and_constraints_from_annotations(schema_of: Any) -> None:  # noqa: ANN401
    schema = schema_of(VALUES)
    assert schema["additionalProperties"] is False
    found = schema["properties"]
    assert found["count"] == {"description": "How many.", "type": "integer", "minimum": 1, "maximum": 9}
    place = found["place"]["properties"]
    assert found["place"]["additionalProperties"] is False
    assert place["name"] == {
        "description": "Where it is. Example: here",
        "type": "string",
        "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$",
        "maxLength": 63,
    }
    assert place["distance"] == {"enum": ["Near", "Far"]}
    assert place["open"] == {"type": "boolean"}
    rows = found["groups"]["additionalProperties"]["properties"]["of"]
    assert rows == {"type": "array", "items": {"type": "object"}, "maxItems": 2}
    assert found["groups"]["propertyNames"]["maxLength"] == 253
    assert found["maybe"] == {"type": ["boolean", "null"]}
    assert found["free"] == {"type": "object"}
    assert found["global"]["type"] == "object"


def test_annotations_are_no_part_of_the_readme(schema_of: Any) -> None:  # noqa: ANN401
    schema_of(VALUES)
    text = chart_pages.readme_text()
    assert '| `place.name` | `""` | Where it is. Example: here |' in text
    assert "@schema" not in text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a:\n", "a has no default of a known type"),
        ("a: 1.5\n", "a has no default of a known type"),
        ("# @schema type: object\na:\n  # @schema minimum: 1\n  b: 1\n", "above a.b, which is no value of its own"),
    ],
)
def test_values_that_have_no_schema_are_refused(schema_of: Any, text: str, complaint: str) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=complaint):
        schema_of(text)
