"""A Ray head pod over HTTP: the exporter's progress and Ray's job API, at the pod's IP and never through a Service.

Answers come from inside the user's pods and are not trusted: no redirects, at most 64 KiB, a short timeout, strict
parsing (`head_http.py`). `control.requests` drops answers about another pod or submission. A starting head refuses
connections and then answers "No available agent" for some seconds; both are normal and are distinguished from a
rejection.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from rljob.cluster import errors
from rljob.cluster.head_http import Connection, HeadRequest, Response, ResponseError
from rljob.cluster.port import Fence, unfenced
from rljob.core.observed import RayJob, RayJobState
from rljob.core.requirements import Head
from rljob.telemetry.log import Log, redact
from rljob_runtime.contract import (
    ContractError,
    ForeignJSONError,
    Progress,
    StopMode,
    StopRequest,
    parse_foreign_json,
    quoted,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rljob.cluster.token import TokenKey
    from rljob.core.plan import StopRun, SubmitJob
    from rljob.telemetry.metrics import Metrics

ANSWER_BYTES = 64 * 1024
JOBS, STOP = "/api/jobs/", "/v1/stop"
READ_SECONDS = 2.0
SUBMIT_SECONDS = 10.0
"""Ray starts a supervisor actor before it answers the POST."""
LOG_TAIL_CHARACTERS = 4096
LOG_BYTES = 4 * LOG_TAIL_CHARACTERS
"""Ray's `/logs` returns the whole driver log as one JSON string; only the end of the stream is kept."""
LOG_BYTES_READ_MAX = 256 * 1024 * 1024
"""Most bytes of a log that are read to reach its end; the end of a longer log is not shown."""
MESSAGE_CHARACTERS = 1500
SAID_CHARACTERS = 200
"""Of an answer that is no answer, in an error message."""

log = Log(__name__)

_STATUSES = frozenset(HTTPStatus)
_ALREADY = "already exists"
"""Ray 2.60 answers a known submission ID with 500 and this text."""
_NOT_YET = "No available agent"


class RayClient:
    """`RayApi` over HTTP."""

    def __init__(self, key: TokenKey, metrics: Metrics) -> None:
        self._key = key
        self._metrics = metrics
        self.fence: Fence = unfenced

    async def close(self) -> None:
        """Do nothing: each request has a connection of its own, and closes it."""

    async def progress(self, head: Head) -> Progress:
        """See `RayApi.progress`."""
        status, text = await self._ask("progress", "GET", head, head.api_port, "/v1/progress")
        _expect_ok("progress", status, text)
        try:
            return Progress.from_json(text)
        except ContractError as error:
            raise errors.HeadNonsense(f"progress: {redact(str(error), SAID_CHARACTERS)}") from error

    async def job(self, head: Head, submission_id: str) -> RayJob | None:
        """See `RayApi.job`."""
        status, text = await self._ask("job", "GET", head, head.dashboard_port, f"{JOBS}{submission_id}")
        if status == HTTPStatus.NOT_FOUND:
            return None
        _expect_ok("job", status, text)
        job = _parse_job(submission_id, text)
        if not job.state.ended:
            return job
        return RayJob(job.submission_id, job.state, job.message, job.driver_exit_code, await self._tail(head, job))

    async def submit(self, job: SubmitJob) -> None:
        """See `RayApi.submit`."""
        self.fence()
        body = {
            "submission_id": job.submission_id,
            "entrypoint": job.entrypoint,
            "runtime_env": {"env_vars": dict(job.environment)},
            "metadata": dict(job.metadata),
        }
        head = Head(job.pod_ip, job.pod_uid, job.job_uid, job.cluster_name, dashboard_port=job.port)
        if not job.may_be_open:
            await self._expect_closed(job)
        status, text = await self._ask("submit", "POST", head, job.port, JOBS, body, SUBMIT_SECONDS)
        said = text.decode(errors="replace")
        if _ALREADY in said and job.submission_id in said:
            return
        if _NOT_YET in said:
            raise errors.HeadBusy("submit: the head has no job agent yet")
        _expect_ok("submit", status, text)

    async def _expect_closed(self, job: SubmitJob) -> None:
        """Raise HeadOpen if the job API answers without a token: Ray before 2.52 ignores that it should ask for one."""
        request = HeadRequest("GET", job.pod_ip, job.port, JOBS, token=None)
        status, _ = await self._send("closed", request, READ_SECONDS, _read_nothing)
        if status == HTTPStatus.OK:
            raise errors.HeadOpen(
                "Ray's job API in the head pod answers without the token of the cluster, so every pod that reaches it "
                "could run code with the job's Secrets: the image has a Ray before 2.52; use a later one, or set "
                "runtime.rayVersion to it and runtime.unauthenticatedRay to true, where the namespace allows it"
            )

    async def stop(self, run: StopRun) -> None:
        """See `RayApi.stop`."""
        self.fence()
        head = Head(run.pod_ip, run.pod_uid, run.job_uid, run.cluster_name)
        status, text = await self._ask("stop", "POST", head, run.port, STOP, _stop_body(run, run.mode))
        if status == HTTPStatus.BAD_REQUEST and run.mode is not StopMode.IMMEDIATE:
            # An older image does not know the mode, but must stop all the same. Every image knows this mode.
            log.warning("The head does not support this stop mode; requesting an immediate stop", mode=run.mode.value)
            status, text = await self._ask("stop", "POST", head, run.port, STOP, _stop_body(run, StopMode.IMMEDIATE))
        if status == HTTPStatus.CONFLICT:
            raise errors.HeadBusy(f"stop: {_said(text)}")
        if status != HTTPStatus.ACCEPTED:
            _expect_ok("stop", status, text)

    async def _tail(self, head: Head, job: RayJob) -> str:
        """Read the end of the driver's log. The end of the job is reported even without it."""
        path = f"{JOBS}{job.submission_id}/logs"
        try:
            status, text = await self._ask(
                "logs", "GET", head, head.dashboard_port, path, seconds=SUBMIT_SECONDS, read=_read_end
            )
            _expect_ok("logs", status, text)
        except errors.RayError:
            return ""
        return _log_tail(text)

    async def _ask(
        self,
        call: str,
        method: str,
        head: Head,
        port: int,
        path: str,
        body: dict[str, Any] | None = None,
        seconds: float | None = None,
        read: Callable[[Response], Awaitable[bytes]] | None = None,
    ) -> tuple[int, bytes]:
        """Ask with the token of the current key, and if the head rejects it, with that of the previous one.

        A rejected request has no effect, so it is safe to send it again.
        """
        token = self._key.token(head.job_uid, head.cluster_name)
        request = HeadRequest(method, head.pod_ip, port, path, token, body)
        seconds = READ_SECONDS if seconds is None else seconds
        status, text = await self._send(call, request, seconds, read)
        if self._key.previous is not None and status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            previous = self._key.previous.token(head.job_uid, head.cluster_name)
            return await self._send(call, replace(request, token=previous), seconds, read)
        return status, text

    async def _send(
        self, call: str, request: HeadRequest, seconds: float, read: Callable[[Response], Awaitable[bytes]] | None
    ) -> tuple[int, bytes]:
        code = "none"
        try:
            async with asyncio.timeout(seconds), Connection(request) as answer:
                code = _code(answer.status)
                return answer.status, await (read or _read_all)(answer)
        except TimeoutError as error:
            code = "timeout"
            raise errors.HeadSilent(f"{call}: no answer within {seconds:g} s") from error
        except ResponseError as error:
            raise errors.HeadNonsense(f"{call}: {error}") from error
        except OSError as error:
            raise errors.HeadUnreachable(f"{call}: {type(error).__name__}") from error
        finally:
            self._metrics.ray_requests.labels(call, code).inc()


