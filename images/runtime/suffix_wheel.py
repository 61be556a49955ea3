"""Build a wheel of arctic-inference's suffix trees, with which vLLM's speculative method `suffix` drafts tokens.

    suffix_wheel.py <lock> <folder> [<cache>]        requirements/suffix.txt; the wheel is written into the folder

The package is published as an sdist only, whose build wants torch 2.7, a compiler for gRPC and CMake. The suffix trees
need none of these: two C++ files, their bindings and one Python module. The sdist comes from the index that pip is
configured for, by the hash of the lock. The wheel has the project's licence and no entry points, because the rest of
arctic-inference, which patches vLLM, is not in it. Run it with the Python that the wheel is for. It needs a C++20
compiler, Python's headers and otherwise the standard library only. A cache keeps wheels by everything that made them.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.machinery
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

SDIST, BUILD_TOOLS = "arctic-inference", ("nanobind", "setuptools")
PACKAGE = "arctic_inference/suffix_decoding"
MODULES = ("arctic_inference/__init__.py", f"{PACKAGE}/__init__.py", f"{PACKAGE}/cache.py")
SOURCES = "csrc/suffix_decoding"
LOCAL = "suffix"
"""Local part of the version, so that nobody takes the wheel for the whole of arctic-inference."""
COMPILER = os.environ.get("CXX", "c++")
FLAGS = (
    # CMake's release build, and what nanobind's own CMake functions add.
    *("-std=c++20", "-O3", "-DNDEBUG", "-DNB_COMPACT_ASSERTIONS"),
    *("-fPIC", "-shared", "-fvisibility=hidden", "-fno-strict-aliasing"),
    # The image may have an older C++ library than the machine that builds.
    *("-static-libstdc++", "-static-libgcc", "-Wl,--strip-all"),
)
COMMAND_SECONDS = 900
MEMBER_BYTES = 1 << 20
"""Largest file that is taken out of the sdist; the largest in 0.1.1 has 40 kB."""


class BuildError(SystemExit):
    """The wheel cannot be built."""


def build(lock: Path, folder: Path, cache: Path | None) -> Path:
    """Return the wheel, built unless the cache has it."""
    version = _version(lock.read_text())
    name = f"arctic_inference-{version}+{LOCAL}-{_tag()}.whl"
    kept = None if cache is None else cache / _key(lock) / name
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / name
    if kept is not None and kept.is_file():
        shutil.copyfile(kept, wheel)
        return wheel
    with tempfile.TemporaryDirectory() as scratch:
        content = _content(lock, version, Path(scratch))
    wheel.write_bytes(_zipped(content, version))
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        # Renamed, because another build may do the same.
        partial = kept.with_name(f"{name}.{os.getpid()}")
        shutil.copyfile(wheel, partial)
        partial.rename(kept)
    return wheel


def _version(lock: str) -> str:
    found = re.search(rf"^{SDIST}==(\S+)", lock, re.MULTILINE)
    if found is None:
        raise BuildError(f"the lock does not pin {SDIST}; write it with scripts/lock")
    return found[1]


def _tag() -> str:
    """Return Python, ABI and platform of the wheel."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"{python}-{python}-linux_{platform.machine()}"


def _key(lock: Path) -> str:
    """Return a hash of all that determines the wheel."""
    compiler = _run(COMPILER, "-dumpfullversion", "-dumpmachine")
    parts = (lock.read_bytes(), Path(__file__).read_bytes(), compiler.encode(), _tag().encode())
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:24]


def _content(lock: Path, version: str, scratch: Path) -> dict[str, bytes]:
    """Return the files of the wheel except its metadata."""
    _run(sys.executable, "-m", "venv", str(scratch / "tools"))
    python = str(scratch / "tools/bin/python")
    pinned = {name: scratch / f"{name}.txt" for name in (SDIST, *BUILD_TOOLS)}
    for name, path in pinned.items():
        path.write_text(_entry(lock.read_text(), name))
    pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check")
    options = ("--no-deps", "--require-hashes")
    tools = [word for name in BUILD_TOOLS for word in ("-r", str(pinned[name]))]
    _run(*pip, "install", *options, "--only-binary=:all:", *tools)
    # pip runs setup.py to learn the name of the sdist, and that imports torch without using it.
    (scratch / "stubs").mkdir()
    (scratch / "stubs/torch.py").touch()
    fetch = ("download", *options, "--no-build-isolation", f"--no-binary={SDIST}", "-r", str(pinned[SDIST]))
    _run(*pip, *fetch, "-d", str(scratch), environment={"PYTHONPATH": str(scratch / "stubs")})
    files = _extracted(next(scratch.glob("*.tar.gz")), scratch / "source")
    nanobind = Path(_run(python, "-c", "import nanobind; print(nanobind.__path__[0])").strip())
    extension = f"{PACKAGE}/_C{sysconfig.get_config_var('EXT_SUFFIX')}"
    built = scratch / "built.so"
    compile_extension(scratch / "source" / SOURCES, nanobind, built)
    check_extension(built)
    licence = f"arctic_inference-{version}+{LOCAL}.dist-info/licenses/LICENSE"
    return {name: files[name] for name in MODULES} | {extension: built.read_bytes(), licence: files["LICENSE"]}


