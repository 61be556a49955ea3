"""Read RLJobs and recipes from files: YAML or JSON, any number of documents or lists; other kinds are kept aside."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from rljob.api import yaml11
from rljob.api.v1alpha1 import API_VERSION, RecipeKind
from rljob.cli.errors import UsageError
from rljob.core.observed import Manifest, RecipeId
from rljob.core.spec.recipes import Recipes, recipe_id
from rljob.core.validation.document import NAMESPACE

STDIN = "-"
SUFFIXES = frozenset({".yaml", ".yml", ".json"})
DEFAULT_NAMESPACE = "default"
FOLDERS_SHOWN = 8
ITEM_SHOWN = 60
"""Characters of an item that a message shows."""
JOB_KIND = "RLJob"
RECIPE_KINDS = frozenset(kind.value for kind in RecipeKind)
LIST_KINDS = frozenset({"List", *(f"{kind}List" for kind in (JOB_KIND, *RECIPE_KINDS))})
"""`kubectl get -o yaml` writes List, the API server a list of the kind."""
SERVER_FIELDS = frozenset(
    {"uid", "generation", "resourceVersion", "creationTimestamp", "managedFields", "selfLink", "ownerReferences"}
)
"""Metadata that the server or a controller writes; what a file says about it is not used."""


@dataclass(frozen=True)
class JobManifest:
    """One RLJob as written in a file."""

    source: str
    namespace: str
    name: str
    """Name, or prefix* if metadata.generateName is set instead."""
    document: Manifest
    """The whole manifest."""

    @property
    def spec(self) -> Mapping[str, Any]:
        """The spec as written."""
        found: Mapping[str, Any] = self.document.get("spec") or {}
        return found

    @property
    def is_named(self) -> bool:
        """Return whether the name is known before the job is created."""
        return bool((self.document.get("metadata") or {}).get("name"))


@dataclass(frozen=True)
class Files:
    """The content of the files."""

    jobs: tuple[JobManifest, ...]
    recipes: Recipes
    others: tuple[Manifest, ...] = ()
    """Objects of other kinds, such as ConfigMaps, Secrets and claims, which a local run uses."""
    skipped: tuple[str, ...] = ()
    """Folders within the folders, which kubectl does not read either without -R."""

    @property
    def note(self) -> str:
        """A note about the folders that were not read."""
        return _unread(self.skipped)


def read_files(sources: Sequence[str], namespace: str | None = None, given: str | None = None) -> Files:
    """Return the RLJobs and recipes of files and folders, or of standard input for `-`.

    `namespace` is that of jobs which state none, `given` the text of standard input if it has been read already.
    """
    if namespace and not NAMESPACE.fullmatch(namespace):
        raise UsageError(
            f"--namespace {namespace!r} must be at most 63 lower-case letters, digits and '-', such as team-a"
        )
    if sources.count(STDIN) > 1:
        raise UsageError("standard input (-) is given twice, but can be read once; name a file instead")
    skipped = tuple(folder for place in sources for folder in _folders_within(place))
    documents = [
        (source, document) for place in sources for source in _places(place) for document in _documents(source, given)
    ]
    return collect(documents, ", ".join(sources), namespace, skipped)


def collect(
    documents: Iterable[tuple[str, object]],
    sources: str,
    namespace: str | None = None,
    skipped: tuple[str, ...] = (),
) -> Files:
    """Sort documents, each with its source, by kind; `skipped` are the folders that were not read. Pure."""
    jobs: list[JobManifest] = []
    recipes: dict[RecipeId, Manifest] = {}
    others: list[Manifest] = []
    kinds: set[str] = set()
    for source, document in _flattened(documents):
        kind = _kind(document)
        kinds.add(kind or "object without kind")
        if kind == JOB_KIND:
            jobs.append(_in_namespace(_job(source, document), namespace))
        elif kind in RECIPE_KINDS:
            recipe = _recipe(source, document)
            recipes[recipe_id(recipe)] = recipe
        elif kind:
            others.append(document)
    if not jobs:
        raise UsageError(
            f"{sources}: contains no RLJob; found {', '.join(sorted(kinds)) or 'nothing'}. Pass a manifest with "
            f"apiVersion {API_VERSION} and kind {JOB_KIND}{f'; {_unread(skipped)}' if skipped else ''}"
        )
    return Files(tuple(jobs), recipes, tuple(others), skipped)


def _unread(folders: Sequence[str]) -> str:
    listed = ", ".join(folders[:FOLDERS_SHOWN]) + (", …" if len(folders) > FOLDERS_SHOWN else "")
    return f"folders within a folder are not read: {listed}; pass each with -f"


def _flattened(documents: Iterable[tuple[str, object]]) -> Iterator[tuple[str, Any]]:
    for source, document in documents:
        for item in _flat(source, document):
            yield source, item


def _flat(source: str, document: Any, place: str = "") -> Iterator[Any]:  # noqa: ANN401 - JSON
    """Yield a document, or each item of a list."""
    if (kind := _kind(document)) not in LIST_KINDS:
        yield document
        return
    items = document.get("items")
    if not isinstance(items, list | None):
        raise UsageError(f"{source}: items of {kind} must be a list of manifests, as `kubectl get -o yaml` writes it")
    for index, item in enumerate(items or ()):
        here = f"{place}items[{index}]"
        if not isinstance(item, Mapping):
            raise UsageError(
                f"{source}: {here} of {kind} is {_shown(item)}, not a manifest; write an object there, or remove it"
            )
        # The API server may leave out the kind of the items, which the list's own states.
        typed = kind != "List"
        defaults = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")} if typed else {}
        if not _kind(item) and not typed:
            raise UsageError(f"{source}: {here} of {kind} has no kind, so it is not a manifest; set it, or remove it")
        yield from _flat(source, {**defaults, **item}, f"{here}.")


def _shown(item: object) -> str:
    text = json.dumps(item, ensure_ascii=False)
    return text if len(text) <= ITEM_SHOWN else f"{text[: ITEM_SHOWN - 1]}…"


def _places(source: str) -> list[str]:
    path = Path(source)
    if source == STDIN or not path.is_dir():
        return [source]
    return [str(found) for found in sorted(path.iterdir()) if found.suffix in SUFFIXES and not found.is_dir()]


def _folders_within(source: str) -> list[str]:
    """Return the folders of a folder, without hidden ones such as .git."""
    path = Path(source)
    if source == STDIN or not path.is_dir():
        return []
    return [str(found) for found in sorted(path.iterdir()) if found.is_dir() and not found.name.startswith(".")]


def read_standard_input() -> str:
    """Return the text of standard input, for a command that passes it on. Raise UsageError as `read_files` does."""
    try:
        return _text(STDIN)
    except UnicodeDecodeError as error:
        raise UsageError(f"{STDIN}: not YAML: {error}; pass text in UTF-8") from error


def _documents(source: str, given: str | None) -> list[Any]:
    try:
        text = given if source == STDIN and given is not None else _text(source)
        return [document for document in yaml11.load_all(text) if document is not None]
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}; pass a file, a folder or - for standard input") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{source}: not YAML: {_where(error)}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{source}: not YAML: {error}; save the file as UTF-8") from error
    except RecursionError as error:
        raise UsageError(f"{source}: nested too deeply for a manifest") from error


def _where(error: yaml.YAMLError) -> str:
    """Return what is wrong and where, in one line."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    context = getattr(error, "context", None)
    problem = getattr(error, "problem", None) or "cannot be read"
    text = f"{problem}, {context}" if context else problem
    return f"line {mark.line + 1}, column {mark.column + 1}: {text}; correct the file there"


