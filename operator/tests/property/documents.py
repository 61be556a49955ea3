"""The examples, the golden jobs and the recipes, read once, and their specs: what valid manifests look like."""

from __future__ import annotations

from pathlib import Path

from builders import Json, small_spec
from corpus.good import GOOD

from rljob.api.v1alpha1 import RecipeKind
from rljob.api.yaml11 import load_all

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("examples", "operator/tests/golden/jobs", "charts/rljob-operator/recipes")
PATHS = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.yaml"))
DOCUMENTS = [document for path in PATHS for document in load_all(path.read_text())]


def found(kinds: set[str]) -> list[Json]:
    """Return the manifests of some kinds."""
    return [document for document in DOCUMENTS if isinstance(document, dict) and document.get("kind") in kinds]


RECIPES = found({kind.value for kind in RecipeKind})
SPECS = [document["spec"] for document in found({"RLJob"})]
# A recipe alone lacks required fields; merged over a small job, its arithmetic is reached.
SPECS += [small_spec(recipe["spec"]["template"]) for recipe in RECIPES]
GOOD_SPECS = [*SPECS, *(small_spec(change) for change in GOOD.values())]
