"""The Kubernetes adapter over HTTP: its requests, and the error for each answer."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from kubernetes.aio.client.configuration import Configuration
from servers import Server, says, says_text

from rljob.__main__ import connection_info
from rljob.cluster import errors, kube
from rljob.cluster.kinds import CONFIG_MAP, LEASE, POD, POD_GROUP, RLJOB, SECRET, Kind
from rljob.cluster.kube import KubeCluster
from rljob.cluster.limiter import TokenBucket
from rljob.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class World:
    """An API server with configured answers, and the adapter."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.metrics = Metrics()
        configuration = Configuration()
        configuration.host = f"http://127.0.0.1:{server.port}"
        configuration.api_key["BearerToken"] = "Bearer secret-token"
        self.cluster = KubeCluster(configuration, self.metrics, TokenBucket(1000, 1000, time.monotonic))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with Server(says(200, {})) as server:
        world = World(server)
        yield world
        await world.cluster.close()


def manifest(kind: Kind) -> dict[str, object]:
    metadata = {"namespace": "team", "name": "one", "uid": "u1", "resourceVersion": "7"}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


async def test_every_request_carries_the_credentials(world: World) -> None:
    await world.cluster.get(CONFIG_MAP, "team", "one")
    _, path, headers, _ = world.server.asked[0]
    assert path == "/api/v1/namespaces/team/configmaps/one"
    assert headers["Authorization"] == "Bearer secret-token"
    assert headers["User-Agent"] == "rljob-operator"


