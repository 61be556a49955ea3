"""A whole manifest as written in a file: the keys around the spec, its metadata, and the spec.

The operator reads objects that the API server has accepted, so it judges the spec only (`validate`). A file has passed
nobody: `rljob` applies here what the API server would, so that `kubectl apply` has no surprise left. Sources are the
rules of apimachinery v0.36 for every object: pkg/apis/meta/v1/types.go (ObjectMeta), pkg/api/validation/objectmeta.go,
pkg/util/validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rljob.api.field_path import bracketed, member
from rljob.api.v1alpha1 import RecipeSpec, RLJobSpec
from rljob.core.launcher import LauncherOf
from rljob.core.nearest import nearest_field
from rljob.core.observed import Manifest
from rljob.core.spec.recipes import Recipes, chain_ids
from rljob.core.validation.validate import Checked, validate
from rljob.core.validation.violation import Violation
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.names import is_label_name, is_label_value, is_subdomain

KEYS = ("apiVersion", "kind", "metadata", "spec", "status")
METADATA = (
    *("annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers"),
    *("generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences"),
    *("resourceVersion", "selfLink", "uid"),
)
"""Fields of ObjectMeta."""
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""An RFC 1123 label: IsDNS1123Label."""
ANNOTATIONS_MAX = 256 * 1024
"""Bytes of all annotations: TotalAnnotationSizeLimitB."""
NOT_IN_FILES = "does not exist in the files; add -f RECIPE-FILE, or --cluster to read it from the cluster"
SHOWN = 200
"""Characters of a text that a message shows."""


def validate_document(
    document: Manifest,
    recipes: Recipes,
    *,
    launcher: LauncherOf,
    accelerators: AcceleratorTable,
    absent: str = NOT_IN_FILES,
) -> Checked:
    """Check the manifest of an RLJob, and those of the recipes that it uses.

    `absent` completes the message about a recipe that is not among `recipes`.
    """
    metadata, spec = _mapping(document.get("metadata")), _mapping(document.get("spec"))
    name, generated = _name(metadata)
    found = [*_key_violations(document, "RLJob", RLJobSpec), *_metadata_violations(metadata)]
    for wanted in chain_ids(spec, recipes.get):
        if (recipe := recipes.get(wanted)) is not None:
            found += (Violation(f"{wanted}: {each.field}", each.message) for each in _recipe_violations(recipe))
    if not name:
        found.append(Violation("metadata.name", "is required and not set; set it, or metadata.generateName"))
        # A job without a name has no other violation because of that.
        name = "unnamed"
    checked = validate(
        name, spec, recipes, launcher=launcher, accelerators=accelerators, generated=generated, absent=absent
    )
    return replace(checked, spec=None, violations=(*found, *checked.violations)) if found else checked


def _name(metadata: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the name, or the prefix of a generated one, and whether it is a prefix; both may be set."""
    for field, generated in (("name", False), ("generateName", True)):
        if (given := metadata.get(field)) not in (None, ""):
            # Reported by _metadata_violations if it is no string.
            return (given if isinstance(given, str) else "unnamed"), generated
    return "", False


def _recipe_violations(recipe: Manifest) -> Iterator[Violation]:
    metadata = _mapping(recipe.get("metadata"))
    yield from _key_violations(recipe, str(recipe["kind"]), RecipeSpec)
    yield from _metadata_violations(metadata)
    name = metadata.get("name")
    if isinstance(name, str) and not is_subdomain(name):
        yield Violation(
            "metadata.name",
            f"{name[:SHOWN]!r} must be lower-case letters, digits, '-' and '.' (an RFC 1123 subdomain), such as "
            "base-a3",
        )


def _key_violations(document: Manifest, kind: str, spec: type[RLJobSpec | RecipeSpec]) -> Iterator[Violation]:
    """Report keys beside the spec that the API server would drop, and those that are in the wrong place."""
    fields = {str(info.alias) for info in spec.model_fields.values()}
    for key in document:
        if key in KEYS:
            continue
        if key in fields:
            fix = f"it is a field of spec; indent it below spec (spec.{key})"
        elif key in METADATA:
            fix = f"it is a field of metadata; indent it below metadata (metadata.{key})"
        else:
            fix = _meant(key, KEYS)
        yield Violation(_top(key), f"is not a field of {kind}; {fix}")


def _metadata_violations(metadata: Mapping[str, Any]) -> Iterator[Violation]:
    for key in metadata:
        if key not in METADATA:
            yield Violation(member("metadata", str(key)), f"is not a field of metadata; {_meant(key, METADATA)}")
    for field in ("name", "generateName", "namespace"):
        if not isinstance(value := metadata.get(field, ""), str | None):
            yield Violation(f"metadata.{field}", f"{value!r:.{SHOWN}}: must be a string; put it in quotes")
    namespace = metadata.get("namespace")
    if isinstance(namespace, str) and namespace and not NAMESPACE.fullmatch(namespace):
        yield Violation(
            "metadata.namespace",
            f"{namespace[:SHOWN]!r} must be at most 63 lower-case letters, digits and '-', and start and end with a "
            "letter or digit (an RFC 1123 label), such as team-a",
        )
    yield from _label_violations(metadata.get("labels"))
    yield from _annotation_violations(metadata.get("annotations"))


def _label_violations(labels: object) -> Iterator[Violation]:
    entries, problems = _entries("metadata.labels", labels)
    for field, key, value in entries:
        if not is_label_name(key):
            yield Violation(field, "is not a label name; use one such as team or example.com/team")
        elif not is_label_value(value):
            yield Violation(
                field,
                f"{value[:SHOWN]!r} is not a label value: at most 63 letters, digits, '-', '_' and '.', with a letter "
                "or digit at both ends",
            )
    yield from problems


def _annotation_violations(annotations: object) -> Iterator[Violation]:
    entries, problems = _entries("metadata.annotations", annotations)
    for field, key, _ in entries:
        # ValidateAnnotations ignores the case of the key's domain.
        if not is_label_name(key.lower()):
            yield Violation(field, "is not the name of an annotation; use one such as example.com/team")
    size = sum(len(f"{key}{value}".encode(errors="replace")) for _, key, value in entries)
    if size > ANNOTATIONS_MAX:
        yield Violation("metadata.annotations", f"{size} bytes; at most {ANNOTATIONS_MAX} are allowed, so shorten them")
    yield from problems


def _entries(path: str, value: object) -> tuple[list[tuple[str, str, str]], list[Violation]]:
    """Return the entries of a map of strings (path, key, value), and what is no such entry."""
    if value is None:
        return [], []
    if not isinstance(value, Mapping):
        return [], [Violation(path, "must be a map of strings, as in {team: vision}")]
    named = [(f"{path}{bracketed(str(key))}", str(key), text) for key, text in value.items()]
    problems = [
        Violation(field, f"{text!r:.{SHOWN}}: must be a string; put it in quotes")
        for field, _, text in named
        if not isinstance(text, str)
    ]
    return [entry for entry in named if isinstance(entry[2], str)], problems


def _meant(key: object, known: tuple[str, ...]) -> str:
    near = nearest_field(str(key), known)
    return f"did you mean {near}?" if near else f"remove it; the fields are {', '.join(known)}"


def _top(key: object) -> str:
    return member("", str(key)).removeprefix(".")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
