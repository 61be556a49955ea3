"""The checks of `rljob validate`, before a job is sent: recipes of the cluster merged, all violations at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rljob.api.texts import write_texts
from rljob.api.v1alpha1 import API_VERSION, RLJobSpec
from rljob.client import errors, objects
from rljob.client.connection import Connection
from rljob.cluster.kinds import RECIPES, RLJOB
from rljob.control import accelerator_files
from rljob.core.observed import Manifest, RecipeId
from rljob.core.spec.recipes import NOT_IN_CLUSTER, chain_ids
from rljob.core.validation.document import validate_document
from rljob.core.validation.violation import Violation
from rljob.launchers import LAUNCHER
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.accelerators import BUILT_IN


@dataclass(frozen=True)
class Validated:
    """A job that was found valid."""

    spec: RLJobSpec
    """The spec that the job would run with: recipes and defaults applied."""
    warnings: tuple[Violation, ...]
    """Fields that have no effect in this release, and settings that are doubtful."""


def document_of(job: Mapping[str, Any] | RLJobSpec, name: str | None, namespace: str) -> Manifest:
    """Return the manifest to send. `name` replaces that of the manifest, `namespace` is for one that states none."""
    if isinstance(job, RLJobSpec):
        spec = job.model_dump(mode="json", by_alias=True, exclude_unset=True)
        given: Mapping[str, Any] = {"spec": write_texts(spec)}
    else:
        given = job
    metadata = {"namespace": namespace, **(given.get("metadata") or {}), **({"name": name} if name else {})}
    return {"apiVersion": API_VERSION, "kind": RLJOB.kind, **given, "metadata": metadata}


async def validate(connection: Connection, document: Manifest, table: AcceleratorTable) -> Validated:
    """Check a job with the recipes of the cluster. Raise Invalid with all violations."""
    metadata = document["metadata"]
    recipes = await _recipes(connection, document.get("spec") or {}, metadata["namespace"])
    checked = validate_document(document, recipes, launcher=LAUNCHER, accelerators=table, absent=NOT_IN_CLUSTER)
    if checked.spec is None:
        name = metadata.get("name") or metadata.get("generateName") or "without a name"
        raise errors.Invalid(f"rljob {metadata['namespace']}/{name} is invalid:", checked.violations)
    return Validated(checked.spec, checked.warnings)


def read_accelerators(paths: Iterable[str | os.PathLike[str]]) -> AcceleratorTable:
    """Return the classes of the release with those of these files merged over them."""
    listed = [Path(path) for path in paths]
    try:
        return accelerator_files.read_files(listed) if listed else BUILT_IN
    except accelerator_files.AcceleratorsError as error:
        raise errors.ConfigurationError(str(error)) from error


async def _recipes(connection: Connection, spec: object, namespace: str) -> dict[RecipeId, Manifest]:
    """Return the recipes that the job is based on, as far as they exist."""
    found: dict[RecipeId, Manifest] = {}
    absent: set[RecipeId] = set()
    while isinstance(spec, Mapping):
        wanted = [each for each in chain_ids(spec, found.get) if each not in found and each not in absent]
        if not wanted:
            break
        try:
            found[wanted[0]] = await objects.get(connection, RECIPES[wanted[0].kind], namespace, wanted[0].name)
        except errors.NotFound:
            absent.add(wanted[0])
    return found
