"""Check the contents of the finished Ascend image, at the end of its build and on demand.

    /opt/venv/bin/python /opt/ascend/check.py [--soc ascend910b1]

Checks that every distribution has the version of the lock, that the requirements of all distributions are met (except
for those in KNOWN), that sources record their commits, that operators were compiled for this generation of hardware,
that torch finds the driver's libraries where no driver is mounted, and that jemalloc is loaded. Prints all findings
and exits with code 1 if there are any. Needs neither NPU nor driver.
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
"""Prefix of SOC_VERSION -> its name in vllm-ascend (setup.py, gen_build_info)."""
LOCAL = {"torch": "+cpu", "vllm": "+empty"}
"""Distributions with a local version that names their device."""
OTHER_DEVICES = ("nvidia-", "cuda-")
"""Dependencies of the CUDA build of torch in the lock of x86_64, which the image replaces by a build without them."""
DRIVER = "libascend_hal.so"
"""Library of the driver. The toolkit's devlib has a substitute that finds no device."""
KNOWN = {
    ("xgrammar", "triton"): "triton-ascend is the package triton here",
}
"""(distribution, requirement) -> why it may be unmet."""


def locked_versions(texts: Iterable[str]) -> dict[str, str]:
    """Return names and versions in hashed locks."""
    lines = (line for text in texts for line in text.splitlines())
    found = (re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", line) for line in lines)
    return {normal(match[1]): match[2] for match in found if match}


def normal(name: str) -> str:
    """Return a name in normalized form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def other_versions(locked: Mapping[str, str], installed: Mapping[str, str]) -> Iterator[str]:
    """Yield distributions that are missing or differ from the lock."""
    for name, version in sorted(locked.items()):
        found = installed.get(name)
        if found not in (version, version + LOCAL.get(name, "")) and not name.startswith(OTHER_DEVICES):
            yield f"{name}: the lock has {version}, installed is {found or 'none'}"


def conflicts(requirements: Mapping[str, Iterable[str]], installed: Mapping[str, str]) -> Iterator[str]:
    """Yield requirements of installed distributions that are not met."""
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
    """Yield sources that are missing or of another commit than expected."""
    for name in SOURCES:
        path = folder / name / "COMMIT"
        found = path.read_text().strip() if path.is_file() else "none"
        if found == "none" or found != expected.get(name, found):
            yield f"{name}: commit {found}, expected {expected.get(name, 'one')}"


def wrong_generation(build_info: Path, soc: str) -> Iterator[str]:
    """Yield operators that were compiled for another generation, which fail when they are loaded."""
    wanted = next((value for start, value in GENERATIONS.items() if soc.startswith(start)), None)
    text = build_info.read_text() if build_info.is_file() else ""
    found = re.search(r"__device_type__ = '(\w+)'", text)
    if wanted is None or found is None or found[1] != wanted:
        what = found[1] if found else "nothing"
        yield f"vllm-ascend is compiled for {what}, SOC_VERSION {soc} needs {wanted or 'one of ' + str(GENERATIONS)}"


def jemalloc(preload: str, maps: str) -> Iterator[str]:
    """Yield an allocator in LD_PRELOAD that is not loaded: the loader only prints a line."""
    path = next((part for part in re.split("[: ]", preload) if "jemalloc" in part), None)
    if path is None:
        yield f"LD_PRELOAD={preload!r} names no jemalloc"
    elif not Path(path).is_file():
        yield f"LD_PRELOAD names {path}, which does not exist"
    elif Path(path).resolve().name not in maps and "libjemalloc" not in maps:
        yield f"{path} is not among this process's libraries; is it of another architecture?"


def driver(library_path: str) -> Iterator[str]:
    """Yield a finding if no folder contains the library that torch_npu loads from the driver."""
    if not any((Path(folder) / DRIVER).is_file() for folder in library_path.split(":") if folder):
        yield f"LD_LIBRARY_PATH={library_path!r} has no {DRIVER}; torch cannot be imported without a mounted driver"


def findings(soc: str | None) -> Iterator[str]:
    """Yield all findings in this image."""
    distributions = list(importlib.metadata.distributions())
    installed = {normal(found.metadata["Name"]): found.version for found in distributions}
    wanted = {normal(found.metadata["Name"]): found.requires or [] for found in distributions}
    paths = [FOLDER / name.format(machine=platform.machine()) for name in LOCKS]
    yield from other_versions(locked_versions(path.read_text() for path in paths), installed)
    yield from conflicts(wanted, installed)
    # prepare.py has verified the commits; here the files only must exist.
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
    """Print all findings and exit with code 1 if there are any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--soc", help="generation of hardware that operators must be compiled for")
    found = list(findings(parser.parse_args().soc))
    for line in found:
        sys.stderr.write(f"check: {line}\n")
    sys.stdout.write(f"check: {len(found)} findings\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
