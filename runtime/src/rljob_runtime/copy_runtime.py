"""Copy the runtime from the operator's image into a volume: the init container of pods whose image need not have it.

The operator's image has the folders of SOURCE (images/operator/Dockerfile): `code`, which is this package with its
dist-info and the packages that fetch code from Git, and `verl`, which is verl and TransferQueue in the versions of the
release, for images that have another verl.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

SOURCE = Path("/opt/rljob-runtime")
CODE = "code"
VERL = "verl"


def copy_runtime(source: Path, target: Path, *, with_verl: bool) -> str:
    """Copy all files, readable for every user, and return a line for the log. Raises OSError."""
    started = time.monotonic()
    parts = (CODE, VERL) if with_verl else (CODE,)
    for part in parts:
        if not (source / part).is_dir():
            raise FileNotFoundError(
                f"{source / part}: this image carries no runtime, or that of another release; use the operator's image "
                "of this release (image.registry of the chart)"
            )
    files = sum(_copy(str(source / part), str(target / part)) for part in parts)
    return f"copied {files} files to {target} in {time.monotonic() - started:.2f} s"


def _copy(source: str, target: str) -> int:
    """Copy a folder in one pass and return its number of files.

    The pods of a job wait for it, and `shutil.copytree` with a second pass for the modes takes about twice as long. The
    mode of the volume itself is left alone, since it belongs to root.
    """
    files = 0
    for folder, _, names in os.walk(source):
        into = target + folder[len(source) :]
        os.makedirs(into, exist_ok=True)  # noqa: PTH103 - see above
        os.chmod(into, 0o755)  # noqa: PTH101, S103 - see above
        for name in names:
            path = f"{into}/{name}"
            shutil.copyfile(f"{folder}/{name}", path)
            os.chmod(path, 0o644)  # noqa: PTH101 - see above
        files += len(names)
    return files
