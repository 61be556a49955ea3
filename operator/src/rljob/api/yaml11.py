"""YAML as kubectl reads it: YAML 1.1 in the dialect of go-yaml v2, which sigs.k8s.io/yaml uses.

PyYAML reads another dialect of YAML 1.1, in which 1e-6 and 0o10 are strings, 1:30 is 90 and a date is a date. A
manifest must mean the same in `rljob validate` and in the cluster, and the output of `rljob render` must mean the same
there. Therefore tables in this module define plain scalars.

One thing is stricter than in kubectl: a duplicate key is an error, where kubectl takes the last one.

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

from rljob.api.printing import printable

WORDS: dict[str, object] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
"""Plain scalars with a special meaning: resolveMap."""

INTEGERS: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"([-+]?)0[xX]([0-9a-fA-F]+)"), 16),
    (re.compile(r"([-+]?)0[oO]([0-7]+)"), 8),
    (re.compile(r"([-+]?)0[bB]([01]+)"), 2),
    (re.compile(r"([-+]?)0([0-7]+)"), 8),
    (re.compile(r"([-+]?)(0|[1-9][0-9]*)"), 10),
)
"""strconv.ParseInt with base 0, after underscores are removed: patterns of sign and digits, and their base."""
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
"""yamlStyleFloat."""
UNSIGNED_MAX, SIGNED_MIN, SIGNED_MAX = 2**64 - 1, -(2**63), 2**63 - 1
NODES_MAX = 400_000
"""Maximum number of nodes of a file after aliases are expanded: go-yaml's alias_ratio_range_low."""
DEPTH_MAX = 100
SIZE_MAX = 16 << 20
"""Bytes of a file. etcd accepts 1.5 MiB for an object; a list of a whole namespace has many."""

INT_TAG, FLOAT_TAG, BOOL_TAG, NULL_TAG, STR_TAG, MERGE_TAG = (
    f"tag:yaml.org,2002:{name}" for name in ("int", "float", "bool", "null", "str", "merge")
)


def whole_characters(text: str) -> str | None:
    """Return a text with each pair of surrogates joined, as JSON escapes an emoji; None for half a character."""
    if not any(0xD800 <= ord(char) <= 0xDFFF for char in text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        return None


def resolve(text: str) -> object:
    """Return the value of a plain scalar."""
    if text in WORDS:
        return WORDS[text]
    if text[0] not in "+-.0123456789":
        return text  # also a date, which go-yaml keeps as text
    # A leading point starts a fraction or a string, and allows no underscores.
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
    # Longer than any integer of 64 bits in base 2, and slow to parse in Python.
    value = int(digits, base) if len(digits.lstrip("0")) <= 64 else UNSIGNED_MAX + 1
    value = -value if sign == "-" else value
    if SIGNED_MIN <= value <= (SIGNED_MAX if sign else UNSIGNED_MAX):
        return value
    number = float(found[0]) if FLOAT.fullmatch(found[0]) else math.inf
    return number if math.isfinite(number) else text


def as_json(number: float) -> float:
    """Return a number as Go's JSON has it: whole numbers of 64 bits become integers."""
    whole = int(number)
    return whole if whole == number and SIGNED_MIN <= whole <= SIGNED_MAX else float(number)


class Loader(yaml.SafeLoader):
    """Reads YAML as kubectl does."""

    yaml_implicit_resolvers: dict[str, Any] = {}

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        """Refuse deep nesting as soon as it is read, since PyYAML's parser slows down with each level."""
        if self._depth > DEPTH_MAX:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise ConstructorError(None, None, f"nested deeper than {DEPTH_MAX} levels", mark)
        self._depth += 1
        node: Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def resolve(self, kind: type[Node], value: str | None, implicit: tuple[bool, bool]) -> str:
        """Return the tag of a node; the tag of a plain scalar follows from its value."""
        if kind is not ScalarNode or not implicit[0]:
            tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
            return tag
        return MERGE_TAG if value == "<<" else _TAGS[type(resolve(value or ""))]

    def construct_document(self, node: Node) -> object:
        """Reject recursive and oversized documents, then construct."""
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
                raise ConstructorError(None, None, f"{node.value} is not a number in JSON", node.start_mark)
            return as_json(value)
        return value

    def construct_text(self, node: ScalarNode) -> str:
        """Return the text of a scalar; reject half a character."""
        text = whole_characters(node.value)
        if text is None:
            raise ConstructorError(None, None, "lone surrogate (half a character)", node.start_mark)
        return text

    def construct_pairs_in_order(self, node: MappingNode) -> Iterator[dict[str, object]]:
        """Construct a map. A merge inserts its entries at its own position, so that later keys take precedence."""
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
                raise ConstructorError(None, None, f"duplicate key {key!r}", key_node.start_mark)
            own.add(key)
            result[key] = self.construct_object(value_node, deep=True)

    def _sources(self, node: Node) -> list[MappingNode]:
        """Return the maps of a merge, in increasing order of precedence."""
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
            raise ConstructorError(None, None, "a key must be a string; quote it", node.start_mark)
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
"""The types of JSON only: no dates, sets or binary data."""


def load_all(text: str) -> list[Any]:
    """Return the documents of a file. Raise yaml.YAMLError if it is invalid."""
    return list(yaml.load_all(text, Loader=Loader))


class Dumper(yaml.SafeDumper):
    """Quotes strings that kubectl would read as something other than a string."""

    def represent_text(self, text: str) -> ScalarNode:
        """Return the node of a string."""
        if printable(text) != text:
            # Only between double quotes are there escapes; `dump_all` writes those that PyYAML does not.
            return self.represent_scalar(STR_TAG, text, style='"')
        style = None if isinstance(resolve(text), str) else "'"
        return self.represent_scalar(STR_TAG, text, style="|" if "\n" in text else style)


Dumper.add_representer(str, Dumper.represent_text)


def dump_all(documents: list[Any]) -> str:
    """Write documents so that kubectl and `load_all` read the same values, without control characters."""
    text: str = yaml.dump_all(documents, Dumper=Dumper, sort_keys=False, width=120, allow_unicode=True)
    return printable(text)


def _measure(root: Node) -> None:
    """Reject a node that contains itself, or that is nested too deeply or too large when aliases are expanded."""
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
