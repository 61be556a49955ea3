"""The files of a folder, for the sources Path and PVC."""

from __future__ import annotations

import os
from pathlib import Path

from rljob_runtime.contract import ExitCode
from rljob_runtime.initializers.error import RequestError
from rljob_runtime.initializers.hubs import FILES_MAX, RemoteFile, require_path
from rljob_runtime.initializers.target import RECORDS

HIDDEN = {RECORDS, ".git", ".cache"}
"""Folders that are records of a download and not its files; .cache is that of huggingface_hub."""


def folder_files(folder: Path) -> list[RemoteFile]:
    """Return all files below a folder. Links are followed to files, as caches of hubs have them, and not to folders."""
    found: list[RemoteFile] = []
    for place, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = sorted(set(folders) - HIDDEN)
        for name in sorted(names):
            file = Path(place) / name
            path = file.relative_to(folder).as_posix()
            require_path(path)
            found.append(RemoteFile(path, file.stat().st_size, str(file)))
            if len(found) > FILES_MAX:
                raise RequestError(ExitCode.BAD_CONFIG, f"{folder} has more than {FILES_MAX} files")
    if not found:
        raise RequestError(ExitCode.BAD_CONFIG, f"{folder} has no files; correct the path")
    return found


def _raise(error: OSError) -> None:
    raise error
