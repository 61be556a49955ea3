"""The recipes of a release: applied when the operator becomes the leader, deleted when a release no longer has them.

Helm cannot install objects of a CRD that it installs itself, so the chart ships them as files. Server-side apply owns
the fields in the files and nothing else; a recipe of the same name that somebody else created is left alone. Running
jobs keep the recipes that they took, so neither an upgrade nor a removal affects them.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rljob.cluster.errors import Conflict, NotFound, OutsideError
from rljob.cluster.kinds import CLUSTER_RL_RECIPE
from rljob.cluster.port import Cluster
from rljob.core.observed import Manifest
from rljob.render.labels import BUILT_IN
from rljob.render.names import LABEL_CHARACTERS
from rljob.telemetry.log import Log

RETRY_SECONDS = 30.0

log = Log(__name__)


@dataclass(frozen=True)
class BuiltIns:
    """The recipes of one release."""

    cluster: Cluster
    folder: Path
    owner: str
    """The installation: recipes of another one are never deleted."""

    async def keep(self) -> None:
        """Apply the recipes, retrying until that succeeds."""
        while not await self.once():  # noqa: ASYNC110 - nothing signals when a retry may succeed
            await asyncio.sleep(RETRY_SECONDS)

    async def once(self) -> bool:
        """Apply the recipes once; return False if a later try may succeed."""
        recipes = read(self.folder, self.owner)
        try:
            for recipe in recipes:
                await self._apply(recipe)
            await self._remove_others({recipe["metadata"]["name"] for recipe in recipes})
        except OutsideError as error:
            log.warning("Built-in recipes could not be applied", reason=error.reason, error=str(error))
            return not error.transient and not isinstance(error, NotFound)
        log.info("Applied the built-in recipes", recipes=len(recipes))
        return True

    async def _apply(self, recipe: Manifest) -> None:
        name = recipe["metadata"]["name"]
        try:
            there = await self.cluster.get(CLUSTER_RL_RECIPE, "", name)
        except NotFound:
            there = None
        if there is not None and (there["metadata"].get("labels") or {}).get(BUILT_IN) != self.owner:
            log.warning("A recipe with the name of a built-in one has another owner and is left alone", name=name)
            return
        await self.cluster.apply(recipe)

    async def _remove_others(self, kept: set[str]) -> None:
        listing = await self.cluster.list(CLUSTER_RL_RECIPE, label_selector=f"{BUILT_IN}={self.owner}")
        for recipe in listing.items:
            metadata = recipe["metadata"]
            if metadata["name"] not in kept:
                try:
                    await self.cluster.delete(CLUSTER_RL_RECIPE, "", metadata["name"], metadata["uid"])
                except (NotFound, Conflict):
                    continue
                log.info("Deleted a built-in recipe that this release no longer has", name=metadata["name"])


def owner_label(namespace: str, name: str) -> str:
    """Return a label value for an installation, at most 63 characters long."""
    text = f"{namespace}.{name}"
    return text if len(text) <= LABEL_CHARACTERS else hashlib.sha256(text.encode()).hexdigest()[:32]


def read(folder: Path, owner: str) -> list[dict[str, Any]]:
    """Read the files of a release; log and skip documents that are not a ClusterRLRecipe."""
    recipes = []
    for path in sorted(folder.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if not isinstance(document, dict) or document.get("kind") != CLUSTER_RL_RECIPE.kind:
                log.warning("Skipped a document that is not a ClusterRLRecipe", file=path.name)
                continue
            metadata = document["metadata"]
            marked = {**metadata, "labels": {**(metadata.get("labels") or {}), BUILT_IN: owner}}
            recipes.append({**document, "metadata": marked})
    return recipes
