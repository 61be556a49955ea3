"""The models and data sets that the built-in recipes download, as commands of the hubs' own clients.

`uvx` runs the clients in the pinned versions: others read the same words differently. hf of huggingface_hub 0.36 takes
only the last of several --include, and modelscope 1.35 has no --local-dir.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from rljob_runtime.contract.downloads import DatasetName, Hub
from rljob_runtime.initializers.datasets import TABLE
from scripts.release.images import ROOT

RECIPES = ROOT / "charts/rljob-operator/recipes"
CLIENTS = {
    Hub.HUGGING_FACE: ("uvx", "--from", "huggingface_hub==2.4.0", "hf"),
    Hub.MODEL_SCOPE: ("uvx", "--from", "modelscope-hub==0.5.1", "modelscope"),
}
"""Hub -> its client. Both take the options --repo-type, --include (once for each pattern) and --local-dir."""


def downloads() -> list[dict[str, Any]]:
    """Return what the built-in recipes download."""
    recipes = [yaml.safe_load(path.read_text()) for path in sorted(RECIPES.glob("*.yaml"))]
    steps = [step for recipe in recipes for step in recipe["spec"]["template"].get("initializers", ())]
    return [step["download"] for step in steps if "download" in step]


def commands(folder: Path, hub: Hub) -> dict[str, list[str]]:
    """Return a command for each repository, whose files keep their paths below its name."""
    found: dict[str, list[str]] = {}
    for download in downloads():
        words = ["--revision", download["revision"]] if "revision" in download else []
        if "dataset" in download:
            entry = TABLE[DatasetName(download["dataset"])]
            name, place = download.get("repository") or entry.repositories[hub], folder / "data"
            patterns = [word for pattern in entry.patterns for word in ("--include", pattern)]
            words += ["--repo-type", "dataset", *patterns]
        else:
            name, place = download["repository"], folder / "models"
        found[name] = [*CLIENTS[hub], "download", name, *words, "--local-dir", str(place / name)]
    return found
