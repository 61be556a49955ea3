"""`python -m rljob_runtime.input_checks.reward_probe SETTINGS FD`: load a reward function as verl does and bind a call.

It follows `load_module` and `load_extern_object` of verl/utils/import_utils.py:151-264 (0.9.1) without importing verl,
which takes many seconds; runtime/tests/upstream compares the two on the same files. The answer is one JSON object,
written to the file descriptor FD: `{}`, or the problem, with `volume` true for an error of the volume.
"""

from __future__ import annotations

import errno
import importlib.util
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

TEXT_LIMIT = 600
"""Characters of an exception's own text."""
NAMES_SHOWN = 12
VOLUME_ERRORS = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EREMOTEIO})
"""Errors of a volume, not of the code that reads it."""


class ProblemError(Exception):
    """What is wrong with the file or the function, for the launcher's message."""


def check(settings: dict[str, Any]) -> None:
    """Load the function and bind a call. Raises ProblemError, or OSError if the file itself cannot be read."""
    function = find(load(settings["path"]), settings["name"])
    require_call(function, settings["name"], settings["keywords"])


def load(path: str, *, listed: bool = False) -> ModuleType:
    """Execute the file as a module; `listed`: in the table of modules, without which its dataclasses may not work."""
    if Path(path).is_dir():
        raise ProblemError("is a folder; name a file that ends with .py")
    source = Path(path).read_bytes()
    spec = importlib.util.spec_from_file_location(f"custom_module_{hash(os.path.abspath(path))}", path)  # noqa: PTH100
    if spec is None or spec.loader is None:
        raise ProblemError("its name does not end with .py, so Python cannot import it; rename it")
    try:
        compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise ProblemError(f"does not compile: {syntax_text(error)}; correct the file") from None
    module = importlib.util.module_from_spec(spec)
    if listed:
        sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in VOLUME_ERRORS:
            raise
        missing = isinstance(error, ModuleNotFoundError)
        hint = "install the package in the image, or deliver it with spec.code" if missing else "correct the file"
        raise ProblemError(f"its import raises {error_text(error, path)}; {hint}") from None
    except SystemExit as error:
        where = place(error, path)
        raise ProblemError(f"its import calls exit ({where}); guard it with `if __name__ == '__main__'`") from None
    return module


def find(module: ModuleType, name: str) -> Callable[..., Any]:
    """Return the function."""
    if not hasattr(module, name):
        own = [key for key, value in vars(module).items() if inspect.isfunction(value) and not key.startswith("_")]
        shown = ", ".join(own[:NAMES_SHOWN]) or "none"
        raise ProblemError(f"has no function {name} (reward.function); its functions: {shown}")
    function = getattr(module, name)
    if not callable(function):
        raise ProblemError(f"{name} (reward.function) is of type {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def require_call(function: Callable[..., Any], name: str, keywords: list[str]) -> None:
    """Raise ProblemError if verl's call of the function cannot work."""
    if not keywords:
        return
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ProblemError(f"{name} yields; verl expects that it returns a number, or a dict with a score")
    if not inspect.isroutine(function) and inspect.iscoroutinefunction(type(function).__call__):
        raise ProblemError(f"{name} is an object with an async __call__, which verl calls without await; use async def")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # A function of an extension module has no signature.
    try:
        signature.bind(**dict.fromkeys(keywords))
    except TypeError as error:
        raise ProblemError(
            f"{name}{cut(str(signature), 200)} cannot be called as verl calls it, by the keywords "
            f"{', '.join(keywords)}: {error}; give it these parameters, or **kwargs"
        ) from None


def syntax_text(error: SyntaxError | ValueError) -> str:
    """Describe an error of the compiler with line and text."""
    if not isinstance(error, SyntaxError) or error.lineno is None:
        return cut(str(error))  # null bytes, or an unknown encoding
    text = (error.text or "").strip()
    return f"line {error.lineno}: {cut(error.msg)}" + (f": `{cut(text, 80)}`" if text else "")


def error_text(error: BaseException, path: str) -> str:
    """Describe an exception with its place, preferably in the user's file."""
    return f"{type(error).__name__}: {cut(' '.join(str(error).split()))} ({place(error, path)})"


def place(error: BaseException, path: str) -> str:
    """Return `file:line` of the last frame in the user's file, or of the last frame at all."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == path]
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno}"


def cut(text: str, limit: int = TEXT_LIMIT) -> str:
    """Bound a text."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def answer(checks: Callable[[dict[str, Any]], None]) -> None:
    """Check the settings of the command line, and write the answer."""
    settings, descriptor = json.loads(sys.argv[1]), int(sys.argv[2])
    found: dict[str, Any] = {}
    try:
        checks(settings)
    except ProblemError as error:
        found = {"problem": str(error)}
    except OSError as error:
        found = {"problem": str(error), "volume": True}
    sys.stdout.flush()
    os.write(descriptor, json.dumps(found).encode())
    # Threads that the user's file has started must not keep the process alive.
    os._exit(0)


if __name__ == "__main__":
    answer(check)
