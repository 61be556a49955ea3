"""Operators of torch_npu and of vllm-ascend, made of ATen's: the tables, and how they are registered.

`attention`, `layers` and `experts` fill the tables. Every other operator of these namespaces fails with its name.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch

Operator = Callable[[types.SimpleNamespace], Any]
"""Takes all arguments of the operator's schema, by name."""

TABLES: dict[str, dict[str, Operator]] = {}
"""Namespace -> name -> function."""
USED: set[str] = set()
"""Operators that this process has called."""
KEPT = frozenset({
    "copy_memory_", "empty_with_format", "empty_with_swapped_memory", "get_npu_format", "get_storage_size",
    "npu_change_data_ptr", "unsafe_empty_with_format",
})  # fmt: skip
"""Operators of torch_npu that call nothing of CANN's."""

_libraries: list[Any] = []


def operator(*names: str) -> Callable[[Operator], Operator]:
    """Register a function for operators, each with its namespace."""

    def register(function: Operator) -> Operator:
        for name in names:
            space, rest = name.split("::")
            TABLES.setdefault(space, {})[rest] = function
        return function

    return register


def install(space: str) -> None:
    """Replace the operators of a namespace."""
    import emulated_npu_operators

    emulated_npu_operators.refuse(space, KEPT | set(TABLES[space]))
    library = torch.library.Library(space, "IMPL")
    _libraries.append(library)  # An operator is gone with its library.
    for name, function in TABLES[space].items():
        for key in ("PrivateUse1", "AutogradPrivateUse1"):
            library.impl(name, functools.partial(_call, f"{space}::{name}", function), key)


@functools.cache
def _arguments(name: str) -> Any:
    base, _, overload = name.partition(".")
    return torch._C._get_schema(base, overload).arguments


def _call(name: str, function: Operator, *values: Any, **named: Any) -> Any:
    USED.add(name)
    arguments = {each.name: each.default_value for each in _arguments(name)}
    given = {each.name: value for each, value in zip(_arguments(name), values, strict=False)}
    return function(types.SimpleNamespace(**arguments | given | named))
