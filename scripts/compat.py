"""Test the product beside other releases than the pinned ones. `make compat` calls it; see docs/compatibility.md.

On every supported interpreter that this machine has: the unit tests of the runtime, which is injected into images with
a Python of their own, and those of the command line, which runs on users' machines. Each gets virtual environments with
the packages of a lock, which are kept in the cache until the lock or the interpreter changes; the code comes from
wheels. Then the older Kubernetes and KubeRay, both Helms and an older Ray (tests/compat), and the locks of arm64, whose
packages are resolved for that platform and not installed.

`python -m scripts.compat [python] [kubernetes] [helm] [ray] [arm64]` runs a part of it.
"""

from __future__ import annotations

import argparse
import enum
import fcntl
import hashlib
import itertools
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
from scripts.stages import end_session
from scripts.wheels import build
from tests.cluster.paths import cache_folder

ROOT = Path(__file__).resolve().parent.parent
UV = Path(sys.executable).parent / "uv"
LOGS = ROOT / "build/compat"
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
class Suite:
    """Tests of one distribution, and the packages that they need."""

    name: str
    lock: Path
    tests: tuple[str, ...]


SUITES = (
    # The tests in `upstream` need the packages of the runtime image.
    Suite("runtime", ROOT / "requirements/compat.txt", ("runtime/tests", "--ignore=runtime/tests/upstream")),
    # A local run starts processes of the runtime, which here is not installed in the interpreter's environment.
    Suite(
        "cli",
        ROOT / "requirements/dev.txt",
        ("operator/tests/unit/cli", "--ignore=operator/tests/unit/cli/local/test_command.py"),
    ),
)
PLATFORM_LOCKS = {
    "operator.txt": "aarch64-manylinux_2_28",
    "runtime-code.txt": "aarch64-manylinux_2_28",
    "runtime-verl.txt": "aarch64-manylinux_2_28",
    "runtime-ascend-aarch64.txt": "aarch64-manylinux_2_35",
}
"""Lock of an image for arm64 -> its platform: glibc of Debian 10 and later, and of CANN's images (scripts/lock)."""
SOURCES = frozenset({"antlr4-python3-runtime", "arctic-inference"})
"""Packages that are released only as source, which the images' builds compile."""
IMAGE_PYTHON = "3.11"
LOCKED = re.compile(r"^([A-Za-z0-9_.-]+)==", re.MULTILINE)


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
    """Result of one row."""

    subject: str
    verdict: Verdict
    place: str = ""
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