def _text(source: str) -> str:
    """Read a file, and no more than the maximum."""
    if source == STDIN:
        text = sys.stdin.read(yaml11.SIZE_MAX + 1)
        size = len(text)
    else:
        with Path(source).open("rb") as file:
            read = file.read(yaml11.SIZE_MAX + 1)
        text, size = read.decode("utf-8-sig"), len(read)
    if size > yaml11.SIZE_MAX:
        raise UsageError(f"{source}: larger than {yaml11.SIZE_MAX >> 20} MiB; split it, or pass fewer objects")
    return text


def _kind(document: object) -> str:
    return str(document.get("kind") or "") if isinstance(document, Mapping) else ""


def _job(source: str, document: Mapping[str, Any]) -> JobManifest:
    metadata, _ = _sections(source, document)
    # Values of a wrong type are reported by core.validation.document.
    name = str(metadata.get("name") or "")
    if not name and (prefix := metadata.get("generateName")):
        name = f"{prefix}*"
    return JobManifest(source, str(metadata.get("namespace") or ""), name, document)


def _in_namespace(job: JobManifest, namespace: str | None) -> JobManifest:
    """Apply -n as kubectl does: to a manifest without a namespace, or with the same one."""
    if namespace and job.namespace not in ("", namespace):
        raise UsageError(
            f"{job.source}: {job.name} is in namespace {job.namespace}, which contradicts --namespace {namespace}; "
            "leave out one of them"
        )
    return replace(job, namespace=job.namespace or namespace or DEFAULT_NAMESPACE)


def _recipe(source: str, document: Mapping[str, Any]) -> Manifest:
    metadata, _ = _sections(source, document)
    if not metadata.get("name"):
        raise UsageError(
            f"{source}: a {document['kind']} has no metadata.name; jobs refer to it by its name, so set it"
        )
    return {**document, "metadata": {key: value for key, value in metadata.items() if key not in SERVER_FIELDS}}


def _sections(source: str, document: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    kind = document["kind"]
    if (version := document.get("apiVersion")) != API_VERSION:
        raise UsageError(
            f"{source}: {kind} has apiVersion {version!r}; this version reads {API_VERSION}, so set apiVersion to it"
        )
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
        raise UsageError(f"{source}: metadata and spec of {kind} must be mappings, as in {{name: value}}")
    return metadata, spec
