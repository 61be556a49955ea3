"""Run the unit tests of the runtime on every supported interpreter that this machine has. `make compat` calls it.

The runtime is injected into images with a Python of their own, while `make test` uses one interpreter. Each interpreter
gets a virtual environment with the packages of requirements/compat.txt, which is kept in the cache until the lock or
the interpreter changes. The runtime itself comes from its wheel, on PYTHONPATH as in the pods.
"""

from __future__ import annotations

import enum
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime.image_check.requirements import PYTHON_BELOW, PYTHON_MINIMUM
from scripts.stages import end_group
from scripts.wheels import build
from tests.cluster.paths import cache_folder

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements/compat.txt"
UV = Path(sys.executable).parent / "uv"
LOGS = ROOT / "build/compat"
TESTS = ("runtime/tests", "--ignore=runtime/tests/upstream")
"""The tests in `upstream` need the packages of the runtime image."""
VERSIONS = tuple(f"{PYTHON_MINIMUM[0]}.{minor}" for minor in range(PYTHON_MINIMUM[1], PYTHON_BELOW[1]))
QUERY = (
    "import platform, sys; print(sys.executable, platform.python_version(), '.'.join(map(str, sys.version_info[:2])))"
)
QUERY_SECONDS = 20
INSTALL_SECONDS = 600
TEST_SECONDS = 1800
"""Deadlines of starting an interpreter, of each step of an installation, and of the tests on one interpreter."""
PYTHON_VARIABLES = frozenset({"PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"})
TAIL_LINES = 40


@dataclass(frozen=True)
class Interpreter:
    """An interpreter of this machine."""

    path: Path
    release: str
    """Such as 3.12.1."""


class Verdict(enum.StrEnum):
    """Result of one version."""

    PASSED = "passed"
    FAILED = "FAILED"
    ABSENT = "absent"


@dataclass(frozen=True)
class Result:
    """Result of the tests on one version of Python."""

    version: str
    verdict: Verdict
    interpreter: Interpreter | None = None
    note: str = ""


def find(version: str, environ: Mapping[str, str] = os.environ) -> Interpreter | None:
    """Return the first interpreter of a version on PATH or among pyenv's that starts, or None."""
    for path in _candidates(version, environ):
        try:
            said = subprocess.run(
                [path, "-c", QUERY],
                capture_output=True,
                text=True,
                timeout=QUERY_SECONDS,
                check=False,
                env={name: value for name, value in environ.items() if name not in PYTHON_VARIABLES},
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        # A shim of pyenv fails if its version is not selected.
        words = said.stdout.split()
        if said.returncode == 0 and len(words) == 3 and words[2] == version:
            return Interpreter(Path(words[0]), words[1])
    return None


def _candidates(version: str, environ: Mapping[str, str]) -> Iterator[Path]:
    name = f"python{version}"
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        if folder and (found := shutil.which(name, path=folder)):
            yield Path(found)
    root = Path(environ.get("PYENV_ROOT") or Path(environ.get("HOME") or "~").expanduser() / ".pyenv")
    folders = sorted((root / "versions").glob(f"{version}.*"), key=lambda each: _numbers(each.name), reverse=True)
    yield from (folder / "bin" / name for folder in folders)


def _numbers(release: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", release)]


def environment_folder(interpreter: Interpreter, lock: bytes) -> Path:
    """Return the folder of an interpreter's virtual environment, which the lock and the interpreter determine."""
    key = hashlib.sha256(b"\0".join((lock, str(interpreter.path).encode(), interpreter.release.encode()))).hexdigest()
    return cache_folder() / "compat" / f"{interpreter.release}-{key[:16]}"


def prepare(interpreter: Interpreter, requirements: Path) -> Path:
    """Create the virtual environment unless it exists, and return its Python. Raise CalledProcessError or OSError."""
    folder = environment_folder(interpreter, requirements.read_bytes())
    python, ready = folder / "bin/python", folder / "ready"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        # Several checkouts share the cache.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _uv("venv", "--quiet", "--python", str(interpreter.path), str(folder))
            _uv("pip", "sync", "--quiet", "--require-hashes", "--python", str(python), str(requirements))
            ready.touch()
    return python


def _uv(*words: str) -> None:
    subprocess.run([UV, *words], check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)


def run_tests(python: Path, code: Path, log: Path, tests: Sequence[str] = TESTS) -> tuple[bool, str]:
    """Run pytest with the runtime in the folder `code`. Return whether all passed, and the last line of its output."""
    inherited = {name: value for name, value in os.environ.items() if name not in PYTHON_VARIABLES}
    words = [str(python), "-m", "pytest", "-q", "--timeout=600", *tests]
    with log.open("w") as output:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env={**inherited, "PYTHONPATH": str(code)},
            stdin=subprocess.DEVNULL,
            text=True,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            passed = process.wait(TEST_SECONDS) == 0
        except subprocess.TimeoutExpired:
            return False, f"not finished after {TEST_SECONDS} s"
        finally:
            end_group(process)
    lines = log.read_text(errors="replace").splitlines()
    if not passed:
        print("\n".join(lines[-TAIL_LINES:]), flush=True)
    return passed, lines[-1].strip("= ") if lines else "no output"


def check(version: str, code: Path) -> Result:
    """Run the tests on one version of Python."""
    interpreter = find(version)
    if interpreter is None:
        return Result(version, Verdict.ABSENT)
    print(f"Python {interpreter.release}, {interpreter.path}: preparing its environment", flush=True)
    try:
        python = prepare(interpreter, LOCK)
    except subprocess.CalledProcessError as error:
        return Result(version, Verdict.FAILED, interpreter, f"environment: {' '.join(error.stderr.split())[-300:]}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Result(version, Verdict.FAILED, interpreter, f"environment: {error}")
    log = LOGS / f"{version}.log"
    print(f"Python {interpreter.release}: running the tests, log in {log.relative_to(ROOT)}", flush=True)
    passed, note = run_tests(python, code, log)
    return Result(version, Verdict.PASSED if passed else Verdict.FAILED, interpreter, note)


def page(results: Sequence[Result]) -> str:
    """Return the table of results."""
    rows = [("python", "result", "interpreter", "tests")]
    for each in results:
        found = each.interpreter
        place = f"{found.release} {found.path}" if found else "neither on PATH nor among pyenv's"
        rows.append((each.version, each.verdict.value, place, each.note))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def exit_code(results: Sequence[Result]) -> int:
    """Return 1 if a present interpreter fails, or if none is present."""
    verdicts = {each.verdict for each in results}
    return 1 if Verdict.FAILED in verdicts or verdicts <= {Verdict.ABSENT} else 0


def main() -> int:
    """Run the tests on every version, print the table, and return the exit code."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rljob-compat-") as folder:
        code = Path(folder) / "code"
        (wheel,) = build(Path(folder), ("runtime",))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(code)
        results = [check(version, code) for version in VERSIONS]
    print(page(results), flush=True)
    return exit_code(results)


if __name__ == "__main__":
    sys.exit(main())
