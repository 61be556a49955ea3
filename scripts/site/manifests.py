"""Complete the manifests of YAML blocks, so that they can be validated as a reader would use them.

A block with `apiVersion` is complete. Any other is a part of a job's spec, with or without `spec:` above it, and is
laid over a small job of the repository as a job is laid over its recipes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from rljob.core.spec.merge import layer, merge, values
from scripts.site.blocks import Block
from scripts.site.pages import ROOT

Manifest = dict[str, Any]
SHARED_RECIPES = ROOT / "charts/rljob-operator/recipes"


def manifests(block: Block) -> list[Manifest]:
    """Return the complete manifests of a block. Raise ValueError if it is not YAML, or no map."""
    try:
        documents = [document for document in yaml.safe_load_all(block.text) if document is not None]
    except yaml.YAMLError as error:
        raise ValueError(f"{block.place}: {error}") from error
    if not documents or not all(isinstance(document, dict) for document in documents):
        raise ValueError(f"{block.place}: a manifest is a map of fields")
    return [_complete(document, block) for document in documents]


def _complete(document: Manifest, block: Block) -> Manifest:
    if "apiVersion" in document:
        return document
    fields = document["spec"] if set(document) == {"spec"} else document
    base = _base(fields)
    laid = merge([layer("base", base["spec"]), layer(block.place, fields)])
    return base | {"metadata": {"name": f"block-{block.line}"}, "spec": values(laid)}


def _base(fields: Mapping[str, Any]) -> Manifest:
    """Return the job that a part is laid over. It saves checkpoints, because many fields need them."""
    name = "command" if "launcher" in fields else "mindspeed" if _needs_super_pods(fields) else "quickstart"
    documents = yaml.safe_load_all((ROOT / f"examples/{name}.yaml").read_text())
    job: Manifest = next(document for document in documents if document["kind"] == "RLJob")
    if name == "command":
        # The part replaces it as a whole.
        job["spec"].pop("launcher")
    return job | {"spec": {"checkpoint": {"path": "/data/checkpoints", "everySteps": 10}} | job["spec"]}


def _needs_super_pods(fields: Mapping[str, Any]) -> bool:
    accelerator = str((fields.get("accelerator") or {}).get("class", ""))
    return accelerator.startswith("atlas-a3") or bool((fields.get("scheduling") or {}).get("topology"))
