"""Runs in the pods of the shared run: writes a hash of every rank's weights after each save and each load of verl.

verl imports it by VERL_USE_EXTERNAL_MODULES, before its checkpoint manager exists, so the manager is wrapped when it is
imported. It uses nothing of this repository.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import json
import os
import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(os.environ.get("WEIGHT_HASHES", "/data/weight-hashes"))
HOLD = int(os.environ.get("WEIGHT_HASHES_HOLD", "0"))
"""Step whose save waits until the test releases the run."""
HOLD_SECONDS = 600
MANAGER = "verl.utils.checkpoint.fsdp_checkpoint_manager"


class Wrapping(importlib.abc.MetaPathFinder):
    """Wraps the manager's methods as soon as its module has been imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ANN401 - as in abc
        """Return the module's own spec with a loader that wraps what it defines."""
        del path, target
        if name != MANAGER:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def wrapped(module: ModuleType) -> None:
            execute(module)
            for event in ("save", "load"):
                _wrap(module.FSDPCheckpointManager, event)

        spec.loader.exec_module = wrapped  # type: ignore[method-assign]
        return spec


def _wrap(manager: Any, event: str) -> None:  # noqa: ANN401 - a class of verl
    name = f"{event}_checkpoint"
    method = getattr(manager, name)

    def recorded(self: Any, local_path: str, *words: Any, **options: Any) -> Any:  # noqa: ANN401 - as in verl
        result = method(self, local_path, *words, **options)
        if local_path is not None:
            step = next(part for part in Path(local_path).parts if part.startswith("global_step_"))
            line = {"event": event, "step": int(step.rpartition("_")[2]), "rank": self.rank, "hash": _hash(self.model)}
            FOLDER.mkdir(parents=True, exist_ok=True)
            with (FOLDER / f"rank-{self.rank}.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            if (event, line["step"]) == ("save", HOLD):
                _hold()
        return result

    setattr(manager, name, recorded)


def _hold() -> None:
    deadline = time.monotonic() + HOLD_SECONDS
    while not (FOLDER / "released").exists() and time.monotonic() < deadline:
        time.sleep(0.5)


def _hash(model: Any) -> str:  # noqa: ANN401 - a model of torch
    found = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        shard = value.to_local() if hasattr(value, "to_local") else value
        found.update(name.encode() + shard.detach().float().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


sys.meta_path.insert(0, Wrapping())
