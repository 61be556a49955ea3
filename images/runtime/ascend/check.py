"""What is in the finished Ascend image: told by itself, at the end of its build and whenever somebody asks.

    /opt/venv/bin/python /opt/ascend/check.py [--soc ascend910b1]

Checks that every distribution is the one of the lock, that no requirement of one contradicts another (but for what
KNOWN names with its reason), that sources name their commits, that operators were compiled for this generation
of hardware, that torch finds what it loads of a driver where none is mounted, and that jemalloc is really loaded.
Exit code 1 with all findings at once. Needs neither NPU nor driver.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
LOCKS = ("runtime-ascend-{machine}.txt", "runtime-ascend-vllm.txt")
SOURCES = ("Megatron-LM", "MindSpeed")
GENERATIONS = {"ascend910b": "A2", "ascend910_93": "A3"}
"""Beginning of SOC_VERSION -> what vllm-ascend calls it (its setup.py, gen_build_info)."""
LOCAL = {"torch": "+cpu", "vllm": "+empty"}
"""Distributions whose version says what they were built for."""
OTHER_DEVICES = ("nvidia-", "cuda-")
"""What the lock of x86_64 has for the build of torch that a wheel without them replaces."""
DRIVER = "libascend_hal.so"
"""Of the driver; the toolkit's devlib has one that finds no device."""
KNOWN = {
    ("xgrammar", "triton"): "triton-ascend is the package triton here",
}
"""(distribution, requirement) -> why it may stay unmet."""


def locked_versions(texts: Iterable[str]) -> dict[str, str]:
    """Read names and versions of hashed locks."""
    lines = (line for text in texts for line in text.splitlines())
    found = (re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", line) for line in lines)
    return {normal(match[1]): match[2] for match in found if match}


def normal(name: str) -> str:
    """Give a name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def other_versions(locked: Mapping[str, str], installed: Mapping[str, str]) -> Iterator[str]:
    """Tell distributions that are missing or not those of the lock."""
    for name, version in sorted(locked.items()):
        found = installed.get(name)
        if found not in (version, version + LOCAL.get(name, "")) and not name.startswith(OTHER_DEVICES):
            yield f"{name}: the lock has {version}, installed is {found or 'none'}"


def conflicts(requirements: Mapping[str, Iterable[str]], installed: Mapping[str, str]) -> Iterator[str]:
    """Tell requirements of installed distributions that others of them do not meet."""
    from packaging.requirements import Requirement  # noqa: PLC0415 - of the environment, not of Python

    for name, wanted in sorted(requirements.items()):
        for text in wanted:
            requirement = Requirement(text)
            target = normal(requirement.name)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            if (name, target) in KNOWN:
                continue
            version = installed.get(target)
            if version is None or not requirement.specifier.contains(version, prereleases=True):
                yield f"{name} asks for {text}, installed is {version or 'none'}"


def wrong_sources(folder: Path, expected: Mapping[str, str]) -> Iterator[str]:
    """Tell sources that are missing or, where one is expected, of another commit."""
    for name in SOURCES:
        path = folder / name / "COMMIT"
        found = path.read_text().strip() if path.is_file() else "none"
        if found == "none" or found != expected.get(name, found):
            yield f"{name}: commit {found}, expected {expected.get(name, 'one')}"


def wrong_generation(build_info: Path, soc: str) -> Iterator[str]:
    """Tell operators that were compiled for another generation: they fail when they are loaded."""
    wanted = next((value for start, value in GENERATIONS.items() if soc.startswith(start)), None)
    text = build_info.read_text() if build_info.is_file() else ""
    found = re.search(r"__device_type__ = '(\w+)'", text)
    if wanted is None or found is None or found[1] != wanted:
        what = found[1] if found else "nothing"
        yield f"vllm-ascend is compiled for {what}, SOC_VERSION {soc} needs {wanted or 'one of ' + str(GENERATIONS)}"


def jemalloc(preload: str, maps: str) -> Iterator[str]:
    """Tell an allocator that is named but not loaded: the loader only prints a line."""
    path = next((part for part in re.split("[: ]", preload) if "jemalloc" in part), None)
    if path is None:
        yield f"LD_PRELOAD={preload!r} names no jemalloc"
    elif not Path(path).is_file():
        yield f"LD_PRELOAD names {path}, which does not exist"
    elif Path(path).resolve().name not in maps and "libjemalloc" not in maps:
        yield f"{path} is not among this process's libraries; is it of another architecture?"


def driver(library_path: str) -> Iterator[str]:
    """Tell when no folder has what torch_npu loads from the driver."""
    if not any((Path(folder) / DRIVER).is_file() for folder in library_path.split(":") if folder):
        yield f"LD_LIBRARY_PATH={library_path!r} has no {DRIVER}; torch would not import where no driver is mounted"


def findings(soc: str | None) -> Iterator[str]:
    """Give everything that is wrong with this image."""
    distributions = list(importlib.metadata.distributions())
    installed = {normal(found.metadata["Name"]): found.version for found in distributions}
    wanted = {normal(found.metadata["Name"]): found.requires or [] for found in distributions}
    paths = [FOLDER / name.format(machine=platform.machine()) for name in LOCKS]
    yield from other_versions(locked_versions(path.read_text() for path in paths), installed)
    yield from conflicts(wanted, installed)
    # Which commits they are prepare.py has seen to, which fetches by commit; here they only must be there.
    yield from wrong_sources(FOLDER, {})
    if soc:
        package = next(Path(found.locate_file("vllm_ascend")) for found in distributions if _is_vllm_ascend(found))
        yield from wrong_generation(package / "_build_info.py", soc)
    yield from driver(os.environ.get("LD_LIBRARY_PATH", ""))
    yield from jemalloc(os.environ.get("LD_PRELOAD", ""), Path("/proc/self/maps").read_text())
    if not hasattr(ctypes.CDLL(None), "mallctl"):
        yield "mallctl, jemalloc's own function, is not in this process"


def _is_vllm_ascend(found: importlib.metadata.Distribution) -> bool:
    return normal(found.metadata["Name"]) == "vllm-ascend"


def main() -> None:
    """Tell all findings; exit code 1 when there is one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--soc", help="generation of hardware that operators must be compiled for")
    found = list(findings(parser.parse_args().soc))
    for line in found:
        sys.stderr.write(f"check: {line}\n")
    sys.stdout.write(f"check: {len(found)} findings\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
