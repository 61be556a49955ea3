"""The tables of facts: one YAML file per script, written by `upstream.command_recipes` and read by everything else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

FOLDER = Path(__file__).with_name("facts")
HEADER = "# Written by `make upstream-facts` (upstream/command_recipes); do not edit.\n"


@dataclass(frozen=True)
class Facts:
    """What one script runs."""

    name: str
    repository: str
    commit: str
    path: str
    module: str
    """Module that python3 -m runs."""
    flags: Mapping[str, str]
    """Hydra key, with its `+`, or an option such as --config-name -> text of the value, in the script's order.
    `$PWD` stands for the folder in which the script is started."""
    environment: Mapping[str, str]
    """Variables that the script, and the scripts before it, export."""


def text_of(facts: Facts) -> str:
    """Return the content of a table."""
    document = {
        "repository": facts.repository,
        "commit": facts.commit,
        "path": facts.path,
        "module": facts.module,
        "environment": dict(sorted(facts.environment.items())),
        "flags": dict(facts.flags),
    }
    return HEADER + yaml.safe_dump(document, sort_keys=False, width=200)


def load_facts(folder: Path = FOLDER) -> dict[str, Facts]:
    """Return all tables by the name of their manifest."""
    documents = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(folder.glob("*.yaml"))}
    return {name: Facts(name=name, **document) for name, document in documents.items()}
