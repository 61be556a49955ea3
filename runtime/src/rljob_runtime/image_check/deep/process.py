"""Imports modules one after another, and writes a line of JSON about each: `process FD MODULE ...`.

A process of its own, because an import may end it, hang, or leave threads behind. It writes to a descriptor of its own,
since packages print as they are imported.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import traceback
from typing import Any

from rljob_runtime.image_check.seam import Seam
from rljob_runtime.image_check.seams import TABLE

TEXT_MAX = 400
NO_NAME = "cannot import name"


def main(arguments: list[str]) -> None:
    """Import the modules, and end without the exit handlers of what was imported."""
    with os.fdopen(int(arguments[0]), "w", buffering=1) as answers:
        for name in arguments[1:]:
            answers.write(json.dumps({"module": name, **answer(name)}) + "\n")
    os._exit(0)


def answer(module: str) -> dict[str, Any]:
    """Import a module; return what failed, or what its seams are now."""
    try:
        loaded = importlib.import_module(module)
    except BaseException as error:  # noqa: BLE001 - whatever an import raises is the answer, SystemExit included
        return {"failure": failure(error)}
    seams = {seam.name: found for seam in TABLE if seam.module == module and (found := seen(loaded, seam)) is not None}
    return {"seams": seams}


def failure(error: BaseException) -> dict[str, str]:
    """Describe why an import failed: in which file, and which module it lacks or could not read a name from."""
    frames = list(traceback.walk_tb(error.__traceback__))
    # Frames of the import system itself say nothing.
    own = [(frame, line) for frame, line in frames if "importlib" not in frame.f_code.co_filename] or frames
    frame, line = own[-1]
    text = " ".join(str(error).split())
    return {
        "kind": type(error).__name__,
        "text": text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}…",
        "lacks": lacks(error) or "",
        "in": str(frame.f_globals.get("__name__", "")),
        "line": str(line),
    }


def lacks(error: BaseException) -> str | None:
    """Return the module that is missing, or that lacks a name. An extension's library that is missing has neither."""
    if isinstance(error, ModuleNotFoundError) or (isinstance(error, ImportError) and NO_NAME in str(error)):
        return error.name
    return None


def seen(module: object, seam: Seam) -> dict[str, Any] | None:
    """Return what a loaded module has of a seam: `parameters`, or `problem`. None: there is nothing to compare."""
    if seam.parameters is None:
        return None
    holder: Any = module
    for name in seam.attribute.split("."):
        if not hasattr(holder, name):
            return {"problem": f"{seam.module} has no {seam.attribute} once it is imported"}
        holder = getattr(holder, name)
    try:
        parameters = list(inspect.signature(inspect.unwrap(getattr(holder, "__func__", holder))).parameters)
    except (TypeError, ValueError):
        return None  # of a class of Ray's, or compiled
    return {"parameters": parameters}


if __name__ == "__main__":
    main(sys.argv[1:])
