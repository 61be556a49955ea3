"""Fields that hold a document as text: YAML or JSON in a string, such as `verl.overrides: |`.

Their content is free, so a schema cannot bound it; the length of a text is bounded. Inside the operator these fields
are maps. `read_texts` converts a manifest as soon as it is read, before recipes and job are merged, so that the merge
and `unset` see the entries. `write_texts` is the way back, for tools that write manifests.

A text is somebody else's input: it is measured before it is parsed, and the parser neither recurses nor expands
anything, because anchors, aliases, merges and tags are errors.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, MappingStartEvent, NodeEvent, ScalarEvent, SequenceStartEvent

from rljob.api import yaml11
from rljob.api.base import MapAsText, Model
from rljob.api.field_path import member
from rljob.api.v1alpha1 import RLJobSpec

DEPTH_MAX = 32
"""Levels of nesting: an affinity of core/v1 has ten."""
NODES_MAX = 8192
"""Maps, lists and values of a text."""
SHOWN = 80
"""Characters of a key that a message shows."""
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ITEMS = "[]"


class TextError(ValueError):
    """A text is not a document; the message says where and what to do."""


@dataclass(frozen=True)
class TextProblem:
    """What is wrong with a field that holds a text."""

    field: str
    message: str


def read_texts(raw: Mapping[str, Any], place: str) -> tuple[dict[str, Any], tuple[TextProblem, ...]]:
    """Return a spec, or the template of a recipe, with maps in place of texts, and what is wrong with the texts.

    `place` is the path of `raw`, such as `spec`. A text that cannot be read is left out, so that it is reported once.
    """
    document: Any = dict(raw)
    problems: list[TextProblem] = []
    for path, most in text_fields().items():
        document = _read(document, path, place, most, problems)
    return document, tuple(problems)


def write_texts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest's spec with texts in place of maps; a field that holds a text already is kept."""
    result: Any = dict(document)
    for path in text_fields():
        result = _write(result, path)
    return typing.cast("dict[str, Any]", result)


