"""The tables of flags: one YAML file per script, written by `upstream.verl_scripts` and read by everything else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from upstream.verl_scripts.hydra_value import Value, parse_value
from upstream.verl_scripts.record import Call

FOLDER = Path(__file__).with_name("flags")
OTHERS = Path(__file__).with_name("without_table.yaml")
"""Scripts for NPUs that start something else than verl's trainer, or start it through another script."""
REPOSITORY = "verl-project/verl"
COMMIT = "1dda039b9c6311889a9c9a26040677e1254814f9"
"""Of the main branch, 2026-08-22: the last commit before release 0.9.1 (2026-09-20) whose scripts were available. The
sdist of the release has no examples."""
HEADER = "# Written by `make upstream-facts` (upstream/verl_scripts); do not edit.\n"


@dataclass(frozen=True)
class Script:
    """What one script passes to verl's trainer."""

    path: str
    """In the repository."""
    flags: Mapping[str, str]
    """Hydra key, with its `+`, or an option of Hydra such as --config-name -> text of the value."""
    environment: Mapping[str, str]

    @property
    def values(self) -> dict[str, Value]:
        """Return the Hydra keys with their parsed values."""
        return {key: parse_value(text) for key, text in self.flags.items() if not key.startswith("--")}


def script_of(path: str, call: Call) -> Script:
    """Return the facts about a call; a later flag takes the place of an earlier one, as in Hydra."""
    pairs = [word.partition("=") for word in call.arguments if "=" in word]
    return Script(path, {key: value for key, _, value in pairs}, call.environment)


def file_of(path: str) -> str:
    """Return the name of a script's table."""
    return path.removesuffix(".sh").replace("/", "__") + ".yaml"


def text_of(script: Script) -> str:
    """Return the content of a script's table."""
    document = {
        "repository": REPOSITORY,
        "commit": COMMIT,
        "path": script.path,
        "environment": dict(sorted(script.environment.items())),
        "flags": dict(script.flags),
    }
    return HEADER + yaml.safe_dump(document, sort_keys=False, width=200)


def load_scripts(folder: Path = FOLDER) -> tuple[Script, ...]:
    """Return all tables."""
    documents = (yaml.safe_load(path.read_text()) for path in sorted(folder.glob("*.yaml")))
    return tuple(Script(found["path"], found["flags"], found["environment"]) for found in documents)


def scripts_without_table() -> tuple[str, ...]:
    """Return the scripts for NPUs that have no table."""
    return tuple(yaml.safe_load(OTHERS.read_text()))
