"""Copy the runtime from the operator's image into a volume: the init container of pods whose image need not have it.

The operator's image has the files below SOURCE (images/operator/Dockerfile): `code`, which is this package with its
dist-info and the packages that fetch code from Git.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

SOURCE = Path("/opt/rljob-runtime")


def copy_runtime(source: Path, target: Path) -> str:
    """Copy all files, readable for every user, and return a line for the log. Raises OSError."""
    started = time.monotonic()
    if not source.is_dir():
        raise FileNotFoundError(
            f"{source}: this image carries no runtime; use the operator's image of this release (image.repository of "
            "the chart)"
        )
    # Folder by folder: the volume itself belongs to root, so its mode cannot be set.
    for folder in source.iterdir():
        shutil.copytree(folder, target / folder.name, copy_function=shutil.copyfile, dirs_exist_ok=True)
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    files = sum(1 for path in target.rglob("*") if path.is_file())
    return f"copied {files} files to {target} in {time.monotonic() - started:.2f} s"
