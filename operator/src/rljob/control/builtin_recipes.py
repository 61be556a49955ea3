"""The recipes that come with a release: applied when the operator begins to lead, removed when a release drops them.

Helm cannot install objects of a CRD that it installs itself, so the chart brings them as files. Server-side apply owns
what the files say and nothing else; a recipe of the same name that somebody else made is left alone. Jobs stand on what
they took, so neither an upgrade nor a removal reaches them.
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
    """The installation: another one's built-ins are not ours to remove."""

    async def keep(self) -> None:
        """Bring the cluster up to the release, with patience; ends when that is done."""
        while not await self.once():  # noqa: ASYNC110 - nobody tells when a later try will do better
            await asyncio.sleep(RETRY_SECONDS)

    async def once(self) -> bool:
        """Try it; False if the API server did not answer and a later try may do better."""
        recipes = read(self.folder, self.owner)
        try:
            for recipe in recipes:
                await self._apply(recipe)
            await self._remove_others({recipe["metadata"]["name"] for recipe in recipes})
        except OutsideError as error:
            log.warning("The built-in recipes could not be applied", reason=error.reason, error=str(error))
            return not error.transient and not isinstance(error, NotFound)
        log.info("Built-in recipes are applied", recipes=len(recipes))
        return True

    async def _apply(self, recipe: Manifest) -> None:
        name = recipe["metadata"]["name"]
        try:
            there = await self.cluster.get(CLUSTER_RL_RECIPE, "", name)
        except NotFound:
            there = None
        if there is not None and (there["metadata"].get("labels") or {}).get(BUILT_IN) != self.owner:
            log.warning("A recipe of somebody else has the name of a built-in one and is left alone", name=name)
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
                log.info("A built-in recipe is not part of this release any more", name=metadata["name"])


def owner_label(namespace: str, name: str) -> str:
    """Name an installation such that it fits a label, of at most 63 characters."""
    text = f"{namespace}.{name}"
    return text if len(text) <= LABEL_CHARACTERS else hashlib.sha256(text.encode()).hexdigest()[:32]


def read(folder: Path, owner: str) -> list[dict[str, Any]]:
    """Read the files of a release; one that holds something else than a ClusterRLRecipe is told and passed over."""
    recipes = []
    for path in sorted(folder.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if not isinstance(document, dict) or document.get("kind") != CLUSTER_RL_RECIPE.kind:
                log.warning("Not a ClusterRLRecipe", file=path.name)
                continue
            metadata = document["metadata"]
            marked = {**metadata, "labels": {**(metadata.get("labels") or {}), BUILT_IN: owner}}
            recipes.append({**document, "metadata": marked})
    return recipes