def _entry(lock: str, name: str) -> str:
    """Return the lines of one distribution."""
    found = re.search(rf"^{name}==.*(?:\n +--hash=.*)+", lock, re.MULTILINE)
    if found is None:
        raise BuildError(f"the lock has no hashes of {name}; write it with scripts/lock")
    return found[0] + "\n"


def _extracted(sdist: Path, folder: Path) -> dict[str, bytes]:
    """Return the files of the sdist that are used, and write the C++ sources into a folder."""
    files: dict[str, bytes] = {}
    with tarfile.open(sdist) as archive:
        for member in archive:
            name = "/".join(PurePosixPath(member.name).parts[1:])
            wanted = name in {*MODULES, "LICENSE"} or re.fullmatch(rf"{SOURCES}/\w+\.(?:cc|h)", name)
            content = archive.extractfile(member) if wanted and member.size <= MEMBER_BYTES else None
            if content is not None:
                files[name] = content.read()
    missing = {*MODULES, "LICENSE", f"{SOURCES}/suffix_tree.cc", f"{SOURCES}/bindings.cc"} - files.keys()
    if missing:
        raise BuildError(f"{sdist.name} has no {', '.join(sorted(missing))}; its layout has changed")
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return files


def compile_extension(sources: Path, nanobind: Path, target: Path) -> None:
    """Compile the sources with nanobind's own into one module for this Python."""
    headers = sysconfig.get_path("include")
    if not (Path(headers) / "Python.h").is_file():
        raise BuildError(f"{headers} has no Python.h; install Python's headers (Debian: libpython3-dev)")
    folders = (headers, str(nanobind / "include"), str(nanobind / "ext/robin_map/include"))
    files = [str(path) for path in (*sorted(sources.glob("*.cc")), nanobind / "src/nb_combined.cpp")]
    _run(COMPILER, *FLAGS, *(f"-I{folder}" for folder in folders), *files, "-o", str(target))


def check_extension(path: Path) -> None:
    """Load the module and let it draft: after the second 1 2 comes 3, as after the first."""
    loader = importlib.machinery.ExtensionFileLoader("_C", str(path))
    specification = importlib.util.spec_from_loader("_C", loader)
    if specification is None:
        raise BuildError(f"{path} is no module")
    module = importlib.util.module_from_spec(specification)
    loader.exec_module(module)
    tree, use_tree = module.SuffixTree(8), False
    tree.extend(0, [1, 2, 3, 9, 1, 2])
    drafted = tree.speculate([1, 2], 1, 1.0, 0.0, 0.1, use_tree).token_ids
    if drafted != [3]:
        raise BuildError(f"the compiled module drafts {drafted} where [3] is expected")


def _zipped(content: Mapping[str, bytes], version: str) -> bytes:
    """Return the wheel: equal content gives equal bytes."""
    information = f"arctic_inference-{version}+{LOCAL}.dist-info"
    metadata = f"Metadata-Version: 2.4\nName: arctic_inference\nVersion: {version}+{LOCAL}\n"
    metadata += "Summary: Suffix trees of arctic-inference\nLicense-Expression: Apache-2.0\nLicense-File: LICENSE\n"
    tags = f"Wheel-Version: 1.0\nGenerator: suffix_wheel\nRoot-Is-Purelib: false\nTag: {_tag()}\n"
    files = {
        **content,
        f"{information}/METADATA": f"{metadata}Requires-Dist: numpy\n".encode(),
        f"{information}/WHEEL": tags.encode(),
    }
    rows = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    record = f"{information}/RECORD"
    files[record] = "\n".join([*rows, f"{record},,", ""]).encode()
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in files.items():
                entry = zipfile.ZipInfo(name)
                entry.external_attr = 0o644 << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, data)
        file.seek(0)
        return file.read()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def _run(*command: str, environment: Mapping[str, str] | None = None) -> str:
    """Return a command's output."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            env={**os.environ, **(environment or {})},
            check=False,
        )
    except FileNotFoundError as error:
        raise BuildError(f"{command[0]} is not installed; install a C++ compiler, or set CXX") from error
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command[:4])} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def main() -> None:
    """Build, and print the wheel's path."""
    if len(sys.argv) not in {3, 4}:
        raise BuildError("expected: suffix_wheel.py <lock> <folder> [<cache>]")
    lock, folder, *cache = (Path(word) for word in sys.argv[1:])
    print(build(lock, folder, cache[0] if cache else None))  # noqa: T201 - the output


if __name__ == "__main__":
    main()
