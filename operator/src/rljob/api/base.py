"""Ground of the API types: the model base class, bounded scalar types and the markers that the CRD generator reads.

Every string, list and map is bounded, because the API server estimates the cost of CEL rules from the bounds.
Defaults and required fields live in these types and are left out of the CRD: a recipe may supply any field, so both
apply after the merge.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema
from pydantic.alias_generators import to_camel

PRESERVE = "x-kubernetes-preserve-unknown-fields"
LIST_TYPE = "x-kubernetes-list-type"
LIST_KEYS = "x-kubernetes-list-map-keys"
RULES = "x-kubernetes-validations"


class Model(BaseModel):
    """Frozen; camelCase outside, snake_case inside; unknown fields are errors."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )


def rule(expression: str, message: str) -> JsonValue:
    """One CEL rule with its message."""
    return {"rule": expression, "message": message}


def keyed_by(*keys: str) -> dict[str, Any]:
    """Mark a list as a map for server-side apply."""
    return {LIST_TYPE: "map", LIST_KEYS: list(keys)}


ATOMIC = {LIST_TYPE: "atomic"}

DNS_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"

Label = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
"""DNS-1035 label."""
ObjectName = Annotated[str, Field(min_length=1, max_length=253)]
Text = Annotated[str, Field(max_length=1024)]
Path = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^/")]
"""An absolute path inside the pods."""
Count = Annotated[int, Field(ge=1, le=2_147_483_647, json_schema_extra={"format": "int32"})]
NonNegative = Annotated[int, Field(ge=0, le=2_147_483_647, json_schema_extra={"format": "int32"})]
Long = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
Decimal = Annotated[str, Field(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$")]
"""A number with a fraction, as text: the API conventions of Kubernetes forbid floats."""
Metric = Annotated[str, Field(max_length=32, pattern=r"^(NaN|[-+]?(Inf|[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?))$")]
"""A measured number as text."""
Quantity = Annotated[str, Field(max_length=32, pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")]
"""A Kubernetes quantity such as 500m or 12Gi."""
Time = Annotated[str, Field(max_length=32, json_schema_extra={"format": "date-time"})]
"""RFC 3339, UTC."""
Anything = Annotated[Any, WithJsonSchema({PRESERVE: True})]
"""A JSON value; checked by the core, not by the schema."""
