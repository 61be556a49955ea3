"""Keys of verl's configuration: whether a key exists, and its default.

The table, tables/verl.json, is written by upstream/verl_names.py from verl's wheel. The operator uses it before
anything is created; the launcher composes the real configuration and uses only the suggestions.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping

from rljob_runtime.planning.verl_names import FIELDS, KEYS, READ, VERL_VERSION

Json = object
"""A value of JSON."""

KEY = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*")
"""A path of Hydra's grammar without brackets, which OmegaConf also takes (`a[b]` means `a.b`)."""
SELECT = re.compile(r"\$\{oc\.select:\s*+(\.?[\w.]++)(?:,\s*+(.+))?\}")
REFERENCE = re.compile(r"\$\{(\.?[\w.]+)\}")
DEPTH_MAX = 10
"""References that are followed; verl's schema has two in a row."""
SUGGESTION_CUTOFF = 0.6
SECTION_CUTOFF = 0.85
KEY_SHOWN = 200
"""Characters of a key that are compared with the known ones: the comparison takes quadratic time."""


class Section:
    """A key with keys below it, which has no value of its own."""


SECTION = Section()


class Unknown:
    """No such key, or a value that only a running verl has."""


UNKNOWN = Unknown()


@functools.cache
def keys(*, megatron: bool) -> Mapping[str, Json | Section]:
    """Return every key of the configuration composed for an engine, with its default."""
    found: dict[str, Json | Section] = {}
    for table in (KEYS["COMMON"], KEYS["MEGATRON" if megatron else "DP"]):
        for section, words in table.items():
            for word in words.split():
                name, given, value = word.partition("=")
                found[f"{section}.{name}" if section else name] = json.loads(value) if given else SECTION
    return found


@functools.cache
def _read_names() -> frozenset[str]:
    return frozenset(READ.split())


@functools.cache
def _fields(target: str) -> frozenset[str]:
    """Return the fields of the class into which a section is converted."""
    return frozenset(FIELDS.get(target.rpartition(".")[2], "").split())


def unknown_key(key: str, known: Iterable[str], *, suggest: bool = True) -> str:
    """Return a message that verl has no such key, with a suggestion, whose search takes about 0.1 s."""
    meant = nearest_key(key[:KEY_SHOWN], sorted(known)) if suggest else None
    hint = f"did you mean {meant}?" if meant else "see verl/trainer/config for its keys"
    return f"verl {VERL_VERSION} has no such key; {hint}"


def nearest_key(key: str, known: list[str]) -> str | None:
    """Return a likely intended key: a similar one of the same group, or the same name in another group."""
    if (sibling := _sibling(key, known)) is not None:
        return sibling
    folder, _, last = key.rpartition(".")
    exists = any(name.startswith(f"{folder}.") for name in known)
    near = [] if exists else difflib.get_close_matches(key, known, 1, SUGGESTION_CUTOFF)
    same_name = [name for name in known if name.rpartition(".")[2] == last]
    near = near or difflib.get_close_matches(key, same_name, 1, 0)
    return near[0] if near else None


def _sibling(key: str, known: Iterable[str]) -> str | None:
    """Return a key of the same group with an abbreviated, longer or similar name.

    Only the names are compared, because a long group would make all its keys similar.
    """
    folder, _, last = key.rpartition(".")
    siblings = {name.rpartition(".")[2]: name for name in known if name.rpartition(".")[0] == folder}
    abbreviated = "".join(word[:1] for word in last.split("_"))  # learning_rate -> lr
    near = difflib.get_close_matches(last, siblings, 1, SUGGESTION_CUTOFF)
    longer = [name for name in siblings if name.startswith((f"{last}_", f"{last}s_"))]
    names = [abbreviated] * (abbreviated in siblings) + near + longer
    return siblings[names[0]] if names else None