@pytest.mark.parametrize("proxy", [True, False])
async def test_a_proxy_of_the_environment_is_taken_and_no_netrc_looked_for_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, proxy: bool
) -> None:
    for name in (
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
        "no_proxy",
        "NO_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password something\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with Server(says(200, {})) as server:
        address = f"http://127.0.0.1:{server.port}"
        if proxy:
            monkeypatch.setenv("http_proxy", address)
        written = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": {"server": "http://api.invalid" if proxy else address}}],
            "users": [{"name": "me", "user": {}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(written))
        configuration = await kube.load_configuration(str(tmp_path / "kubeconfig"))
        cluster = KubeCluster(configuration, Metrics(), TokenBucket(1000, 1000, time.monotonic))
        try:
            await cluster.get(CONFIG_MAP, "team", "one")
        finally:
            await cluster.close()
    assert (await connection_info(configuration)).trust_env is proxy
    ((_, _, headers, _),) = server.asked
    assert headers["Host"] == ("api.invalid" if proxy else address.removeprefix("http://"))
    assert "Authorization" not in headers


async def test_a_status_is_sent_as_a_forced_apply(world: World) -> None:
    await world.cluster.apply_status({**manifest(RLJOB), "status": {"state": "Pending"}})
    method, path, headers, body = world.server.asked[0]
    assert method == "PATCH"
    assert path.startswith("/apis/rljob.dev/v1alpha1/namespaces/team/rljobs/one/status?")
    assert "fieldManager=rljob-operator" in path
    assert "force=true" in path
    assert headers["Content-Type"] == "application/apply-patch+yaml"
    assert (body["metadata"]["resourceVersion"], body["status"]) == ("7", {"state": "Pending"})


async def test_finalizers_are_sent_with_their_preconditions_and_nothing_else(world: World) -> None:
    job = manifest(RLJOB)
    await world.cluster.set_finalizers({**job, "metadata": {**job["metadata"], "finalizers": ["a/b"]}})  # type: ignore[dict-item]
    method, path, headers, body = world.server.asked[0]
    assert (method, headers["Content-Type"]) == ("PATCH", "application/merge-patch+json")
    assert path == "/apis/rljob.dev/v1alpha1/namespaces/team/rljobs/one?fieldManager=rljob-operator"
    assert body == {"metadata": {"uid": "u1", "resourceVersion": "7", "finalizers": ["a/b"]}}


async def test_a_deletion_sends_the_uid(world: World) -> None:
    await world.cluster.delete(CONFIG_MAP, "team", "one", "u1")
    method, _, _, body = world.server.asked[0]
    assert method == "DELETE"
    assert (body["preconditions"], body["propagationPolicy"]) == ({"uid": "u1"}, "Background")
    assert "gracePeriodSeconds" not in body
    await world.cluster.delete(POD, "team", "one", "u1", grace_seconds=1)
    assert world.server.asked[1][3]["gracePeriodSeconds"] == 1


async def test_a_list_follows_its_pages_and_names_what_it_lists(world: World) -> None:
    async def answer(request: web.Request) -> web.Response:
        token = request.query.get("continue", "")
        items = [{"metadata": {"name": f"item{token}"}}]
        metadata = {"resourceVersion": "9"} | ({"continue": "2"} if not token else {})
        return web.json_response({"metadata": metadata, "items": items})

    world.server.answer = answer
    listing = await world.cluster.list(CONFIG_MAP, "team", "a=b", field_selector="type=Warning")
    assert [item["metadata"]["name"] for item in listing.items] == ["item", "item2"]
    assert {item["kind"] for item in listing.items} == {"ConfigMap"}
    assert listing.resource_version == "9"
    assert "labelSelector=a%3Db" in world.server.asked[0][1]
    assert "fieldSelector=type%3DWarning" in world.server.asked[1][1]
    assert f"limit={kube.PAGE}" in world.server.asked[0][1]


async def test_the_end_of_a_log_is_bounded_text(world: World) -> None:
    world.server.answer = says_text(200, "first\nlast ü")
    assert await world.cluster.log_tail("team", "one", "main", 5) == "first\nlast ü"
    path = world.server.asked[0][1]
    assert path.startswith("/api/v1/namespaces/team/pods/one/log?")
    assert {"container=main", "tailLines=5", "limitBytes=81920"} == set(path.partition("?")[2].split("&"))


async def test_a_list_whose_token_expired_begins_anew_once(world: World) -> None:
    async def answer(request: web.Request) -> web.Response:
        if "continue" in request.query and len(world.server.asked) == 2:
            return web.json_response({"reason": "Expired"}, status=410)
        more = {"continue": "2"} if len(world.server.asked) == 1 else {}
        return web.json_response({"metadata": {"resourceVersion": "9", **more}, "items": []})

    world.server.answer = answer
    await world.cluster.list(CONFIG_MAP)
    assert len(world.server.asked) == 3


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (401, "Unauthorized", errors.Forbidden),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "AlreadyExists", errors.AlreadyExists),
        (409, "Conflict", errors.Conflict),
        (422, "Invalid", errors.Invalid),
        (400, "BadRequest", errors.Invalid),
        (500, "InternalError", errors.OutcomeUnknown),
        (504, "Timeout", errors.OutcomeUnknown),
    ],
)
async def test_each_answer_becomes_its_error(world: World, status: int, reason: str, expected: type[Exception]) -> None:
    world.server.answer = says(status, {"kind": "Status", "reason": reason, "message": "the server's words"})
    with pytest.raises(expected, match="the server's words"):
        await world.cluster.create(manifest(CONFIG_MAP))


@pytest.mark.parametrize("text", ["<html>", "[]", "7", "[" * 60_000])
@pytest.mark.parametrize("status", [302, 400, 408, 422, 499, 599])
async def test_what_a_proxy_says_condemns_no_manifest(world: World, status: int, text: str) -> None:
    world.server.answer = says_text(status, text)
    with pytest.raises(errors.OutcomeUnknown):
        await world.cluster.create(manifest(CONFIG_MAP))


async def test_a_read_that_fails_has_no_unknown_outcome(world: World) -> None:
    world.server.answer = says(503, {})
    with pytest.raises(errors.Unavailable) as caught:
        await world.cluster.get(CONFIG_MAP, "team", "one")
    assert not isinstance(caught.value, errors.OutcomeUnknown)


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("99999", 60.0), ("nonsense", 1.0), ("nan", 1.0)])
async def test_the_servers_wish_for_a_pause_is_kept_within_reason(world: World, header: str, seconds: float) -> None:
    world.server.answer = says(429, {}, **{"Retry-After": header})
    with pytest.raises(errors.RateLimited) as caught:
        await world.cluster.get(CONFIG_MAP, "team", "one")
    assert caught.value.retry_after_seconds == seconds


async def test_a_refused_secret_is_not_quoted(world: World) -> None:
    world.server.answer = says(422, {"kind": "Status", "reason": "Invalid", "message": "Invalid value: s3cr3t"})
    with pytest.raises(errors.Invalid) as caught:
        await world.cluster.create(manifest(SECRET))
    assert "s3cr3t" not in str(caught.value)


