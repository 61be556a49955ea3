"""`python -m rljob_runtime export`: one export, from the step to its place.

The result is the container's termination message, which the operator reads. Exit code 64 means that another try cannot
help; the Job makes no other one then.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rljob_runtime.checkpoints.saved_steps import step_folder
from rljob_runtime.contract import (
    RESULT_BYTES_MAX,
    ContractError,
    ExitCode,
    ExportPlace,
    ExportRequest,
    ExportResult,
    legible,
)
from rljob_runtime.export.convert import convert
from rljob_runtime.export.errors import ExportError
from rljob_runtime.export.folder import Manifest, finished, put, seal, work_folder
from rljob_runtime.export.source import Held, held_folder, take
from rljob_runtime.export.upload import upload

TERMINATION_LOG = Path("/dev/termination-log")
"""https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/"""
MESSAGE_CHARACTERS = 1000
SIGNALLED = 128


def export(text: str, report: Path = TERMINATION_LOG) -> int:
    """Export what the request says, write the result to `report` and return the exit code."""
    # The kernel ends process 1 of a container by no signal that it has no handler for.
    signal.signal(signal.SIGTERM, _leave)
    try:
        result, code = export_step(ExportRequest.from_json(text)), ExitCode.DONE
    except ContractError as error:
        result, code = ExportResult("BadRequest", str(error)), ExitCode.BAD_CONFIG
    except ExportError as error:
        result, code = ExportResult(error.reason, str(error)), error.code
    except OSError as error:
        result, code = ExportResult("VolumeFailed", str(error)), ExitCode.ENVIRONMENT
    print(f"rljob: {result.reason}: {' '.join(filter(None, (result.path, result.message)))}", flush=True)  # noqa: T201
    _write(report, result)
    return int(code)


def _leave(number: int, _: FrameType | None) -> NoReturn:
    sys.exit(SIGNALLED + number)


def _write(report: Path, result: ExportResult) -> None:
    message, size = legible(result.message), MESSAGE_CHARACTERS
    while len(text := _with_message(result, message[:size]).to_json()) > RESULT_BYTES_MAX and size:
        size //= 2
    try:
        report.write_bytes(text)
    except OSError as error:
        print(f"rljob: the result cannot be reported: {error}", file=sys.stderr, flush=True)  # noqa: T201


def _with_message(result: ExportResult, message: str) -> ExportResult:
    return ExportResult(result.reason, message, result.step, result.path, result.digest, result.size)


def export_step(request: ExportRequest, exactly: Path | None = None) -> ExportResult:
    """Export the step of a request: to the folder `exactly`, or else to the place that the request names.

    Raises ExportError, OSError.
    """
    making: Path | None = None
    try:
        held = take(request)
        place = exactly
        if place is None and request.place is ExportPlace.FOLDER:
            place = step_folder(Path(request.folder), held.number)
        if place is not None and (known := finished(place, request, held)) is not None:
            return _done(held, known, str(place))
        making = work_folder(Path(request.checkpoint) if place is None else place.parent, request)
        made = making / "model"
        convert(held.actor, made, trust_remote_code=request.trust_remote_code)
        manifest = seal(made, request, held)
        if place is None:
            return _done(held, manifest, upload(made, request, manifest))
        put(made, place)
        return _done(held, manifest, str(place))
    finally:
        # A signal ends the try, and another one follows: it finds the step held.
        if not isinstance(sys.exception(), SystemExit):
            shutil.rmtree(held_folder(request), ignore_errors=True)
        if making is not None:
            shutil.rmtree(making, ignore_errors=True)


def _done(held: Held, manifest: Manifest, where: str) -> ExportResult:
    return ExportResult("Exported", "", held.number, where, manifest.digest, manifest.bytes)


def termination_log() -> Path:
    """Return the path to which the result is written; outside of a container it is discarded."""
    return TERMINATION_LOG if TERMINATION_LOG.exists() else Path(os.devnull)