def problem_of(key: str, *, megatron: bool, suggest: bool = True) -> str | None:
    """Return what is wrong with a key of an override, with its leading `+` if it has one; None for a usable key."""
    plain, known = key.lstrip("+"), keys(megatron=megatron)
    if plain in known:
        return None
    if plain in keys(megatron=not megatron):
        engines = "Megatron and MindSpeed" if not megatron else "FSDP2"
        return f"exists only with trainer.backend {engines}; remove it"
    if key.startswith("+"):
        return _problem_of_new(plain, known, suggest=suggest)
    if _problem_of_new(plain, known, suggest=False) is not None or is_foreign(f"+{plain}", megatron=megatron):
        return unknown_key(plain, known, suggest=suggest)
    meant = _sibling(plain[:KEY_SHOWN], known) if suggest else None
    hint = f"; or did you mean {meant}?" if meant else ""
    return f"verl {VERL_VERSION} has no such key in its schema; a leading + adds it: +{plain[:KEY_SHOWN]}{hint}"


def _problem_of_new(plain: str, known: Mapping[str, Json | Section], *, suggest: bool) -> str | None:
    """Return what is wrong with a key that the schema lacks: nothing in verl reads its name."""
    parts = plain.split(".")
    depth = next(depth for depth in range(len(parts) - 1, -1, -1) if depth == 0 or ".".join(parts[:depth]) in known)
    parent, name = ".".join(parts[:depth]), parts[depth]
    if not parent and not difflib.get_close_matches(name[:KEY_SHOWN], _sections(known), n=1, cutoff=SECTION_CUTOFF):
        return None  # A section of its own, which another trainer of the image may read.
    if parent and (known[parent] is not SECTION or any(map(_is_open, parts[:depth]))):
        return None  # A map that verl passes on, such as engine_kwargs.vllm.
    target = known.get(f"{parent}._target_")
    if name in _read_names() or (isinstance(target, str) and name in _fields(target)):
        return None
    siblings = {key.rpartition(".")[2]: key for key in known if not parent or key.startswith(f"{parent}.")}
    near = difflib.get_close_matches(name[:KEY_SHOWN], sorted(siblings) if suggest else [], 1, SUGGESTION_CUTOFF)
    hint = f"did you mean {siblings[near[0]]}?" if near else "remove it"
    return f"nothing in verl {VERL_VERSION} reads {name[:KEY_SHOWN]}; {hint}"


def is_foreign(key: str, *, megatron: bool) -> bool:
    """Report whether a key belongs to no section of verl, so that only another trainer of the image reads it."""
    return key.startswith("+") and key.lstrip("+").split(".")[0] not in _sections(keys(megatron=megatron))


def _sections(known: Mapping[str, Json | Section]) -> list[str]:
    return [key for key in known if "." not in key]


def _is_open(name: str) -> bool:
    """Report whether verl passes everything below a section on: `override_*` and `*kwargs` of its schema."""
    return name.startswith("override_") or name.endswith("kwargs")


def resolved(key: str, get: Callable[[str], Json | Section | Unknown], depth: int = DEPTH_MAX) -> Json | Unknown:
    """Return the value of a key, following references as OmegaConf does.

    `get` returns what is set or the default, UNKNOWN for a key that does not exist.
    """
    value = get(key)
    if isinstance(value, Section | Unknown):
        return UNKNOWN
    return _followed(value, key, get, depth)


def _followed(value: Json, key: str, get: Callable[[str], Json | Section | Unknown], depth: int) -> Json | Unknown:
    if not isinstance(value, str) or "${" not in value:
        return value
    if depth == 0:
        return UNKNOWN
    if match := SELECT.fullmatch(value):
        found = resolved(_absolute(match[1], key), get, depth - 1)
        # Null is a value; only a key that is missing gives the default (omegaconf 2.3, resolvers/oc: select).
        return _followed(_literal(match[2] or "null"), key, get, depth - 1) if isinstance(found, Unknown) else found
    if match := REFERENCE.fullmatch(value):
        return resolved(_absolute(match[1], key), get, depth - 1)
    return UNKNOWN


def _absolute(path: str, key: str) -> str:
    """Return the key that a reference in the value of another key means; a leading dot is the same section."""
    return f"{key.rpartition('.')[0]}{path}" if path.startswith(".") else path


def _literal(text: str) -> Json:
    """Return the default of `oc.select` as a value: JSON, or Python's spelling of it, or text."""
    spelt = {"True": "true", "False": "false", "None": "null"}.get(text, text)
    try:
        return json.loads(spelt)
    except ValueError:
        return text
