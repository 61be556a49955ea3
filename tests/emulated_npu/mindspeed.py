"""MindSpeed for the emulated NPU: a folder with its sources at the pinned commit, or None.

No package index has it. It is taken from the first of these that has it, and its Python files are checked by a digest:

- RLJOB_MINDSPEED, a checkout or an archive;
- shared/third-party beside the repository, an archive;
- its public repository, where that can be reached.

Nothing of it is tracked, and no image contains it: tests mount the folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.paths import REPOSITORY, cache_folder

COMMIT = "e4772499f7eb9fa9a68919dd1eaddef00e915b2d"
"""Of branch core_r0.16.0, as in the Ascend image (images/runtime/ascend/Dockerfile)."""
PUBLIC = "https://gitcode.com/Ascend/MindSpeed.git"
DIGEST = "77626e550e737fb7d11a2bcddb50a591f5f8972cdf542fba1e8b87fe516ee786"
"""Of the folder `mindspeed`; `digest` returns it."""
SECONDS = 60.0
"""Until the repository counts as out of reach."""


class WrongSourcesError(Exception):
    """The sources are not those of the commit."""


def folder() -> Path | None:
    """Return the folder that contains the package `mindspeed`; None if no place has it."""
    kept = cache_folder() / f"mindspeed-{DIGEST[:12]}"
    if kept.is_dir():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        found = next(places(Path(scratch)), None)
        if found is None:
            return None
        if digest(found / "mindspeed") != DIGEST:
            raise WrongSourcesError(f"{found}: its folder mindspeed is not that of commit {COMMIT}")
        shutil.copytree(found / "mindspeed", Path(scratch) / "kept/mindspeed")
        (Path(scratch) / "kept").replace(kept)
    return kept


def places(scratch: Path) -> Iterator[Path]:
    """Yield folders that contain the package."""
    named = os.environ.get("RLJOB_MINDSPEED")
    shared = REPOSITORY.parent / f"shared/third-party/MindSpeed-{COMMIT[:12]}.tar.xz"
    for place in (Path(named) if named else shared, shared):
        if place.is_dir():
            yield place
        elif place.is_file():
            yield unpacked(place, scratch / "archive")
    if (checkout := fetched(scratch / "checkout")) is not None:
        yield checkout


def unpacked(archive: Path, target: Path) -> Path:
    """Return the folder of an archive that contains the package."""
    with tarfile.open(archive) as opened:
        opened.extractall(target, filter="data")
    return next(target.rglob("mindspeed/__init__.py")).parent.parent


def fetched(target: Path) -> Path | None:
    """Return a checkout of the public repository; None if it is out of reach."""
    target.mkdir(parents=True)
    commands = (("init", "-q"), ("fetch", "-q", "--depth", "1", PUBLIC, COMMIT), ("checkout", "-q", "FETCH_HEAD"))
    try:
        for words in commands:
            subprocess.run(("git", *words), cwd=target, check=True, capture_output=True, timeout=SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    return target


def digest(package: Path) -> str:
    """Return a digest of all files of a folder and their names, without bytecode."""
    found = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            found.update(f"{path.relative_to(package)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()
