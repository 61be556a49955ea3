"""YAML as kubectl reads it: YAML 1.1 in the dialect of go-yaml v2, behind sigs.k8s.io/yaml.

PyYAML reads YAML 1.1 too, but another one: to it 1e-6 and 0o10 are texts, 1:30 is 90 and a date is a date. A manifest
must mean the same in `rljob validate` and in the cluster, and what `rljob render` prints must mean there what it means
here. So what a plain scalar is stands here in tables.
Stricter than kubectl in what is never meant: a key that stands twice is refused rather than the last one taken.
Sources: go.yaml.in/yaml/v2 v2.4.4 (resolve.go, decode.go), sigs.k8s.io/yaml v1.6.0 (yaml.go), and encoding/json of Go.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

WORDS: dict[str, object] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
"""Plain scalars with a meaning of their own: resolveMap."""

INTEGERS: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"([-+]?)0[xX]([0-9a-fA-F]+)"), 16),
    (re.compile(r"([-+]?)0[oO]([0-7]+)"), 8),
    (re.compile(r"([-+]?)0[bB]([01]+)"), 2),
    (re.compile(r"([-+]?)0([0-7]+)"), 8),
    (re.compile(r"([-+]?)(0|[1-9][0-9]*)"), 10),
)
"""strconv.ParseInt with base 0, once underscores are taken out: pattern of sign and digits, and their base."""
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
"""yamlStyleFloat."""
UNSIGNED_MAX, SIGNED_MIN, SIGNED_MAX = 2**64 - 1, -(2**63), 2**63 - 1
NODES_MAX = 400_000
"""Nodes of a file with its aliases written out: go-yaml's alias_ratio_range_low."""
DEPTH_MAX = 100

INT_TAG, FLOAT_TAG, BOOL_TAG, NULL_TAG, STR_TAG, MERGE_TAG = (
    f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "null", "str", "merge")
)


def resolve(text: str) -> object:
    """Give what a plain scalar means."""
    if text in WORDS:
        return WORDS[text]
    if text[0] not in "+-.0123456789":
        return text  # also a date, which go-yaml keeps as text
    # A point at the beginning is a fraction or a text, and takes no underscores.
    plain = text if text[0] == "." else text.replace("_", "")
    for pattern, base in INTEGERS:
        if (found := pattern.fullmatch(plain)) is not None:
            return _integer(found, base, text)
    if FLOAT.fullmatch(plain):
        number = float(plain)
        return number if math.isfinite(number) else text
    return text


def _integer(found: re.Match[str], base: int, text: str) -> object:
    sign, digits = found.groups()
    # Longer than any integer of 64 bits in base 2; Python would take its time.
    value = int(digits, base) if len(digits.lstrip("0")) <= 64 else UNSIGNED_MAX + 1
    value = -value if sign == "-" else value
    if SIGNED_MIN <= value <= (SIGNED_MAX if sign else UNSIGNED_MAX):
        return value
    number = float(found[0]) if FLOAT.fullmatch(found[0]) else math.inf
    return number if math.isfinite(number) else text


def as_json(number: float) -> float:
    """Give a number as it is after Go wrote it as JSON: what is whole and has 64 bits comes back as an integer."""
    whole = int(number)
    return whole if whole == number and SIGNED_MIN <= whole <= SIGNED_MAX else float(number)


