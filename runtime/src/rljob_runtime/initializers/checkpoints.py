"""Convert a checkpoint of verl into a folder with the model in the format of Hugging Face.

This is an export to one folder, which holds one model at a time: that of another step of the same checkpoints is
replaced.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from rljob_runtime.checkpoints import saved_steps
from rljob_runtime.contract import ExitCode, ExportPlace, ExportRequest
from rljob_runtime.contract.downloads import InitializerRequest
from rljob_runtime.export.command import export_step
from rljob_runtime.export.errors import ExportError
from rljob_runtime.export.folder import read_manifest
from rljob_runtime.initializers.error import RequestError
from rljob_runtime.initializers.target import say

UID_CHARACTERS = 32


def convert_checkpoint(request: InitializerRequest) -> bool:
    """Convert what the request names; return False if that was done before. Raises RequestError, OSError."""
    place, uid = Path(request.to), _uid(request)
    present = read_manifest(place)
    if present is not None and present.document.get("uid") == uid and request.step in (0, present.document.get("step")):
        return False
    wanted = ExportRequest(
        namespace="",
        job=f"the checkpoints in {request.source}",
        uid=uid,
        checkpoint=request.source,
        step=request.step or _last_step(Path(request.source)),
        place=ExportPlace.FOLDER,
        folder=str(place.parent),
        trust_remote_code=request.trust_remote_code,
    )
    try:
        made = export_step(wanted, exactly=place)
    except ExportError as error:
        raise RequestError(error.code, f"{error.reason}: {error}") from error
    say(f"step {made.step} of {request.source} is in {place}, {made.size} bytes")
    return True


def _uid(request: InitializerRequest) -> str:
    """Return what marks the folder as the result of this source, in place of an RLJob's UID."""
    return hashlib.sha256(f"{request.source}\0{request.to}".encode()).hexdigest()[:UID_CHARACTERS]


def _last_step(folder: Path) -> int:
    complete = saved_steps.complete_steps(folder)
    if not complete:
        raise RequestError(
            ExitCode.BAD_CONFIG, f"{folder} has no complete checkpoint (global_step_<n>); look at conversion.from"
        )
    tracked = saved_steps.tracked_step(folder)
    return tracked if tracked in complete else complete[-1]
