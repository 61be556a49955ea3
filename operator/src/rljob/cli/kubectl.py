"""One object from the cluster, through kubectl: it knows every way to sign in, and whoever has RLJobs has it."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

from rljob.api.v1alpha1 import GROUP, RecipeKind
from rljob.cli.errors import UsageError
from rljob.core.observed import RecipeId

TIMEOUT_SECONDS = 20


@dataclass(frozen=True)
class Place:
    """Which cluster and namespace; None: those of the current context."""

    namespace: str | None = None
    context: str | None = None


def get_job(name: str, place: Place) -> dict[str, Any]:
    """GET an RLJob."""
    return _get(f"rljobs.{GROUP}", name, place)


def get_config_map(name: str, place: Place) -> dict[str, Any]:
    """GET a ConfigMap."""
    return _get("configmaps", name, place)


def find_recipe(recipe: RecipeId, place: Place) -> dict[str, Any] | None:
    """GET a recipe; None where there is none."""
    plural = "rlrecipes" if recipe.kind is RecipeKind.RL_RECIPE else "clusterrlrecipes"
    try:
        return _get(f"{plural}.{GROUP}", recipe.name, place)
    except NotFoundError:
        return None


class NotFoundError(UsageError):
    """The cluster has no such object."""


def _get(resource: str, name: str, place: Place) -> dict[str, Any]:
    if shutil.which("kubectl") is None:
        raise UsageError("kubectl is not on the PATH; the cluster is read through it")
    words = ["kubectl", "get", resource, name, "--output", "json"]
    words += ["--namespace", place.namespace] if place.namespace else []
    words += ["--context", place.context] if place.context else []
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"kubectl gave no answer within {TIMEOUT_SECONDS} s; is the cluster up?") from error
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        raise (NotFoundError if "(NotFound)" in said else UsageError)(f"kubectl: {said}")
    manifest: dict[str, Any] = json.loads(done.stdout)
    return manifest
