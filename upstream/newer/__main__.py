"""Print the age of every pin, and what moved in newer releases of verl and vllm-ascend: `make upstream`.

A release without a wheel for the image (CPython 3.11, arm64) cannot be compared unless its unpacked source is given:

    python -m upstream.newer --source vllm-ascend=<folder or wheel> --source verl=<folder or wheel>
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from upstream.newer.pins import Ask, Pin, pins
from upstream.newer.releases import Release, verl_moved, vllm_ascend_moved
from upstream.newer.versions import Answer, newest, versions_of_go, versions_of_pip

SECONDS = 60
"""For one question."""
DOWNLOAD_SECONDS = 600
COMPARED: Mapping[str, Callable[[Release], Iterator[str]]] = {"verl": verl_moved, "vllm-ascend": vllm_ascend_moved}
WHEEL = ("--platform", "manylinux_2_34_aarch64", "--python-version", "3.11", "--only-binary", ":all:")
"""The wheels of the arm64 image (images/runtime/ascend)."""


def ask(pin: Pin) -> Answer:
    """Return the newest releases of an upstream."""
    match pin.ask:
        case Ask.INDEX:
            command = (sys.executable, "-m", "pip", "index", "versions", pin.name)
            done, parse = run(command, SECONDS), versions_of_pip
        case Ask.GO:
            done, parse = run(("go", "list", "-m", "-versions", pin.name), SECONDS), versions_of_go
        case _:
            return Answer(problem=str(pin.ask))
    if isinstance(done, str):
        return Answer(problem=f"{Ask.NOBODY}: {done}")
    return newest(pin.version, parse(done.stdout))


def run(command: tuple[str, ...], seconds: float) -> subprocess.CompletedProcess[str] | str:
    """Run a command outside of any Go module; a text says why it has no answer."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
                stdin=subprocess.DEVNULL,
            )
    except subprocess.TimeoutExpired:
        return f"{command[0]} gave no answer in {seconds} s"
    except FileNotFoundError:
        return f"{command[0]} is not installed"
    return done if done.returncode == 0 else f"{Path(command[0]).name} ended with {done.returncode}"


def moved(name: str, version: str) -> Iterator[str]:
    """Yield what moved in a release, by its wheel in the index."""
    with tempfile.TemporaryDirectory() as folder:
        command = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *WHEEL, "-d", folder)
        run((*command, f"{name}=={version}"), DOWNLOAD_SECONDS)
        wheels = list(Path(folder).glob("*.whl"))
        if wheels:
            yield from COMPARED[name](Release(wheels[0]))
        else:
            yield f"not compared: the index has no wheel of it for the image; give its source by --source {name}=PATH"


def compare(name: str, version: str, lines: Iterator[str]) -> None:
    """Print what moved in a release."""
    print(f"\n{name} {version}, compared with the pinned release:")
    print("\n".join(f"  {line}" for line in lines) or "  nothing moved that is relied on")


def main() -> None:
    """Ask about every pin and print a table, then the differences."""
    parser = argparse.ArgumentParser(prog="upstream.newer", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", action="append", default=[], metavar="NAME=PATH", help="compare this release")
    given = dict(text.split("=", 1) for text in parser.parse_args().source if "=" in text)
    if unknown := given.keys() - COMPARED.keys():
        parser.error(f"--source {', '.join(sorted(unknown))}: only {' and '.join(COMPARED)} are compared")
    print(f"{'upstream':46} {'pin':28} {'newest of its line':20} newest")
    newer: list[tuple[str, str]] = []
    for pin in pins():
        answer = ask(pin)
        print(f"{pin.name:46} {pin.version:28} {answer.problem or f'{answer.in_line:20} {answer.overall}'}", flush=True)
        if pin.name in COMPARED and pin.name not in given:
            versions = dict.fromkeys(version for version in (answer.in_line, answer.overall) if version)
            newer += [(pin.name, version) for version in versions if version != pin.version]
    for name, version in newer:
        compare(name, version, moved(name, version))
    for name, path in given.items():
        release = Release(Path(path))
        compare(name, str(release.metadata()["Version"]), COMPARED[name](release))


if __name__ == "__main__":
    main()