class Loader(yaml.SafeLoader):
    """Reads as kubectl does."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own table, replaced by `resolve` below

    def resolve(self, kind: type[Node], value: str | None, implicit: tuple[bool, bool]) -> str:
        """Give the tag of a node; that of a plain scalar follows from its meaning."""
        if kind is not ScalarNode or not implicit[0]:
            tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
            return tag
        return MERGE_TAG if value == "<<" else _TAGS[type(resolve(value or ""))]

    def construct_document(self, node: Node) -> object:
        """Refuse what would never end, then construct."""
        _measure(node)
        document: object = super().construct_document(node)
        return document

    def construct_plain(self, node: ScalarNode) -> object:
        """Construct a plain scalar, or one with a tag of its own."""
        value = resolve(node.value)
        if node.tag == FLOAT_TAG and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if _TAGS[type(value)] != node.tag:
            raise ConstructorError(None, None, f"cannot read {node.value!r} as {node.tag}", node.start_mark)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if not math.isfinite(value):
                raise ConstructorError(None, None, f"{node.value} is no number that JSON knows", node.start_mark)
            return as_json(value)
        return value

    def construct_text(self, node: ScalarNode) -> str:
        """Refuse half a character, which an escape can write and nothing can send."""
        text: str = node.value
        if any(0xD800 <= ord(char) <= 0xDFFF for char in text):
            raise ConstructorError(None, None, "half a character (a lone surrogate)", node.start_mark)
        return text

    def construct_pairs_in_order(self, node: MappingNode) -> Iterator[dict[str, object]]:
        """Construct a map; a merge puts its entries where it stands, so that what follows wins."""
        result: dict[str, object] = {}
        yield result
        own: set[str] = set()
        for key_node, value_node in node.value:
            if key_node.tag == MERGE_TAG:
                for source in self._sources(value_node):
                    result.update(self.construct_object(source, deep=True))
                continue
            key = self._key(key_node)
            if key in own:
                raise ConstructorError(None, None, f"key {key!r} stands twice", key_node.start_mark)
            own.add(key)
            result[key] = self.construct_object(value_node, deep=True)

    def _sources(self, node: Node) -> list[MappingNode]:
        """Give the maps of a merge, the one that wins last."""
        found = [node] if isinstance(node, MappingNode) else node.value if isinstance(node, SequenceNode) else []
        if not found or not all(isinstance(entry, MappingNode) for entry in found):
            raise ConstructorError(
                None, None, "map merge requires map or sequence of maps as the value", node.start_mark
            )
        return list(reversed(found))

    def _key(self, node: Node) -> str:
        key: object = self.construct_object(node, deep=True)
        if isinstance(key, bool):
            return "true" if key else "false"
        if isinstance(key, int) and node.tag == INT_TAG:
            return str(key)
        if not isinstance(key, str) or node.tag == FLOAT_TAG:
            raise ConstructorError(None, None, "a key must be a text; put it in quotes", node.start_mark)
        return key


_TAGS: dict[type, str] = {
    bool: BOOL_TAG, int: INT_TAG, float: FLOAT_TAG, type(None): NULL_TAG, str: STR_TAG,
}  # fmt: skip
Loader.yaml_constructors = {
    **dict.fromkeys((INT_TAG, FLOAT_TAG, BOOL_TAG, NULL_TAG), Loader.construct_plain),
    STR_TAG: Loader.construct_text,
    "tag:yaml.org,2002:seq": Loader.construct_yaml_seq,
    "tag:yaml.org,2002:map": Loader.construct_pairs_in_order,
    None: Loader.construct_undefined,
}
"""What JSON knows, and nothing else: no dates, sets or binary data."""


def load_all(text: str) -> list[Any]:
    """Give the documents of a file; raises yaml.YAMLError."""
    return list(yaml.load_all(text, Loader=Loader))


class Dumper(yaml.SafeDumper):
    """Puts in quotes what kubectl would take for something else than a text."""

    def represent_text(self, text: str) -> ScalarNode:
        """Give the node of a text."""
        style = None if isinstance(resolve(text), str) else "'"
        return self.represent_scalar(STR_TAG, text, style="|" if "\n" in text else style)


Dumper.add_representer(str, Dumper.represent_text)


def dump_all(documents: list[Any]) -> str:
    """Write documents so that kubectl and `load_all` read what they hold."""
    text: str = yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=120, allow_unicode=True)
    return text


def _measure(root: Node) -> None:
    """Refuse a node that holds itself, is nested too deep, or grows beyond bounds once aliases are written out."""
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(node: Node, depth: int) -> int:
        if id(node) in open_nodes:
            raise ConstructorError(None, None, "an anchor's value contains itself", node.start_mark)
        if depth > DEPTH_MAX:
            raise ConstructorError(None, None, f"nested deeper than {DEPTH_MAX} levels", node.start_mark)
        if id(node) not in sizes:
            open_nodes.add(id(node))
            children = _children(node)
            sizes[id(node)] = 1 + sum(size(child, depth + 1) for child in children)
            open_nodes.discard(id(node))
        return sizes[id(node)]

    if size(root, 0) > NODES_MAX:
        raise ConstructorError(None, None, "excessive aliasing", root.start_mark)


def _children(node: Node) -> list[Node]:
    if isinstance(node, MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, SequenceNode) else []