def _stop_body(run: StopRun, mode: StopMode) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(StopRequest(run.attempt, mode).to_json())
    return body


async def _read_all(answer: Response) -> bytes:
    chunks = bytearray()
    async for piece in answer.pieces():
        chunks += piece
        if len(chunks) > ANSWER_BYTES:
            raise errors.HeadNonsense(f"the answer is longer than {ANSWER_BYTES} bytes")
    return bytes(chunks)


async def _read_nothing(answer: Response) -> bytes:
    del answer
    return b""


async def _read_end(answer: Response) -> bytes:
    end, size = b"", 0
    async for piece in answer.pieces():
        end, size = (end + piece)[-LOG_BYTES:], size + len(piece)
        if size > LOG_BYTES_READ_MAX:
            raise ResponseError(f"the log is longer than {LOG_BYTES_READ_MAX} bytes")
        # A read that finds bytes does not yield, and a head may send them as fast as they are read.
        await asyncio.sleep(0)
    return end


def _log_tail(end: bytes) -> str:
    """Return the last characters of `{"logs": "…"}` if only its end is known, starting at a whole line."""
    text = end.decode(errors="replace")
    if not text.startswith("{"):
        text = '{"logs": "' + text.partition("\\n")[2]
    try:
        found = parse_foreign_json(text)
    except ForeignJSONError:
        return ""
    log = found.get("logs") if isinstance(found, dict) else None
    return log[-LOG_TAIL_CHARACTERS:] if isinstance(log, str) else ""


def _code(status: int) -> str:
    """Return a status for the metrics. A head may answer with any number of three digits."""
    return str(status) if status in _STATUSES else "other"


def _expect_ok(call: str, status: int, text: bytes) -> None:
    if status == HTTPStatus.OK:
        return
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise errors.HeadRefused(f"{call}: {status}; the head's token does not match this operator's key")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
        raise errors.HeadBusy(f"{call}: {status} {_said(text)}")
    raise errors.HeadNonsense(f"{call}: {status} {_said(text)}")


def _said(text: bytes) -> str:
    """Return the end of an answer for a message. Secrets are hidden first, since a cut may remove their keys."""
    return redact(text.decode(errors="replace"), SAID_CHARACTERS).strip()


def _parse_job(submission_id: str, text: bytes) -> RayJob:
    try:
        raw = parse_foreign_json(text, ANSWER_BYTES)
    except ForeignJSONError as error:
        raise errors.HeadNonsense(f"job: {error}") from error
    if not isinstance(raw, dict):
        raise errors.HeadNonsense(f"job: expected an object, got {type(raw).__name__}")
    known, state = raw.get("submission_id"), raw.get("status")
    code, message = raw.get("driver_exit_code"), raw.get("message")
    if known != submission_id:
        raise errors.HeadNonsense(f"job: asked for {submission_id}, got {_quoted(known)}")
    if state not in list(RayJobState):
        raise errors.HeadNonsense(f"job: status {_quoted(state)} is none of {', '.join(RayJobState)}")
    return RayJob(
        submission_id=submission_id,
        state=RayJobState(state),
        message=message[-MESSAGE_CHARACTERS:] if isinstance(message, str) else "",
        driver_exit_code=code if isinstance(code, int) and not isinstance(code, bool) else None,
    )


def _quoted(value: object) -> str:
    return redact(quoted(value), SAID_CHARACTERS)
