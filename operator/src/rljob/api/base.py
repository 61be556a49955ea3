"""Foundation of the API types: the model base class, bounded scalar types and the markers that the CRD generator reads.

Every string, list and map is bounded, because the API server estimates the cost of CEL rules from the bounds. Defaults
and required fields live in these types and are left out of the CRD: a recipe may supply any field, so both apply after
the merge.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, JsonValue
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema

from rljob.api import forms

LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
RULES = "x-kubernetes-validations"
MERGE_KEYS = "x-rljob-merge-keys"
"""Keys that identify a list's entries when recipes are merged, where server-side apply has none. Not written to the
CRD."""


Json = dict[str, Any]
"""A JSON object that is being built."""


class Model(BaseModel):
    """Base class of the API types: frozen, camelCase outside, snake_case inside, and unknown fields are errors."""

    REPLACED_WHOLE: ClassVar[bool] = False
    """Values of this type are alternatives: the job's value replaces the recipe's as a whole."""
    EXACTLY_ONE_OF: ClassVar[tuple[str, ...]] = ()
    """Fields of a union, by their manifest names. Enforced by CEL and by `core.validation.unions`."""
    AT_MOST_ONE_OF: ClassVar[tuple[str, ...]] = ()
    MEMBERS_BY_TYPE: ClassVar[Mapping[str, str]] = {}
    """Value of the discriminator `type` -> the field that belongs to it."""
    CEL: ClassVar[tuple[JsonValue, ...]] = ()
    """Additional rules that only the API server checks, or that the core checks with a message of its own."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Add the CEL rules to the schema."""
        schema = handler.resolve_ref_schema(handler(core))
        if rules := [*cls._union_rules(), *cls.CEL]:
            schema[RULES] = rules
        return schema

    @classmethod
    def _union_rules(cls) -> Iterator[JsonValue]:
        for fields, bound, word in ((cls.EXACTLY_ONE_OF, "== 1", "exactly"), (cls.AT_MOST_ONE_OF, "<= 1", "at most")):
            if fields:
                present = ", ".join(f"has(self.{field})" for field in fields)
                yield rule(f"[{present}].filter(p, p).size() {bound}", f"{word} one of {', '.join(fields)}")
        for value, field in cls.MEMBERS_BY_TYPE.items():
            yield rule(
                f"(has(self.type) && self.type == '{value}') == has(self.{field})",
                f"{field} goes with type {value}, and only with it",
            )


class StatusModel(Model):
    """Part of the status. Fields of another operator version are ignored, so that an upgrade can be rolled back."""

    model_config = ConfigDict(extra="ignore")


def rule(expression: str, message: str) -> JsonValue:
    """Return one CEL rule with its message."""
    return {"rule": expression, "message": message}


def keyed_by(*keys: str) -> dict[str, Any]:
    """Mark a list as a map, for server-side apply and for the merge of recipes."""
    return {LIST_TYPE: "map", LIST_KEYS: list(keys)}


ATOMIC = {LIST_TYPE: "atomic"}
"""Marks a list that is replaced as a whole."""


class Switch(enum.StrEnum):
    """Setting of an optimization."""

    AUTO = "Auto"
    """The operator decides once and records the reason."""
    ENABLED = "Enabled"
    DISABLED = "Disabled"


Label = Annotated[str, Field(min_length=1, max_length=63, pattern=forms.LABEL.pattern)]
"""A DNS-1035 label."""
ObjectName = Annotated[str, Field(min_length=1, max_length=253)]
Text = Annotated[str, Field(max_length=1024)]
Path = Annotated[str, Field(min_length=1, max_length=1024, pattern=forms.ABSOLUTE_PATH.pattern)]
"""An absolute path inside the pods."""
Count = Annotated[int, Field(ge=1, le=2_147_483_647, json_schema_extra={"format": "int32"})]
NonNegative = Annotated[int, Field(ge=0, le=2_147_483_647, json_schema_extra={"format": "int32"})]
Long = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
Decimal = Annotated[str, Field(max_length=32, pattern=forms.DECIMAL.pattern)]
"""A decimal number as a string, because Kubernetes API conventions forbid floats."""
SignedDecimal = Annotated[str, Field(max_length=32, pattern=forms.SIGNED_DECIMAL.pattern)]
"""A decimal number as a string, possibly negative."""
Metric = Annotated[str, Field(max_length=32, pattern=forms.METRIC.pattern)]
"""A measured number as a string."""
Quantity = Annotated[str, Field(max_length=32, pattern=forms.QUANTITY.pattern)]
"""A Kubernetes quantity such as 500m or 12Gi."""
Time = Annotated[str, Field(max_length=32, json_schema_extra={"format": "date-time"})]
"""An RFC 3339 time in UTC."""
Message = Annotated[str, Field(max_length=2048)]
Word = Annotated[str, Field(max_length=128, pattern=forms.REASON_WORD.pattern)]


@dataclass(frozen=True)
class MapAsText:
    """Marks a map that a manifest holds as text in YAML or JSON (`api.texts`), because a schema cannot bound it."""

    max_length: int
    """Bytes of the text, and therefore characters of it."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of the manifest."""
        return {"type": "string", "maxLength": self.max_length}
