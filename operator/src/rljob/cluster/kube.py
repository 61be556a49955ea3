"""The Kubernetes API through the transport of kubernetes.aio: plain JSON in, plain JSON out.

Only authentication, TLS and the HTTP call of the library are used, because its models drop fields that they do not
know. This module alone gives a request its timeout, waits for the limiter, counts and logs the request, and maps status
codes to errors of `cluster.errors`. It retries nothing: the caller's queue does that, level-triggered.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies_environment

import aiohttp
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import load_incluster_config, load_kube_config

from rljob.cluster import errors
from rljob.cluster.bounded import decode
from rljob.cluster.kinds import LEASE, POD, SECRET, UNREAD, Kind, kind_of
from rljob.cluster.manifests import spec_fields, without_fields
from rljob.cluster.port import FIELD_MANAGER, Fence, Listing, unfenced
from rljob.core.observed import Manifest
from rljob.telemetry.log import Log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rljob.cluster.limiter import TokenBucket
    from rljob.telemetry.metrics import Metrics

PAGE = 10
"""Objects per page of a LIST. An object has at most 1.5 MiB (etcd's --max-request-bytes), so a page has at most 15 MiB
of text, of which one object at a time is parsed (`cluster.bounded`); with 500, as client-go uses, a page could be
larger than the operator's memory."""
REQUEST_SECONDS = 30.0
LEASE_SECONDS = 5.0
"""Timeout of requests about the Lease, whose holder must have the answer within its deadline of 10 s."""
MESSAGE_LIMIT = 500
LOG_LINE_BYTES = 16 * 1024
"""Maximum length of a line of a container's log: containerd's CRI splits longer ones."""

_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_WRITES = frozenset({"create", "update", "patch", "delete"})
_METHODS = {"get": "GET", "list": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}

log = Log(__name__)


async def load_configuration(kubeconfig: str) -> Configuration:
    """Read the credentials from the kubeconfig if there is one, otherwise from the pod's service account."""
    configuration = Configuration()
    if kubeconfig:
        await load_kube_config(config_file=kubeconfig, client_configuration=configuration, persist_config=False)
    else:
        load_incluster_config(client_configuration=configuration)
    configuration.retries = None
    # With the library's default True, aiohttp looks for proxies and a .netrc before each request, on a thread of its
    # own.
    configuration.client_session_kwargs = {"trust_env": bool(getproxies_environment())}
    return configuration


@dataclass(frozen=True)
class _Call:
    """One request, before authentication."""

    verb: str
    kind: Kind
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Manifest | None = None
    content_type: str = _JSON
    accept: str = _JSON

    @property
    def writes(self) -> bool:
        return self.verb in _WRITES


class KubeCluster:
    """`Cluster` on a real API server."""

    def __init__(self, configuration: Configuration, metrics: Metrics, limiter: TokenBucket) -> None:
        self._client = ApiClient(configuration)
        self._client.user_agent = FIELD_MANAGER
        self._metrics = metrics
        self._limiter = limiter
        self.fence: Fence = unfenced
        """Called immediately before each write is sent."""

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        """See `Cluster.get`."""
        return await self._request(_Call("get", kind, kind.path(namespace, name)))

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        label_selector: str = "",
        limit: int | None = None,
        field_selector: str = "",
        *,
        metadata_only: bool = False,
    ) -> Listing:
        """See `Cluster.list`."""
        selectors = [
            (name, value)
            for name, value in (("labelSelector", label_selector), ("fieldSelector", field_selector))
            if value
        ]
        accept = _METADATA if metadata_only else _JSON
        try:
            return await self._list(kind, namespace, selectors, limit, accept)
        except _ExpiredError:
            # The continue token outlived etcd's history; only a list from the start is consistent.
            return await self._list(kind, namespace, selectors, limit, accept)

    async def spec_fields(self, kind: Kind) -> frozenset[str]:
        """See `Cluster.spec_fields`. Uses OpenAPI, which every account may read (ClusterRole system:discovery)."""
        answer = await self._request(_Call("get", kind, f"/openapi/v3/apis/{kind.api_version}"))
        return spec_fields(kind, answer)

    async def log_tail(self, namespace: str, pod: str, container: str, lines: int) -> str:
        """See `Cluster.log_tail`."""
        query = (("container", container), ("tailLines", str(lines)), ("limitBytes", str(lines * LOG_LINE_BYTES)))
        answer = await self._ask(_Call("get", POD, POD.path(namespace, pod, "log"), query))
        return answer.decode(errors="replace")

    async def create(self, manifest: Manifest) -> Manifest:
        """See `Cluster.create`."""
        kind = kind_of(manifest)
        path = kind.path(manifest["metadata"].get("namespace"))
        return await self._request(_Call("create", kind, path, (("fieldManager", FIELD_MANAGER),), manifest))

    async def replace(self, manifest: Manifest) -> Manifest:
        """See `Cluster.replace`."""
        kind, metadata = kind_of(manifest), manifest["metadata"]
        path = kind.path(metadata["namespace"], metadata["name"])
        return await self._request(_Call("update", kind, path, (("fieldManager", FIELD_MANAGER),), manifest))

    async def delete(
        self, kind: Kind, namespace: str, name: str, uid: str | None, *, grace_seconds: int | None = None
    ) -> None:
        """See `Cluster.delete`."""
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        await self._request(_Call("delete", kind, kind.path(namespace, name), body=body))

    async def apply(self, manifest: Manifest) -> Manifest:
        """See `Cluster.apply`."""
        kind, metadata = kind_of(manifest), manifest["metadata"]
        path = kind.path(metadata.get("namespace"), metadata["name"])
        query = (("fieldManager", FIELD_MANAGER), ("force", "true"))
        return await self._request(_Call("patch", kind, path, query, manifest, _APPLY))

    async def apply_status(self, manifest: Manifest) -> Manifest:
        """See `Cluster.apply_status`."""
        kind, metadata = kind_of(manifest), manifest["metadata"]
        path = kind.path(metadata["namespace"], metadata["name"], "status")
        query = (("fieldManager", FIELD_MANAGER), ("force", "true"))
        return await self._request(_Call("patch", kind, path, query, manifest, _APPLY))

    async def set_finalizers(self, manifest: Manifest) -> Manifest:
        """See `Cluster.set_finalizers`."""
        kind, metadata = kind_of(manifest), manifest["metadata"]
        path = kind.path(metadata["namespace"], metadata["name"])
        wanted = {"metadata": {key: metadata[key] for key in ("uid", "resourceVersion", "finalizers")}}
        return await self._request(_Call("patch", kind, path, (("fieldManager", FIELD_MANAGER),), wanted, _MERGE))

    async def _list(
        self, kind: Kind, namespace: str | None, selectors: Sequence[tuple[str, str]], limit: int | None, accept: str
    ) -> Listing:
        items: list[Manifest] = []
        token = ""
        while True:
            page = PAGE if limit is None else min(PAGE, limit - len(items))
            query = [("limit", str(page)), *selectors]
            query += [("continue", token)] if token else []
            answer = await self._request(_Call("list", kind, kind.path(namespace), tuple(query), accept=accept))
            # Items of a list have neither apiVersion nor kind, or those of PartialObjectMetadata; with their own, each
            # is a normal manifest. Of metadata, an empty list is null.
            whole = ({**item, "apiVersion": kind.api_version, "kind": kind.kind} for item in answer["items"] or ())
            # Convert page by page, so that a thousand whole objects are never in memory at once.
            items += [without_fields(item, UNREAD.get(kind, ())) for item in whole]
            token = answer["metadata"].get("continue", "")
            if not token or (limit is not None and len(items) >= limit):
                return Listing(tuple(items), answer["metadata"]["resourceVersion"], is_cut=bool(token))

    async def _request(self, call: _Call) -> Manifest:
        return _decode(call, await self._ask(call))

    async def _ask(self, call: _Call) -> bytes:
        if call.kind is not LEASE:
            # Requests for the Lease must not wait behind the operator's other requests.
            self._metrics.api_throttle_seconds.observe(await self._limiter.take())
            if call.writes:
                self.fence()
        began = time.monotonic()
        code = "none"
        try:
            status, headers, text = await self._send(call)
            code = str(status)
        except TimeoutError as error:
            code = "timeout"
            raise _lost(call, "no answer in time") from error
        except aiohttp.ClientConnectorError as error:
            raise errors.Unavailable(f"{call.verb} {call.path}: no connection: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _lost(call, str(error) or type(error).__name__) from error
        finally:
            self._account(call, code, time.monotonic() - began)
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            refusal = _error(call, status, headers, text)
            if isinstance(refusal, errors.RateLimited):
                # The pause applies to all requests, because they share one user and one priority level.
                self._limiter.pause(refusal.retry_after_seconds)
            raise refusal
        return text

    async def _send(self, call: _Call) -> tuple[int, Manifest, bytes]:
        seconds = LEASE_SECONDS if call.kind is LEASE else REQUEST_SECONDS
        async with asyncio.timeout(seconds):
            method, url, headers, body, _ = await self._client.param_serialize(
                _METHODS[call.verb],
                call.path,
                query_params=list(call.query),
                header_params={"Accept": call.accept, "Content-Type": call.content_type},
                body=call.body,
                auth_settings=["BearerToken"],
            )
            timeout = aiohttp.ClientTimeout(total=seconds)
            answer = await self._client.call_api(method, url, headers, body, _request_timeout=timeout)
            return answer.status, answer.headers, await answer.read()

    def _account(self, call: _Call, code: str, seconds: float) -> None:
        self._metrics.api_requests.labels(call.verb, call.kind.resource, code).inc()
        self._metrics.api_request_seconds.labels(call.verb).observe(seconds)
        if call.writes and code.startswith("2"):
            self._metrics.api_writes.labels(call.verb, call.kind.resource).inc()
        say = log.info if call.writes and call.kind is not LEASE else log.debug
        say("API request", verb=call.verb, path=call.path, code=code, milliseconds=round(seconds * 1000, 1))


class _ExpiredError(errors.Unavailable):
    """410: a page of a list has expired. If that happens again, the request is retried later."""


def _lost(call: _Call, why: str) -> errors.Unavailable:
    kind = errors.OutcomeUnknown if call.writes else errors.Unavailable
    return kind(f"{call.verb} {call.path}: {why}")


def _decode(call: _Call, text: bytes) -> Manifest:
    try:
        answer = decode(text.decode(), call.kind.kind)
    except (ValueError, RecursionError) as error:
        raise _lost(call, "the answer is not JSON") from error
    if not isinstance(answer, dict):
        raise _lost(call, "the answer is not an object")
    return answer


def _error(call: _Call, status: int, headers: Manifest, text: bytes) -> Exception:
    """Return the error for a status code, with the message of the server's Status object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    # What a proxy answers may be any JSON, with any code.
    body: dict[str, Any] = found if isinstance(found, dict) else {}
    phrase = HTTPStatus(status).phrase if status in list(HTTPStatus) else "no known status"
    said = str(body.get("message") or phrase)[:MESSAGE_LIMIT]
    if call.kind is SECRET:
        said = str(body.get("reason") or phrase)[:MESSAGE_LIMIT]  # a message may quote what was rejected
    message = f"{call.verb} {call.path}: {status} {said}"
    match status:
        case 404:
            return errors.NotFound(message)
        case 409:
            taken = body.get("reason") == "AlreadyExists"
            return errors.AlreadyExists(message) if taken else errors.Conflict(message)
        case 410:
            return _ExpiredError(message)
        case 401 | 403:
            return errors.Forbidden(message)
        case 429:
            return errors.RateLimited(message, _retry_after(headers))
        case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return errors.OutcomeUnknown(message) if call.writes else errors.Unavailable(message)
        case 400 | 405 | 413 | 422 if body.get("kind") == "Status":
            return errors.Invalid(message)
        case _:
            # An answer of a proxy, or a code that the API does not use; it is no statement about the manifest.
            return errors.OutcomeUnknown(message) if call.writes else errors.Unavailable(message)


def _retry_after(headers: Manifest) -> float:
    try:
        return min(max(1.0, float(headers.get("Retry-After", "1"))), 60.0)  # in this order, NaN is 1
    except ValueError:
        return 1.0