def parse_text(text: str, most: int) -> dict[str, Any]:
    """Return the map that a text of at most `most` bytes holds. Raise TextError if it holds none."""
    size = len(text.encode(errors="surrogatepass"))
    if size > most:
        raise TextError(f"{size} bytes; at most {most} are allowed")
    try:
        found = _build(text)
    except (yaml.YAMLError, UnicodeError) as error:
        raise TextError(f"not YAML: {_where(error)}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise TextError("must be a map, with lines such as `name: value`")
    return found


@cache
def text_fields() -> Mapping[tuple[str, ...], int]:
    """Return the path of every field of RLJobSpec that holds a text, with its maximum length."""
    return dict(_fields_of(RLJobSpec, ()))


def _fields_of(model: type[Model], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    for info in model.model_fields.values():
        path = (*above, str(info.alias))
        marks = [*info.metadata, *_marks(info.annotation)]
        if (mark := next((each for each in marks if isinstance(each, MapAsText)), None)) is not None:
            yield path, mark.max_length
            continue
        for inner, is_list in _models(info.annotation):
            yield from _fields_of(inner, (*path, _ITEMS) if is_list else path)


def _marks(annotation: Any) -> Iterator[object]:  # noqa: ANN401 - a type expression
    for argument in typing.get_args(annotation):
        yield from getattr(argument, "__metadata__", ())


def _models(annotation: Any, *, is_list: bool = False) -> Iterator[tuple[type[Model], bool]]:  # noqa: ANN401 - a type
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation, is_list
    for argument in typing.get_args(annotation):
        yield from _models(argument, is_list=is_list or typing.get_origin(annotation) is list)


def _read(node: Any, path: tuple[str, ...], place: str, most: int, problems: list[TextProblem]) -> Any:  # noqa: ANN401 - JSON
    """Return a copy of `node` in which the text at a path is read; a value of another shape is kept for the types."""
    first, *rest = path
    if first == _ITEMS:
        if not isinstance(node, list):
            return node
        return [_read(entry, tuple(rest), f"{place}[{index}]", most, problems) for index, entry in enumerate(node)]
    if not isinstance(node, Mapping) or first not in node:
        return node
    value, here = node[first], member(place, first)
    if rest:
        return {**node, first: _read(value, tuple(rest), here, most, problems)}
    if value is None:
        return node
    if isinstance(value, str):
        try:
            return {**node, first: parse_text(value, most)}
        except TextError as error:
            problems.append(TextProblem(here, str(error)))
    elif isinstance(value, Mapping):
        problems.append(
            TextProblem(here, f"is a map, but must be text: write `{first}: |` and indent the lines below it")
        )
        return {**node, first: dict(value)}
    else:
        problems.append(TextProblem(here, f"must be text in YAML or JSON: write `{first}: |` and a map below it"))
    return {name: entry for name, entry in node.items() if name != first}


def _write(node: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    first, *rest = path
    if first == _ITEMS:
        return [_write(entry, tuple(rest)) for entry in node] if isinstance(node, list) else node
    if not isinstance(node, Mapping) or first not in node:
        return node
    value = node[first]
    if rest:
        return {**node, first: _write(value, tuple(rest))}
    return {**node, first: yaml11.dump_all([value])} if isinstance(value, Mapping) else node


@dataclass
class _Open:
    """A collection that has begun and not ended."""

    value: Any
    key: str | None = None
    """Key of the entry that is being read, in a map."""


def _build(text: str) -> Any:  # noqa: ANN401 - JSON
    """Return the document of a text, from the events of the parser; None if it is empty."""
    documents = 0
    stack = [_Open([])]
    for nodes, event in enumerate(yaml.parse(text, Loader=_PARSER)):
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _refused("a second document (---) begins; write one", event)
        if isinstance(event, CollectionEndEvent):
            stack.pop()
        if not isinstance(event, NodeEvent):
            continue
        if isinstance(event, AliasEvent) or event.anchor is not None:
            raise _refused("anchors (&) and aliases (*) are not allowed; write the value out", event)
        if nodes > NODES_MAX:
            raise _refused(f"more than {NODES_MAX} values", event)
        value = _value(event)
        _add(stack[-1], value, event)
        if not isinstance(event, ScalarEvent):
            stack.append(_Open(value))
        if len(stack) > DEPTH_MAX:
            raise _refused(f"nested deeper than {DEPTH_MAX} levels", event)
    return stack[0].value[0] if stack[0].value else None


def _value(event: Any) -> Any:  # noqa: ANN401 - an event of PyYAML, and JSON
    if event.tag is not None:
        raise _refused(f"the tag {str(event.tag)[:SHOWN]} is not allowed; remove it", event)
    if isinstance(event, MappingStartEvent):
        return {}
    if isinstance(event, SequenceStartEvent):
        return []
    # Surrogates are halves of characters, which UTF-8 cannot encode; an escape can write one.
    if any(0xD800 <= ord(char) <= 0xDFFF for char in event.value):
        raise _refused("lone surrogate (half a character)", event)
    if not event.implicit[0]:
        return event.value
    value = yaml11.resolve(event.value)
    if isinstance(value, float) and not math.isfinite(value):
        raise _refused(f"{event.value[:SHOWN]} is not a number in JSON", event)
    return yaml11.as_json(value) if isinstance(value, float) else value


def _add(parent: _Open, value: Any, event: Any) -> None:  # noqa: ANN401 - JSON, and an event of PyYAML
    """Put a value into the collection around it: an entry of a list, or the key or the value of a map."""
    if isinstance(parent.value, list):
        parent.value.append(value)
    elif parent.key is not None:
        parent.value[parent.key] = value
        parent.key = None
    else:
        key = _key(value, event)
        if key in parent.value:
            raise _refused(f"duplicate key {key[:SHOWN]!r}; remove one", event)
        parent.key = key


def _key(value: Any, event: Any) -> str:  # noqa: ANN401 - JSON, and an event of PyYAML
    if isinstance(event, ScalarEvent) and event.implicit[0] and event.value == "<<":
        raise _refused("merges (<<) are not allowed; write the entries out", event)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise _refused("a key must be a string; put it in quotes", event)
    return value


def _refused(problem: str, event: Any) -> yaml.MarkedYAMLError:  # noqa: ANN401 - an event of PyYAML
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def _where(error: Exception) -> str:
    """Return what is wrong and on which line of the text, without the text itself."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
    return f"{problem}" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
