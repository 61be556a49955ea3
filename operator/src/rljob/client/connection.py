"""Requests to the API server: JSON, streams of lines and commands in containers, with deadlines and errors that teach.

The only module that speaks HTTP. Credentials are those of `login`; when the server refuses them, they are read once
more, since tokens of clouds live for minutes and a notebook for days. Reads and writes are not repeated otherwise,
except where the server has refused a request because of load (429). Command lines and answers are never logged.

kr8s and lightkube would bring a second client of Kubernetes, and httpx beside aiohttp. Of the client that the operator
pins, the logins and TLS are used: its models drop fields that they do not know, and its calls bound no answer.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.request import getproxies_environment

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject

from rljob.api.printing import printable
from rljob.client import errors
from rljob.client.login import Login, log_in
from rljob.client.refusals import JSON, ApiRequest, refusal
from rljob.core.observed import Manifest

MERGE: Final = "application/merge-patch+json"
REQUEST_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 10.0
BUSY_TRIES: Final = 5
BUSY_SECONDS: Final = 10.0
"""Longest pause that is kept when the server asks for one (429, Retry-After)."""
ANSWER_BYTES: Final = 64 << 20
"""Most bytes of an answer: a page of a LIST has at most 15 MiB."""
ERROR_BYTES: Final = 64 << 10
HEARTBEAT_SECONDS: Final = 30.0
PROTOCOL: Final = "v4.channel.k8s.io"
STDOUT, STDERR, RESULT = 1, 2, 3
"""Channels of that protocol, by the first byte of a message (apimachinery v0.36,
pkg/util/remotecommand/constants.go)."""


@dataclass
class _Session:
    """An open session with the credentials that it was made for."""

    login: Login
    http: aiohttp.ClientSession

    async def options(self) -> dict[str, Any]:
        """Return what every request has: headers, and the way to the server."""
        configuration = self.login.configuration
        token = await configuration.get_api_key_with_prefix("BearerToken")
        options: dict[str, Any] = {"headers": {"User-Agent": "rljob-client"}}
        if token:
            options["headers"]["Authorization"] = token
        if configuration.tls_server_name:
            options["server_hostname"] = configuration.tls_server_name
        if configuration.proxy:
            options |= {"proxy": configuration.proxy, "proxy_headers": configuration.proxy_headers}
        return options


class Connection:
    """Access to one cluster, for one event loop. Nothing is read or connected before the first request."""

    def __init__(self, kubeconfig: str | os.PathLike[str] | None = None, context: str | None = None) -> None:
        self._kubeconfig, self._context = kubeconfig, context
        self._session: _Session | None = None
        self._opening = asyncio.Lock()

    async def login(self) -> Login:
        """Return the credentials, which are read at the first use."""
        return (await self._open()).login

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.http.close()
            self._session = None

    async def send(self, request: ApiRequest) -> Manifest:
        """Send a request and return the object that the server answers with."""
        for _ in range(BUSY_TRIES):
            async with self._answer(request, aiohttp.ClientTimeout(REQUEST_SECONDS)) as answer:
                if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
                    await asyncio.sleep(_retry_after(answer))
                    continue
                await self._refuse(request, answer)
                text = await _read(answer, ANSWER_BYTES)
            return _object(request, text)
        raise errors.Unreachable(
            f"{request.subject}: the API server is overloaded and refused {BUSY_TRIES} requests; try again later"
        )

    @asynccontextmanager
    async def stream(self, request: ApiRequest, silent_seconds: float | None) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a stream. It ends with Unreachable if nothing arrives for this many seconds."""
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=silent_seconds)
        async with self._answer(request, limits) as answer:
            await self._refuse(request, answer)
            yield answer

    async def execute(self, path: str, subject: str, container: str, command: Sequence[str]) -> AsyncGenerator[bytes]:
        """Run a command in a container of a pod and yield what it prints. Raise NotAvailable if it fails."""
        query = [("container", container), ("stdout", "true"), ("stderr", "true"), *(("command", w) for w in command)]
        request = ApiRequest("GET", path, subject, tuple(query))
        said = b""
        async with self._websocket(request) as socket:
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                    continue
                channel, data = message.data[0], message.data[1:]
                if channel == STDOUT and data:
                    yield data
                elif channel == STDERR:
                    said = (said + data)[-ERROR_BYTES:]
                elif channel == RESULT:
                    _check_result(subject, data, said)
                    return
        raise errors.Unreachable(f"{subject}: the connection to the container ended before the command did")

    async def _open(self) -> _Session:
        async with self._opening:
            if self._session is None:
                login = await log_in(self._kubeconfig, self._context)
                self._session = _Session(login, _http(login))
            return self._session

    async def _renew(self, refused: _Session) -> _Session:
        """Read the credentials again, unless that has happened since."""
        async with self._opening:
            if self._session is refused:
                login = await log_in(self._kubeconfig, self._context)
                same = _tls_files(login) == _tls_files(refused.login)
                # Streams that are open were accepted with the old token, and continue.
                self._session = _Session(login, refused.http if same else _http(login))
                if not same:
                    await refused.http.close()
        return await self._open()

    @asynccontextmanager
    async def _answer(
        self, request: ApiRequest, limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, a second time with new credentials if the first ones are refused."""
        session = await self._open()
        with _outages(request, session.login):
            answer = await _ask(session, request, limits)
            if answer.status == HTTPStatus.UNAUTHORIZED:
                answer.close()
                session = await self._renew(session)
                answer = await _ask(session, request, limits)
            try:
                yield answer
            finally:
                answer.close()

    @asynccontextmanager
    async def _websocket(self, request: ApiRequest) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a websocket; as `_answer` otherwise."""
        session = await self._open()
        with _outages(request, session.login):
            try:
                socket = await _connect(session, request)
            except aiohttp.WSServerHandshakeError as error:
                if error.status != HTTPStatus.UNAUTHORIZED:
                    raise _not_executed(request, session.login, error.status) from error
                session = await self._renew(session)
                try:
                    socket = await _connect(session, request)
                except aiohttp.WSServerHandshakeError as again:
                    raise _not_executed(request, session.login, again.status) from again
            try:
                yield socket
            finally:
                await socket.close()

    async def _refuse(self, request: ApiRequest, answer: aiohttp.ClientResponse) -> None:
        """Raise the error for an answer that is not a success."""
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            text = await answer.content.read(ERROR_BYTES)
            raise refusal(request, await self.login(), answer.status, text)


def _http(login: Login) -> aiohttp.ClientSession:
    # TLS as the library sets it up; its own session has no streams and no websockets with all settings of a kubeconfig.
    tls = RESTClientObject(login.configuration).ssl_context
    # With trust_env, aiohttp looks for a .netrc before each request, on a thread of its own.
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls), trust_env=bool(getproxies_environment()))


