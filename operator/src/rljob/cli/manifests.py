"""Read RLJobs and recipes from files: YAML or JSON, any number of documents; other kinds are kept aside."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rljob.api.v1alpha1 import API_VERSION, RecipeKind
from rljob.cli import yaml11
from rljob.cli.errors import UsageError
from rljob.core.observed import Manifest, RecipeId
from rljob.core.spec.recipes import Recipes, recipe_id

STDIN = "-"
SUFFIXES = frozenset({".yaml", ".yml", ".json"})


RECIPE_KINDS = frozenset(kind.value for kind in RecipeKind)


@dataclass(frozen=True)
class JobManifest:
    """One RLJob as written in a file."""

    source: str
    namespace: str
    name: str
    spec: Mapping[str, Any]


@dataclass(frozen=True)
class Files:
    """The content of the files."""

    jobs: tuple[JobManifest, ...]
    recipes: Recipes
    others: tuple[Manifest, ...] = ()
    """Objects of other kinds, such as ConfigMaps, Secrets and claims, which a local run uses."""


def read_files(sources: Sequence[str]) -> Files:
    """Return the RLJobs and recipes of files and folders, or of standard input for `-`."""
    jobs: list[JobManifest] = []
    recipes: dict[RecipeId, Manifest] = {}
    others: list[Manifest] = []
    kinds: set[str] = set()
    for source in [place for given in sources for place in _places(given)]:
        for document in _documents(source):
            kind = _kind(document)
            kinds.add(kind or "object without kind")
            if kind == "RLJob":
                jobs.append(_job(source, document))
            elif kind in RECIPE_KINDS:
                recipe = _recipe(source, document)
                recipes[recipe_id(recipe)] = recipe
            elif kind:
                others.append(document)
    if not jobs:
        raise UsageError(f"{', '.join(sources)}: contains no RLJob; found {', '.join(sorted(kinds)) or 'nothing'}")
    return Files(tuple(jobs), recipes, tuple(others))


def _places(source: str) -> list[str]:
    path = Path(source)
    if source == STDIN or not path.is_dir():
        return [source]
    return [str(found) for found in sorted(path.iterdir()) if found.suffix in SUFFIXES]


def _documents(source: str) -> list[Any]:
    try:
        text = sys.stdin.read() if source == STDIN else Path(source).read_text()
        return [document for document in yaml11.load_all(text) if document is not None]
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{source}: not YAML: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{source}: nested too deeply for a manifest") from error


def _kind(document: object) -> str:
    return str(document.get("kind", "")) if isinstance(document, Mapping) else ""


def _job(source: str, document: Mapping[str, Any]) -> JobManifest:
    metadata, spec = _sections(source, document)
    return JobManifest(source, str(metadata.get("namespace", "default")), str(metadata.get("name", "")), spec)


def _recipe(source: str, document: Mapping[str, Any]) -> Manifest:
    metadata, _ = _sections(source, document)
    if not metadata.get("name"):
        raise UsageError(f"{source}: a {document['kind']} has no metadata.name")
    return document


def _sections(source: str, document: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    kind = document["kind"]
    if (version := document.get("apiVersion")) != API_VERSION:
        raise UsageError(f"{source}: {kind} has apiVersion {version!r}; this version reads {API_VERSION}")
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
        raise UsageError(f"{source}: metadata and spec of {kind} must be mappings")
    return metadata, spec
