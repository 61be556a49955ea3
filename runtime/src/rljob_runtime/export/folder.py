"""Put a converted model in its place as a whole, with a manifest, by one rename.

A try that was killed leaves a folder of its own, which the next one removes. A process that is paused and resumes later
finds its folder gone, and fails.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rljob_runtime.contract import EXPORT_MANIFEST, ExitCode, ExportRequest, ForeignJSONError, parse_foreign_json
from rljob_runtime.export.errors import ExportError
from rljob_runtime.export.source import HELD, WORK_PREFIX, Held
from rljob_runtime.files import write_atomically

BLOCK = 1 << 20
FILE_MODE, FOLDER_MODE = 0o644, 0o755
"""The converter writes weights that only their owner can read, and others are to serve the model."""


@dataclass(frozen=True)
class Manifest:
    """What an exported folder says about itself."""

    document: dict[str, Any]

    @property
    def text(self) -> bytes:
        """Return the file's content."""
        return json.dumps(self.document, indent=1, sort_keys=True).encode()

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the file."""
        return hashlib.sha256(self.text).hexdigest()

    @property
    def bytes(self) -> int:
        """Return the size of the model's files."""
        return sum(int(file["bytes"]) for file in self.document["files"])

    @property
    def origin(self) -> tuple[object, ...]:
        """Return what the model was made from."""
        return tuple(self.document.get(key) for key in ("uid", "step", "saved"))


def seal(folder: Path, request: ExportRequest, step: Held) -> Manifest:
    """Write the manifest of a converted model, with everything on the disk and readable for others."""
    files = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        file.chmod(FILE_MODE)
        files.append({"name": str(file.relative_to(folder)), "bytes": file.stat().st_size, "sha256": _sha256(file)})
    for path in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        path.chmod(FOLDER_MODE)
    manifest = Manifest(
        {
            "version": 1,
            "format": "HuggingFace",
            "job": f"{request.namespace}/{request.job}",
            "uid": request.uid,
            "step": step.number,
            "saved": step.saved,
            "files": files,
        }
    )
    write_atomically(folder / EXPORT_MANIFEST, manifest.text, durable=True)
    (folder / EXPORT_MANIFEST).chmod(FILE_MODE)
    return manifest


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        digest = hashlib.sha256()
        while block := opened.read(BLOCK):
            digest.update(block)
        os.fsync(opened.fileno())
    return digest.hexdigest()


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of an export of which every file has its size; None if there is no whole export."""
    try:
        found = parse_foreign_json((folder / EXPORT_MANIFEST).read_bytes())
        whole = all((folder / file["name"]).stat().st_size == file["bytes"] for file in found["files"])
    except (OSError, ForeignJSONError, KeyError, TypeError):
        return None
    return Manifest(found) if whole else None


def finished(place: Path, request: ExportRequest, step: Held) -> Manifest | None:
    """Return the manifest if this very checkpoint is in its place already; raise ExportError if another job's is."""
    if not place.exists():
        return None
    manifest = read_manifest(place)
    if manifest is not None and manifest.origin == (request.uid, step.number, step.saved):
        return manifest
    if manifest is None or manifest.document.get("uid") != request.uid:
        owner = "no export of RLJob" if manifest is None else f"the export of {manifest.document.get('job')}"
        raise ExportError(
            ExitCode.BAD_CONFIG, "TargetTaken", f"{place} exists and is {owner}; remove it, or export to another path"
        )
    return None


def work_folder(parent: Path, request: ExportRequest) -> Path:
    """Make a new folder for this try, after removing those of earlier tries of the same export."""
    prefix = f"{WORK_PREFIX}{request.uid}.{request.step}."
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f"{prefix}*"):
        if not left.name.endswith(f".{HELD}"):
            shutil.rmtree(left, ignore_errors=True)
    made = parent / f"{prefix}{uuid.uuid4().hex}"
    made.mkdir()
    return made


def put(made: Path, place: Path) -> None:
    """Rename a sealed folder to its place, over an export of an earlier save of the same step."""
    _sync(made)
    try:
        made.rename(place)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        # Of this job: `finished` has refused any other.
        aside = made.with_name(f"{made.name}.old")
        place.rename(aside)
        made.rename(place)
        shutil.rmtree(aside, ignore_errors=True)
    _sync(place.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