def _uv(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([UV, *words], check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)


def run_tests(python: Path, log: Path, tests: Sequence[str], code: Path | None = None) -> tuple[bool, str]:
    """Run pytest with the packages in the folder `code`. Return whether all passed, and the last line of its output."""
    inherited = {name: value for name, value in os.environ.items() if name not in PYTHON_VARIABLES}
    words = [str(python), "-m", "pytest", "-q", "--timeout=600", *tests]
    with log.open("w") as output:
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=inherited if code is None else {**inherited, "PYTHONPATH": str(code)},
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
            if process.poll() is None:
                end_session(process.pid)
                process.wait()
    lines = log.read_text(errors="replace").splitlines()
    if not passed:
        print("\n".join(lines[-TAIL_LINES:]), flush=True)
    return passed, lines[-1].strip("= ") if lines else "no output"


def check(version: str, suite: Suite, code: Path) -> Result:
    """Run a suite on one version of Python."""
    subject = f"Python {version}: {suite.name}"
    interpreter = find(version)
    if interpreter is None:
        return Result(subject, Verdict.ABSENT, "neither on PATH nor among pyenv's")
    place = f"{interpreter.release} {interpreter.path}"
    print(f"{subject}, {place}: preparing its environment", flush=True)
    try:
        python = prepare(interpreter, suite.lock)
    except subprocess.CalledProcessError as error:
        return Result(subject, Verdict.FAILED, place, f"environment: {' '.join(error.stderr.split())[-300:]}")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Result(subject, Verdict.FAILED, place, f"environment: {error}")
    return _tested(subject, place, python, LOGS / f"{version}-{suite.name}.log", suite.tests, code)


def _tested(
    subject: str, place: str, python: Path, log: Path, tests: Sequence[str], code: Path | None = None
) -> Result:
    print(f"{subject}: running the tests, log in {log.relative_to(ROOT)}", flush=True)
    passed, note = run_tests(python, log, tests, code)
    return Result(subject, Verdict.PASSED if passed else Verdict.FAILED, place, note)


def pythons() -> Iterator[Result]:
    """Run both suites on every version of Python."""
    with tempfile.TemporaryDirectory(prefix="rljob-compat-") as folder:
        code = Path(folder) / "code"
        for wheel in build(Path(folder), ("operator", "runtime")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(code / wheel.name.partition("-")[0])
        runtime = code / "rljob_runtime"
        for version, suite in itertools.product(VERSIONS, SUITES):
            # The runtime must not find the operator.
            places = runtime if suite.name == "runtime" else f"{code / 'rljob'}{os.pathsep}{runtime}"
            yield check(version, suite, Path(places))


def kubernetes() -> Iterator[Result]:
    """Run the product on the older Kubernetes and KubeRay."""
    yield _other("Kubernetes 1.34, KubeRay 1.5.1", "kubernetes")


def helms() -> Iterator[Result]:
    """Render the chart with both Helms."""
    yield _other("Helm 3 and 4", "helm")


def _other(subject: str, name: str) -> Result:
    tests = (f"tests/compat/test_{name}.py", "-p", "no:xdist", "--timeout=1500")
    return _tested(subject, "tests/cluster/programs", Path(sys.executable), LOGS / f"{name}.log", tests)


def ray() -> Iterator[Result]:
    """Submit to a Ray without token authentication."""
    yield _other("Ray 2.48.0", "ray")


def arm64(locks: Mapping[str, str] = PLATFORM_LOCKS, folder: Path = ROOT / "requirements") -> Iterator[Result]:
    """Resolve the locks for arm64: every package must have a wheel for the platform, with the locked hash."""
    for name, platform in locks.items():
        lock = folder / name
        with tempfile.TemporaryDirectory(prefix="rljob-arm64-") as target:
            words = ["pip", "install", "--dry-run", "--no-deps", "--require-hashes", "--target", target]
            words += ["--python-version", IMAGE_PYTHON, "--python-platform", platform]
            for package in sorted(set(LOCKED.findall(lock.read_text())) - SOURCES):
                words += ["--only-binary", package]
            try:
                done = _uv(*words, "-r", str(lock))
                wanted = re.search(r"Would install (\d+ packages?)", done.stderr)
                yield Result(f"arm64: {name}", Verdict.PASSED, platform, wanted[1] if wanted else "nothing to install")
            except subprocess.CalledProcessError as error:
                yield Result(f"arm64: {name}", Verdict.FAILED, platform, " ".join(error.stderr.split())[-300:])
            except subprocess.TimeoutExpired:
                yield Result(f"arm64: {name}", Verdict.FAILED, platform, f"no answer within {INSTALL_SECONDS} s")


def page(results: Sequence[Result]) -> str:
    """Return the table of results."""
    rows = [("subject", "result", "with", "tests")]
    rows += [(each.subject, each.verdict.value, each.place, each.note) for each in results]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def exit_code(results: Sequence[Result]) -> int:
    """Return 1 if a row failed, or if all are absent."""
    verdicts = {each.verdict for each in results}
    return 1 if Verdict.FAILED in verdicts or verdicts <= {Verdict.ABSENT} else 0


PARTS = {"python": pythons, "kubernetes": kubernetes, "helm": helms, "ray": ray, "arm64": arm64}


def main() -> int:
    """Run the chosen parts, or all, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts.compat")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART", help=f"of {', '.join(PARTS)}")
    chosen = parser.parse_args().parts or list(PARTS)
    LOGS.mkdir(parents=True, exist_ok=True)
    results = [result for name in chosen for result in PARTS[name]()]
    print(page(results), flush=True)
    return exit_code(results)


if __name__ == "__main__":
    sys.exit(main())