def _tls_files(login: Login) -> tuple[str | None, ...]:
    settings = login.configuration
    return settings.host, settings.ssl_ca_cert, settings.cert_file, settings.key_file


async def _ask(session: _Session, request: ApiRequest, limits: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
    options = await session.options()
    body = None if request.body is None else json.dumps(request.body).encode()
    # A websocket must not have the first: the API server answers it with 406.
    options["headers"] |= {"Accept": JSON, "Content-Type": request.content_type}
    url = session.login.server + request.path
    return await session.http.request(
        request.method, url, params=request.query, data=body, timeout=limits, allow_redirects=False, **options
    )


async def _connect(session: _Session, request: ApiRequest) -> aiohttp.ClientWebSocketResponse:
    options = await session.options()
    url = session.login.server + request.path
    return await asyncio.wait_for(
        session.http.ws_connect(
            url, params=request.query, protocols=(PROTOCOL,), heartbeat=HEARTBEAT_SECONDS, autoclose=True, **options
        ),
        REQUEST_SECONDS,
    )


def _not_executed(request: ApiRequest, login: Login, status: int) -> errors.RLJobError:
    """Return the exception where no command can run; the handshake of a websocket has only the status code."""
    match status:
        case 400 | 404:
            return errors.NotAvailable(f"{request.subject} does not run, so nothing can be read in it ({status})")
        case 403:
            return errors.Forbidden(
                f"{request.subject}: no command may run in it; ask an administrator of the cluster for the verbs "
                f"create and get of pods/exec, for the account of {login.source}"
            )
        case _:
            return refusal(request, login, status, b"")


@contextmanager
def _outages(request: ApiRequest, login: Login) -> Iterator[None]:
    """Raise Unreachable, or OutcomeUnknown for a write that may have arrived, in place of errors of the network."""
    lost = errors.OutcomeUnknown if request.writes else errors.Unreachable
    where = f"{request.subject}: the API server {login.server} ({login.source})"
    hint = "it may have been applied, so look before you repeat it" if request.writes else "try again later"
    try:
        yield
    except TimeoutError as error:
        raise lost(f"{where} did not answer in time; {hint}") from error
    except (aiohttp.ClientConnectorError, aiohttp.ClientProxyConnectionError) as error:
        raise errors.Unreachable(
            f"{where} cannot be reached: {error}; check that the cluster runs, that your network or VPN reaches it, "
            "and that the kubeconfig or context is the right one"
        ) from error
    except (aiohttp.ClientError, OSError) as error:
        raise lost(f"{where} ended the connection: {str(error) or type(error).__name__}; {hint}") from error


def _check_result(subject: str, data: bytes, said: bytes) -> None:
    """Raise NotAvailable for the Status of a command that failed."""
    try:
        status = json.loads(data)
    except ValueError:
        status = {}
    if not isinstance(status, dict) or status.get("status") != "Success":
        message = said.decode(errors="replace").strip() or str((status and status.get("message")) or "it failed")
        raise errors.NotAvailable(f"{subject}: cannot be read in the container: {printable(message)}")


async def _read(answer: aiohttp.ClientResponse, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in answer.content.iter_any():
        size += len(part)
        if size > most:
            raise errors.RLJobError(f"{answer.url.path}: the answer is larger than {most >> 20} MiB; select less")
        parts.append(part)
    return b"".join(parts)


def _object(request: ApiRequest, text: bytes) -> Manifest:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _nonsense(request) from error
    if not isinstance(found, dict):
        raise _nonsense(request)
    return found


def _nonsense(request: ApiRequest) -> errors.Unreachable:
    kind = errors.OutcomeUnknown if request.writes else errors.Unreachable
    return kind(
        f"{request.subject}: the answer is not a Kubernetes object, so it is not from an API server; check the server "
        "in the kubeconfig, and proxies in between"
    )


def _retry_after(answer: aiohttp.ClientResponse) -> float:
    try:
        return min(max(0.1, float(answer.headers.get("Retry-After", "1"))), BUSY_SECONDS)  # in this order, NaN is 0.1
    except ValueError:
        return 1.0
