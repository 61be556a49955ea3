"""The Python client and who may do what: rights, tokens, service accounts, and clusters that do not answer."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import socket
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import yaml
from contract.client_site import Gate, cluster, collect, kubeconfig, manifest, server, token_of
from contract.conftest import KUBECONFIG
from contract.place import NOWHERE
from kubernetes.aio.config import incluster_config

from rljob.client import (
    AsyncClient,
    Client,
    EventType,
    Forbidden,
    Job,
    NotFound,
    NotInstalled,
    Timeout,
    Unauthorized,
    Unreachable,
    login,
    objects,
    watching,
)
from rljob.client.objects import Scope
from rljob.client.refusals import ApiRequest

if TYPE_CHECKING:
    from contract.place import Place

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
    pytest.mark.parametrize("place", ["real"], indirect=True),
]
GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "python-client.md"


async def test_an_account_without_rights_gets_an_error_with_the_missing_right(
    client: AsyncClient, place: Place, tmp_path: Path
) -> None:
    token = await token_of(client, place.namespace, "guest")
    path = kubeconfig(tmp_path / "guest", user={"token": token})
    async with AsyncClient(place.namespace, kubeconfig=path) as guest:
        with pytest.raises(Forbidden, match=r'cannot list resource "rljobs".*ask an administrator'):
            await guest.list()
        with pytest.raises(Forbidden):
            await anext(guest.watch())
        with pytest.raises(Forbidden, match=r"context \S+ of .*guest"):
            await guest.create(manifest("sums"))
        assert token not in repr(guest)


async def test_a_rejected_token_raises_an_error_with_its_source(place: Place, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "stale", user={"token": "not-a-token"})
    async with AsyncClient(place.namespace, kubeconfig=path) as stale:
        with pytest.raises(Unauthorized, match=r"stale\); log in to the cluster again") as caught:
            await stale.list()
        assert "not-a-token" not in str(caught.value)


async def test_an_expired_token_of_a_plug_in_is_renewed(client: AsyncClient, place: Place, tmp_path: Path) -> None:
    good = await token_of(client, place.namespace, "cloud")
    store, counter = tmp_path / "token", tmp_path / "runs"
    plugin = tmp_path / "plugin"
    plugin.write_text(
        f"#!{sys.executable}\n"
        "import json, pathlib\n"
        f"with open({str(counter)!r}, 'a') as runs: runs.write('x')\n"
        f"token = pathlib.Path({str(store)!r}).read_text()\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': {'token': token}}))\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    user = {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    }
    path = kubeconfig(tmp_path / "cloud", user=user)
    store.write_text("expired")
    async with AsyncClient(place.namespace, kubeconfig=path) as cloud:
        with pytest.raises(Unauthorized):
            await cloud.list()
        assert len(counter.read_text()) == 2, "it is asked once more, and not for ever"
        store.write_text(good)
        for _ in range(3):
            with pytest.raises(Forbidden, match="cloud"):
                await cloud.list()
        assert len(counter.read_text()) == 3
    plugin.write_text(f"#!{sys.executable}\nraise SystemExit('the cloud is closed')\n")
    async with AsyncClient(place.namespace, kubeconfig=path) as cloud:
        with pytest.raises((Unauthorized, Forbidden), match=r"credential plug-in|permission"):
            await cloud.list()


async def test_a_service_account_with_the_role_of_the_guide_may_do_all(
    client: AsyncClient, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await token_of(client, place.namespace, "notebook")
    (text,) = re.findall(r"```yaml\n(apiVersion: rbac.*?)```", GUIDE.read_text(), re.DOTALL)
    role = yaml.safe_load(text)
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}"
    await client._connection.send(ApiRequest("POST", f"{rights}/roles", "role", (), role))
    binding = {
        "metadata": {"name": "notebook"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role["metadata"]["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": "notebook", "namespace": place.namespace}],
    }
    await client._connection.send(ApiRequest("POST", f"{rights}/rolebindings", "binding", (), binding))
    # What the kubelet mounts into a pod.
    here = cluster()
    (tmp_path / "token").write_text(token)
    (tmp_path / "namespace").write_text(place.namespace)
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(here["certificate-authority-data"]))
    monkeypatch.setattr(login, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(urlsplit(server()).hostname))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(urlsplit(server()).port))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    async with AsyncClient() as pod:
        job = await pod.create(manifest("sums"))
        assert job.namespace == place.namespace
        async with contextlib.aclosing(pod.watch()) as events:
            assert await collect(events, 1) == [(EventType.ADDED, "sums")]
        await pod.suspend(job)
        for verb in ("create", "get"):
            attributes = {"namespace": place.namespace, "verb": verb, "resource": "pods", "subresource": "exec"}
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
            path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            asked = ApiRequest("POST", path, "rights", (), review | {"spec": {"resourceAttributes": attributes}})
            assert (await pod._connection.send(asked))["status"]["allowed"] is True
        await pod.delete(job, timeout=30)


async def test_an_unreachable_cluster_raises_an_error_with_its_address(place: Place, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path = kubeconfig(tmp_path / "gone", server=f"https://127.0.0.1:{port}")
    async with AsyncClient(place.namespace, kubeconfig=path) as gone:
        with pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port} .*cannot be reached.*VPN"):
            await gone.list()


async def test_a_watch_gives_up_when_the_server_stays_away(
    client: AsyncClient, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "PATIENCE_SECONDS", 1.0)
    gate = Gate()
    behind = await gate.start(tmp_path)
    await client.create(manifest("first"))
    through = AsyncClient(place.namespace, kubeconfig=behind)
    async with through, contextlib.aclosing(through.watch()) as events:
        await collect(events, 1)
        await gate.stop()
        with pytest.raises(Unreachable, match="cannot be reached"):
            await collect(events, 1)


async def test_a_kind_that_is_not_served_raises_an_error_with_what_to_install(client: AsyncClient) -> None:
    with pytest.raises(NotInstalled, match="install the chart rljob-operator"):
        await objects.listed(client._connection, Scope(NOWHERE, "default"))
    with pytest.raises(NotInstalled):
        await objects.get(client._connection, NOWHERE, "default", "x")


async def test_a_namespace_that_does_not_exist_raises_not_found(client: AsyncClient) -> None:
    with pytest.raises(NotFound, match='namespaces "nowhere-at-all" not found; create the namespace'):
        await client.create({**manifest("sums"), "metadata": {"name": "sums", "namespace": "nowhere-at-all"}})


async def test_the_blocking_client_works_where_an_event_loop_runs(place: Place) -> None:
    names: list[str] = []
    with Client(place.namespace, kubeconfig=KUBECONFIG) as client:
        job = client.create(manifest("sums"))

        def look(now: Job) -> None:
            names.append(client.get(now).name)  # the callback may use the client

        with pytest.raises(Timeout):
            client.wait(job, timeout=0.5, on_change=look)
        for event in client.watch():
            names.append(f"{event.type} {event.job.name}")
            break
        client.delete(job, timeout=30)
        assert client.list() == []
    assert names == ["sums", "Added sums"]
    with pytest.raises(RuntimeError, match="closed"):
        client.list()


async def test_connections_are_closed_with_a_client_that_is_forgotten(place: Place) -> None:
    client = Client(place.namespace, kubeconfig=KUBECONFIG)
    events = client.watch()
    client.list()
    loop, thread = client._loop, client._loop._thread
    del client, events
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
    assert loop._loop.is_closed()
