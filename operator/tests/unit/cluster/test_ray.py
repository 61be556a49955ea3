"""The head's adapter over HTTP: answers come from the user's pods and are not trusted."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from servers import Answer, Server, says, says_text

from rljob.cluster import errors, ray
from rljob.cluster.head_http import HEADER_BYTES
from rljob.cluster.ray import ANSWER_BYTES, LOG_TAIL_CHARACTERS, RayClient
from rljob.cluster.token import TokenKey
from rljob.core.observed import RayJobState
from rljob.core.plan import StopRun, SubmitJob
from rljob.core.requirements import Head
from rljob.telemetry.metrics import Metrics
from rljob_runtime.contract import Phase, Progress, StopMode, StopRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = TokenKey(b"k" * 32)
HEAD = Head("127.0.0.1", "p1", "j1", "c1")
SUBMISSION = SubmitJob(
    "127.0.0.1",
    "p1",
    "j1",
    "c1",
    "c1-1",
    "python -m rljob_runtime launch",
    (("RLJOB_ATTEMPT", "1"),),
    (("job", "sums"),),
)
STOP = StopRun("127.0.0.1", "p1", "j1", "c1", 3, StopMode.ABORT_ROLLOUT)


class World:
    """A head with configured answers, and the client."""

    def __init__(self, server: Server, client: RayClient) -> None:
        self.server = server
        self.client = client
        # As on the nodes' network, where every job has its own ports.
        self.head = replace(HEAD, dashboard_port=server.port, api_port=server.port)
        self.submission = replace(SUBMISSION, port=server.port, may_be_open=True)
        self.stop = replace(STOP, port=server.port)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with Server(says(200, {})) as server:
        client = RayClient(KEY, Metrics())
        yield World(server, client)
        await client.close()


def job(state: str, **fields: object) -> dict[str, object]:
    return {"submission_id": "c1-1", "status": state, "message": None, "driver_exit_code": None, **fields}


async def test_progress_is_read_with_the_token_of_this_cluster(world: World) -> None:
    told = Progress(pod_uid="p1", phase=Phase.TRAINING, submission_id="c1-1", step=3)
    world.server.answer = says_text(200, told.to_json().decode())
    assert await world.client.progress(world.head) == told
    _, path, headers, _ = world.server.asked[0]
    assert path == "/v1/progress"
    assert headers["Authorization"] == f"Bearer {KEY.token('j1', 'c1')}"
    assert headers["User-Agent"] == "rljob-operator"


async def test_an_invented_status_adds_no_series_for_each_number(world: World) -> None:
    metrics = Metrics()
    client = RayClient(KEY, metrics)
    for status in (200, 418, 599, 777, 999):
        world.server.answer = says_text(status, "{}")
        with pytest.raises(errors.RayError):
            await client.progress(world.head)
    samples = [sample for family in metrics.ray_requests.collect() for sample in family.samples]
    assert {sample.labels["code"] for sample in samples} == {"200", "418", "other"}
    await client.close()


OLD, NEW = TokenKey(b"o" * 32), TokenKey(b"n" * 32, TokenKey(b"o" * 32))


def guarded(key: TokenKey, answer: Answer) -> Answer:
    """Return a head whose cluster was created while `key` was the current one."""

    async def check(request: web.Request) -> web.StreamResponse:
        if request.headers["Authorization"] != f"Bearer {key.token('j1', 'c1')}":
            return web.Response(status=401)
        return await answer(request)

    return check


async def test_while_the_key_is_rotated_old_and_new_clusters_are_reached(world: World) -> None:
    told = Progress(pod_uid="p1", phase=Phase.TRAINING, submission_id="c1-1", step=3)
    client = RayClient(NEW, Metrics())
    for key, requests in ((NEW, 1), (OLD, 2)):
        world.server.asked.clear()
        world.server.answer = guarded(key, says_text(200, told.to_json().decode()))
        assert await client.progress(world.head) == told
        assert len(world.server.asked) == requests
        world.server.answer = guarded(key, says(200, {}))
        await client.submit(world.submission)
        world.server.answer = guarded(key, says(202, {}))
        await client.stop(world.stop)
    await client.close()


async def test_after_the_rotation_a_head_with_an_older_token_is_refused(world: World) -> None:
    world.server.answer = guarded(OLD, says(200, {}))
    client = RayClient(TokenKey(NEW.key), Metrics())
    with pytest.raises(errors.HeadRefused, match="does not match this operator's key"):
        await client.progress(world.head)
    assert len(world.server.asked) == 1
    await client.close()


async def test_a_head_that_rejects_both_keys_is_asked_twice_and_refused(world: World) -> None:
    world.server.answer = guarded(TokenKey(b"x" * 32), says(200, {}))
    client = RayClient(NEW, Metrics())
    with pytest.raises(errors.HeadRefused):
        await client.progress(world.head)
    assert len(world.server.asked) == 2
    await client.close()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (says_text(200, "<html>"), errors.HeadNonsense),
        (says(200, {"podUid": 3}), errors.HeadNonsense),
        (says_text(200, "x" * (ANSWER_BYTES + 1)), errors.HeadNonsense),
        (says_text(302, "", Location="http://127.0.0.1:1/"), errors.HeadNonsense),
        (says(401), errors.HeadRefused),
        (says(403), errors.HeadRefused),
        (says(503), errors.HeadBusy),
        (says(404), errors.HeadNonsense),
    ],
)
async def test_what_is_not_progress_is_an_error(world: World, answer: Answer, expected: type[Exception]) -> None:
    world.server.answer = answer
    with pytest.raises(expected):
        await world.client.progress(world.head)
    assert len(world.server.asked) == 1


NOT_JSON = ("[" * 60_000, '{"a":' * 10_000, "1" + "0" * 400, "9" * 5000, "1e999", "NaN", '{"a":1,"a":2}')
"""Texts that `json.loads` reads as what fails later, or fails to read with an error of another kind."""


@pytest.mark.parametrize("field", ["", "step", "reward", "driver_exit_code", "message", "submission_id", "status"])
@pytest.mark.parametrize("text", NOT_JSON, ids=range(len(NOT_JSON)))
async def test_every_answer_that_cannot_be_parsed_is_nonsense(world: World, text: str, field: str) -> None:
    known = '"podUid": "p1", "phase": "Idle", "submission_id": "c1-1", "status": "RUNNING"'
    world.server.answer = says_text(200, f'{{{known}, "{field}": {text}}}' if field else text)
    with pytest.raises(errors.HeadNonsense) as progress:
        await world.client.progress(world.head)
    with pytest.raises(errors.HeadNonsense) as found:
        await world.client.job(world.head, "c1-1")
    assert len(str(progress.value)) < 300
    assert len(str(found.value)) < 300


@pytest.mark.parametrize("text", ["[" * 16_000, '{"logs": ' + "[" * 5000, '{"logs": 1' + "0" * 5000 + "}", "[]", "{}"])
async def test_the_end_of_a_log_that_cannot_be_parsed_is_no_log(world: World, text: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=text) if request.path.endswith("/logs") else web.json_response(job("FAILED"))

    world.server.answer = answer
    found = await world.client.job(world.head, "c1-1")
    assert found is not None
    assert (found.state, found.log_tail) == (RayJobState.FAILED, "")


async def test_half_of_a_surrogate_pair_becomes_text_that_a_status_can_hold(world: World) -> None:
    world.server.answer = says_text(200, json.dumps(job("RUNNING", message="cut \ud83d")))
    found = await world.client.job(world.head, "c1-1")
    assert found is not None
    assert found.message.encode() == b"cut \\ud83d"


async def test_an_answer_is_not_decompressed(world: World) -> None:
    bomb = gzip.compress(b" " * (1 << 24))
    assert len(bomb) < ANSWER_BYTES
    world.server.answer = lambda _: _answered(web.Response(body=bomb, headers={"Content-Encoding": "gzip"}))
    with pytest.raises(errors.HeadNonsense, match="UTF-8"):
        await world.client.progress(world.head)
    assert world.server.asked[0][2]["Accept-Encoding"] == "identity"


@pytest.mark.parametrize(("count", "size"), [(HEADER_BYTES // 8, 8), (1, HEADER_BYTES + 1)])
async def test_headers_are_bounded(world: World, count: int, size: int) -> None:
    headers = {f"x-{number}": "x" * size for number in range(count)}
    world.server.answer = says_text(200, "{}", **headers)
    with pytest.raises(errors.HeadNonsense, match="longer than"):
        await world.client.progress(world.head)


ENDLESS = {
    "interim responses": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "one header": (b"HTTP/1.1 200 OK\r\n", b"x"),
    "a body": (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "a chunk's size": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1"),
    "no HTTP": (b"", b"x\r\n\r\n"),
    "a length that is none": (b"HTTP/1.1 200 OK\r\nContent-Length: 9", b"9"),
    "a length that is negative": (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", b"x"),
}
ENDINGS = {
    "no header": b"HTTP/1.1 200 OK\r\n",
    "no colon": b"HTTP/1.1 200 OK\r\nabc\r\n\r\n",
    "half a body": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx",
    "half a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nx",
    "a chunk that is too long": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxxx\r\n0\r\n\r\n",
}


@contextlib.asynccontextmanager
async def raw(first: bytes, endless: bytes = b"") -> AsyncIterator[tuple[Head, list[int]]]:
    """Serve bytes, some of them for ever; yield the head, and how many bytes the client took."""
    taken = [0]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(first)
            while endless:
                writer.write(endless * 1000)
                taken[0] += len(endless) * 1000
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield replace(HEAD, api_port=port, dashboard_port=port), taken
    finally:
        server.close()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", ENDLESS)
async def test_of_an_answer_without_end_little_is_read(kind: str) -> None:
    client = RayClient(KEY, Metrics())
    async with raw(*ENDLESS[kind]) as (head, taken):
        with pytest.raises(errors.HeadNonsense):
            await client.progress(head)
        # The rest is in the buffers of the kernel.
        assert taken[0] < 16 << 20


@pytest.mark.parametrize("kind", ENDINGS)
async def test_an_answer_that_ends_early_or_lies_is_nonsense(kind: str) -> None:
    client = RayClient(KEY, Metrics())
    async with raw(ENDINGS[kind]) as (head, _):
        with pytest.raises(errors.HeadNonsense):
            await client.progress(head)


async def test_a_body_in_chunks_is_read_whole() -> None:
    told = Progress(pod_uid="p1", phase=Phase.IDLE).to_json()
    chunks = b"".join(b"%x;name=value\r\n%b\r\n" % (1, told[at : at + 1]) for at in range(len(told)))
    client = RayClient(KEY, Metrics())
    async with raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n" + chunks + b"0\r\n\r\n") as (head, _):
        assert (await client.progress(head)).phase is Phase.IDLE


async def _answered(answer: web.Response) -> web.Response:
    return answer


async def test_a_head_that_is_not_there_or_hangs_is_unreachable(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        raise AssertionError

    world.server.answer = hang
    monkeypatch.setattr(ray, "READ_SECONDS", 0.05)
    with pytest.raises(errors.HeadUnreachable):
        await world.client.progress(world.head)
    await world.server._runner.cleanup()
    with pytest.raises(errors.HeadUnreachable):
        await world.client.progress(world.head)


async def test_a_submission_is_posted_whole(world: World) -> None:
    await world.client.submit(world.submission)
    method, path, _, body = world.server.asked[0]
    assert (method, path) == ("POST", "/api/jobs/")
    assert body == {
        "submission_id": "c1-1",
        "entrypoint": "python -m rljob_runtime launch",
        "runtime_env": {"env_vars": {"RLJOB_ATTEMPT": "1"}},
        "metadata": {"job": "sums"},
    }


async def test_nothing_is_submitted_to_a_head_that_asks_for_no_token(world: World) -> None:
    with pytest.raises(errors.HeadOpen, match="answers without the token of the cluster"):
        await world.client.submit(replace(world.submission, may_be_open=False))
    ((method, path, headers, _),) = world.server.asked
    assert (method, path) == ("GET", "/api/jobs/")
    assert "Authorization" not in headers


async def test_a_head_that_asks_for_its_token_gets_the_submission(world: World) -> None:
    async def guarded(request: web.Request) -> web.Response:
        return web.json_response({}, status=200 if "Authorization" in request.headers else 401)

    world.server.answer = guarded
    await world.client.submit(replace(world.submission, may_be_open=False))
    assert [asked[0] for asked in world.server.asked] == ["GET", "POST"]


async def test_a_submission_that_is_there_already_counts_as_done(world: World) -> None:
    text = "Traceback ... Job with submission_id c1-1 already exists. Please use a different submission_id."
    world.server.answer = says_text(500, text)
    await world.client.submit(world.submission)


@pytest.mark.parametrize("text", ["No available agent to submit job, please try again later.", "oops"])
async def test_a_young_head_is_asked_again_later(world: World, text: str) -> None:
    world.server.answer = says_text(500, text)
    with pytest.raises(errors.HeadBusy):
        await world.client.submit(world.submission)


async def test_another_submission_that_exists_is_not_ours(world: World) -> None:
    world.server.answer = says_text(500, "Job with submission_id other already exists.")
    with pytest.raises(errors.HeadBusy):
        await world.client.submit(world.submission)


async def test_a_submission_that_the_head_does_not_know_is_none(world: World) -> None:
    world.server.answer = says_text(404, "Job c1-1 does not exist")
    assert await world.client.job(world.head, "c1-1") is None


async def test_a_running_job_costs_one_request(world: World) -> None:
    world.server.answer = says(200, job("RUNNING", message="Job is running."))
    found = await world.client.job(world.head, "c1-1")
    assert found is not None
    assert (found.state, found.message, found.log_tail) == (RayJobState.RUNNING, "Job is running.", "")
    assert [asked[1] for asked in world.server.asked] == ["/api/jobs/c1-1"]


@pytest.mark.parametrize("lines", [3, 5000])
async def test_an_ended_job_brings_the_end_of_its_log(world: World, lines: int) -> None:
    log = "".join(f'line {number} "quoted" \\ back\n' for number in range(lines))

    async def answer(request: web.Request) -> web.Response:
        if request.path.endswith("/logs"):
            return web.json_response({"logs": log})
        return web.json_response(job("FAILED", driver_exit_code=64))

    world.server.answer = answer
    found = await world.client.job(world.head, "c1-1")
    assert found is not None
    assert (found.state, found.driver_exit_code) == (RayJobState.FAILED, 64)
    assert found.log_tail == log[-LOG_TAIL_CHARACTERS:]


async def test_an_end_is_reported_without_a_log(world: World) -> None:
    async def answer(request: web.Request) -> web.Response:
        status = 500 if request.path.endswith("/logs") else 200
        return web.json_response(job("SUCCEEDED", driver_exit_code=0), status=status)

    world.server.answer = answer
    found = await world.client.job(world.head, "c1-1")
    assert found is not None
    assert (found.driver_exit_code, found.log_tail) == (0, "")


@pytest.mark.parametrize("body", [job("DANCING"), job("RUNNING", submission_id="other"), [], {"status": "RUNNING"}])
async def test_a_job_that_is_not_one_is_an_error(world: World, body: object) -> None:
    world.server.answer = says_text(200, json.dumps(body))
    with pytest.raises(errors.HeadNonsense):
        await world.client.job(world.head, "c1-1")


@pytest.mark.parametrize(
    "body",
    [job("a-" * 30_000), job("RUNNING", submission_id="a-" * 30_000), job("RUNNING") | {"status": ["a-"] * 10_000}],
)
async def test_of_what_is_no_job_little_is_quoted(world: World, body: object) -> None:
    world.server.answer = says_text(200, json.dumps(body))
    with pytest.raises(errors.HeadNonsense) as caught:
        await world.client.job(world.head, "c1-1")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(("status", "kind"), [(500, errors.HeadBusy), (404, errors.HeadNonsense)])
async def test_a_secret_is_hidden_before_an_answer_is_cut(
    world: World, status: int, kind: type[errors.RayError]
) -> None:
    world.server.answer = says_text(status, "token=" + "§" * 300)
    with pytest.raises(kind) as caught:
        await world.client.progress(world.head)
    assert str(caught.value) == f"progress: {status} token=[redacted]"


async def test_a_request_to_stop_names_attempt_and_mode(world: World) -> None:
    world.server.answer = says(202, {})
    await world.client.stop(world.stop)
    method, path, headers, body = world.server.asked[0]
    assert (method, path) == ("POST", "/v1/stop")
    assert headers["Authorization"] == f"Bearer {KEY.token('j1', 'c1')}"
    assert StopRequest.from_json(json.dumps(body)) == StopRequest(3, StopMode.ABORT_ROLLOUT)


async def test_an_image_that_does_not_know_the_mode_is_asked_to_stop_at_once(world: World) -> None:
    async def answer(request: web.Request) -> web.Response:
        known = (await request.json())["mode"] == "Immediate"
        return web.json_response({}, status=202) if known else web.Response(status=400, text="mode: unknown")

    world.server.answer = answer
    await world.client.stop(world.stop)
    asked = [StopRequest.from_json(json.dumps(body)) for *_, body in world.server.asked]
    assert asked == [StopRequest(3, StopMode.ABORT_ROLLOUT), StopRequest(3, StopMode.IMMEDIATE)]


async def test_an_image_that_understands_no_request_to_stop_is_not_asked_for_ever(world: World) -> None:
    world.server.answer = says_text(400, "no")
    with pytest.raises(errors.HeadNonsense):
        await world.client.stop(world.stop)
    assert len(world.server.asked) == 2
    with pytest.raises(errors.HeadNonsense):
        await world.client.stop(replace(world.stop, mode=StopMode.IMMEDIATE))
    assert len(world.server.asked) == 3


async def test_a_fence_holds_submissions_and_requests_to_stop(world: World) -> None:
    def closed() -> None:
        raise errors.Unavailable("not the leader")

    world.client.fence = closed
    for call in (world.client.submit(world.submission), world.client.stop(world.stop)):
        with pytest.raises(errors.Unavailable, match="not the leader"):
            await call
    assert world.server.asked == []


@pytest.mark.parametrize(
    ("status", "expected"), [(409, errors.HeadBusy), (401, errors.HeadRefused), (404, errors.HeadNonsense)]
)
async def test_a_request_to_stop_that_is_not_taken_is_an_error(
    world: World, status: int, expected: type[Exception]
) -> None:
    world.server.answer = says_text(status, "attempt 4 is current, not 3")
    with pytest.raises(expected):
        await world.client.stop(world.stop)
