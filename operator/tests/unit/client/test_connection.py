"""Answers that a real API server rarely gives: overload, failures, nonsense, and containers that answer in pieces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.config import incluster_config
from servers import Answer, Server, says, says_text

from rljob.api import patches
from rljob.client import (
    AsyncClient,
    ConfigurationError,
    Conflict,
    Forbidden,
    NotAvailable,
    NotInstalled,
    OutcomeUnknown,
    RLJobError,
    Unauthorized,
    Unreachable,
    login,
)
from rljob.client.connection import Connection
from rljob.client.lines import lines, until_over
from rljob.client.login import log_in

JOB = {
    "apiVersion": "rljob.dev/v1alpha1",
    "kind": "RLJob",
    "metadata": {"namespace": "team", "name": "sums", "uid": "u-1", "creationTimestamp": "2026-01-01T12:00:00Z"},
}


def write_kubeconfig(folder: Path, server: str, **cluster: Any) -> Path:  # noqa: ANN401 - JSON
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": {"token": "secret-token"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": "team"}}],
        "current-context": "here",
    }
    path = folder / "config"
    path.write_text(json.dumps(content))
    return path


@asynccontextmanager
async def talking(folder: Path, answer: Answer) -> AsyncIterator[tuple[AsyncClient, Server]]:
    async with Server(answer) as server:
        path = write_kubeconfig(folder, f"http://127.0.0.1:{server.port}")
        async with AsyncClient(kubeconfig=path) as client:
            yield client, server


async def test_a_request_carries_the_token_and_goes_to_the_namespace_of_the_context(tmp_path: Path) -> None:
    async with talking(tmp_path, says(200, JOB)) as (client, server):
        assert (await client.get("sums")).uid == "u-1"
        assert (await client.get("other/sums")).uid == "u-1"
    (method, path, headers, _), (_, other, _, _) = server.asked
    assert (method, path) == ("GET", "/apis/rljob.dev/v1alpha1/namespaces/team/rljobs/sums")
    assert other == "/apis/rljob.dev/v1alpha1/namespaces/other/rljobs/sums"
    assert headers["Authorization"] == "Bearer secret-token"


@pytest.mark.parametrize(
    ("call", "body"),
    [
        (lambda client: client.suspend("sums"), patches.suspend()),
        (lambda client: client.resume("sums"), patches.resume()),
        (lambda client: client.stop("sums"), patches.stop()),
        (lambda client: client.stop("sums", now=True), patches.stop(now=True)),
    ],
)
async def test_each_verb_sends_its_patch(
    tmp_path: Path, call: Callable[[AsyncClient], Any], body: dict[str, Any]
) -> None:
    async with talking(tmp_path, says(200, JOB)) as (client, server):
        await call(client)
    ((method, path, headers, sent),) = server.asked
    assert (method, sent, headers["Content-Type"]) == ("PATCH", body, "application/merge-patch+json")
    assert "fieldValidation=Strict" in path


async def test_each_restart_has_another_value(tmp_path: Path) -> None:
    async with talking(tmp_path, says(200, JOB)) as (client, server):
        await client.restart("sums")
        await client.restart("sums")
    first, second = (body["metadata"]["annotations"] for *_, body in server.asked)
    assert list(first) == list(second)
    assert first != second


async def test_an_overloaded_server_is_asked_again_and_not_for_ever(tmp_path: Path) -> None:
    async def recovers(_: web.Request) -> web.Response:
        if len(server.asked) < 3:
            return web.json_response({}, status=429, headers={"Retry-After": "0"})
        return web.json_response(JOB)

    async with talking(tmp_path, recovers) as (client, server):
        assert (await client.get("sums")).name == "sums"
    async with talking(tmp_path, says(429, {}, **{"Retry-After": "0"})) as (client, server):
        with pytest.raises(Unreachable, match="overloaded and refused 5 requests"):
            await client.get("sums")
        assert len(server.asked) == 5


async def test_a_failure_of_a_write_says_that_it_may_have_been_applied(tmp_path: Path) -> None:
    async with talking(tmp_path, says(503, {"message": "etcd is gone"})) as (client, server):
        with pytest.raises(OutcomeUnknown, match=r"503 etcd is gone; it may have been applied"):
            await client.suspend("sums")
        with pytest.raises(Unreachable, match="try again later") as read:
            await client.get("sums")
        assert not isinstance(read.value, OutcomeUnknown)
        assert len(server.asked) == 2, "nothing is repeated"


async def test_a_lost_answer_to_a_write_is_outcome_unknown(tmp_path: Path) -> None:
    async def hangs_up(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with talking(tmp_path, hangs_up) as (client, _):
        with pytest.raises(OutcomeUnknown, match=r"rljob team/sums.*ended the connection"):
            await client.suspend("sums")


@pytest.mark.parametrize("text", ["<html>log in here</html>", "[1]", "[" * 100_000])
async def test_an_answer_that_is_no_kubernetes_object_is_unreachable(tmp_path: Path, text: str) -> None:
    async with talking(tmp_path, says_text(200, text)) as (client, _):
        with pytest.raises(Unreachable, match="not a Kubernetes object"):
            await client.get("sums")


@pytest.mark.parametrize(
    ("code", "body", "kind", "words"),
    [
        (403, {"kind": "Status", "message": "exceeded quota: cpu"}, Forbidden, "ResourceQuota"),
        (403, {"kind": "Status", "message": "admission webhook denied the request"}, Forbidden, "policy"),
        (409, {"kind": "Status", "reason": "Conflict", "message": "modified"}, Conflict, "read the job again"),
        (404, {"kind": "Status", "message": "the server could not find the requested resource"}, NotInstalled, "chart"),
        (302, None, Unreachable, "302 Found"),
        (418, "teapot", Unreachable, "418"),
        (403, {"kind": "Status", "message": "\x1b[31mred"}, Forbidden, r"\\u001b"),
    ],
)
async def test_each_refusal_says_what_to_do(
    tmp_path: Path, code: int, body: object, kind: type[RLJobError], words: str
) -> None:
    async with talking(tmp_path, says(code, body)) as (client, _):
        with pytest.raises(kind, match=words) as caught:
            await client.get("sums")
        assert "secret-token" not in str(caught.value)


async def test_an_unknown_state_asks_for_the_operators_release(tmp_path: Path) -> None:
    async with talking(tmp_path, says(200, {**JOB, "status": {"state": "Dreaming"}})) as (client, _):
        with pytest.raises(RLJobError, match="install the rljob of the operator's release"):
            await client.get("sums")


def container(parts: list[bytes]) -> Answer:
    async def answer(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        for part in parts:
            await socket.send_bytes(part)
        await socket.close()
        return socket

    return answer


async def execute(folder: Path, parts: list[bytes]) -> bytes:
    async with Server(container(parts)) as server:
        connection = Connection(write_kubeconfig(folder, f"http://127.0.0.1:{server.port}"))
        try:
            found = [chunk async for chunk in connection.execute("/exec", "pod a", "ray-head", ["cat", "a b"])]
        finally:
            await connection.close()
    _, path, headers, _ = server.asked[0]
    assert path.endswith("command=cat&command=a+b")
    assert headers["Accept"] == "*/*", "the API server answers 406 to a websocket that accepts JSON"
    return b"".join(found)


async def test_a_command_ends_with_its_result(tmp_path: Path) -> None:
    success = b'\x03{"status": "Success"}'
    assert await execute(tmp_path, [b"\x01", b"\x01one\n", b"\x02noise", b"\x01two", success]) == b"one\ntwo"
    with pytest.raises(NotAvailable, match=r"pod a: cannot be read in the container: no such file"):
        await execute(tmp_path, [b"\x02no such file", b'\x03{"status": "Failure"}'])
    with pytest.raises(NotAvailable, match="it failed"):
        await execute(tmp_path, [b"\x03not json"])
    with pytest.raises(Unreachable, match="ended before the command did"):
        await execute(tmp_path, [b"\x01one"])


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (400, NotAvailable, "pod a does not run"),
        (401, Unauthorized, "log in"),
        (403, Forbidden, "create and get of pods/exec"),
        (404, NotAvailable, "pod a does not run"),
        (503, Unreachable, "503"),
    ],
)
async def test_a_container_that_cannot_run_a_command_is_an_error(
    tmp_path: Path, code: int, kind: type[RLJobError], words: str
) -> None:
    async with Server(says(code, {})) as server:
        connection = Connection(write_kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}"))
        with pytest.raises(kind, match=words):
            await anext(connection.execute("/exec", "pod a", "ray-head", ["true"]))
        await connection.close()


async def test_lines_are_bounded_and_keep_their_order() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for part in (b"one\ntw", b"o\n\n", b"x" * 20, b"y" * 5 + b"\nend"):
            yield part

    assert [line async for line in lines(chunks(), 8)] == [b"one", b"two", b"", b"x" * 8, b"end"]


async def test_a_silent_stream_ends_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rljob.client.lines.IDLE_SECONDS", 0.01)
    closed = asyncio.Event()
    looks = iter((False, True))

    async def chunks() -> Any:  # noqa: ANN401 - an async generator
        try:
            yield b"one"
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def is_over() -> bool:
        return next(looks)

    assert [chunk async for chunk in until_over(chunks(), is_over)] == [b"one"]
    assert closed.is_set()


async def test_without_a_kubeconfig_and_outside_a_pod_it_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigurationError, match=r"no kubeconfig at .*absent.*set KUBECONFIG"):
        await log_in(None, None)


@pytest.mark.parametrize(
    ("text", "context", "words"),
    [
        ("{}", None, "current-context"),
        (": not: yaml: [", None, "cannot be used"),
        ("[]", None, "cannot be used"),
        (None, "elsewhere", "context elsewhere cannot be used.*get-contexts"),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_named(
    tmp_path: Path, text: str | None, context: str | None, words: str
) -> None:
    path = write_kubeconfig(tmp_path, "https://127.0.0.1:1")
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigurationError, match=words):
        await log_in(path, context)


async def test_in_a_pod_the_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name, text in (("token", "abc"), ("ca.crt", "a certificate"), ("namespace", "team\n")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(login, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    found = await log_in(None, None)
    assert (found.server, found.namespace) == ("https://10.0.0.1:443", "team")
    assert await found.configuration.get_api_key_with_prefix("BearerToken") == "bearer abc"
    (tmp_path / "token").unlink()
    with pytest.raises(ConfigurationError, match="automountServiceAccountToken"):
        await log_in(None, None)