async def test_garbage_is_no_answer(world: World) -> None:
    for text in ("<html>", "[]", "[" * 60_000, "9" * 5000):
        world.server.answer = says_text(200, text)
        with pytest.raises(errors.Unavailable):
            await world.cluster.get(CONFIG_MAP, "team", "one")


async def test_a_write_without_an_answer_has_an_unknown_outcome(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        raise AssertionError

    world.server.answer = hang
    monkeypatch.setattr(kube, "REQUEST_SECONDS", 0.05)
    with pytest.raises(errors.OutcomeUnknown):
        await world.cluster.create(manifest(CONFIG_MAP))
    with pytest.raises(errors.Unavailable):
        await world.cluster.get(CONFIG_MAP, "team", "one")


async def test_no_connection_is_known_to_have_done_nothing(world: World) -> None:
    await world.server._runner.cleanup()
    with pytest.raises(errors.Unavailable) as caught:
        await world.cluster.create(manifest(CONFIG_MAP))
    assert not isinstance(caught.value, errors.OutcomeUnknown)


async def test_requests_and_committed_writes_are_counted(world: World) -> None:
    await world.cluster.create(manifest(CONFIG_MAP))
    world.server.answer = says(409, {"reason": "AlreadyExists"})
    with pytest.raises(errors.AlreadyExists):
        await world.cluster.create(manifest(CONFIG_MAP))
    text = world.metrics.exposition().decode()
    assert 'api_requests_total{code="409",resource="configmaps",verb="create"} 1.0' in text
    assert 'api_writes_total{resource="configmaps",verb="create"} 1.0' in text


async def test_a_list_that_expires_twice_is_asked_for_later(world: World) -> None:
    world.server.answer = says(410, {"reason": "Expired"})
    with pytest.raises(errors.Unavailable):
        await world.cluster.list(CONFIG_MAP)
    assert len(world.server.asked) == 2


async def test_one_pause_that_the_server_asks_for_holds_all_requests(world: World) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    world.cluster._limiter = TokenBucket(1000, 1000, lambda: 0.0, sleep)
    world.server.answer = says(429, {}, **{"Retry-After": "7"})
    with pytest.raises(errors.RateLimited):
        await world.cluster.get(CONFIG_MAP, "team", "one")
    world.server.answer = says(200, {})
    await world.cluster.get(CONFIG_MAP, "team", "one")
    await world.cluster.get(LEASE, "team", "one")
    assert slept == [7.0]


async def test_a_fence_holds_writes_and_neither_reads_nor_the_lease(world: World) -> None:
    def closed() -> None:
        raise errors.Unavailable("not the leader")

    world.cluster.fence = closed
    await world.cluster.get(CONFIG_MAP, "team", "one")
    await world.cluster.replace(manifest(LEASE))
    asked = len(world.server.asked)
    with pytest.raises(errors.Unavailable, match="not the leader"):
        await world.cluster.create(manifest(CONFIG_MAP))
    assert len(world.server.asked) == asked


async def test_the_fields_of_a_spec_are_those_of_the_servers_schema(world: World) -> None:
    mine = {"group": "scheduling.volcano.sh", "version": "v1beta1", "kind": "PodGroup"}
    below = {"networkTopology": {"type": "object", "properties": {"mode": {"type": "string"}}}}
    schema = {"properties": {"spec": {"properties": {"minMember": {"type": "integer"}, **below}}}}
    listed = {"properties": {"items": {}}, "x-kubernetes-group-version-kind": [mine | {"kind": "PodGroupList"}]}
    schemas = {"a": listed, "b": {"type": "string"}, "c": schema | {"x-kubernetes-group-version-kind": [mine]}}
    world.server.answer = says(200, {"components": {"schemas": schemas}})
    found = await world.cluster.spec_fields(POD_GROUP)
    assert found == {"minMember", "networkTopology", "networkTopology.mode"}
    assert world.server.asked[0][1] == "/openapi/v3/apis/scheduling.volcano.sh/v1beta1"
    world.server.answer = says(200, {})
    assert await world.cluster.spec_fields(POD_GROUP) == frozenset()
