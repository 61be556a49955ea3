"""Logs and metrics from containers: the scripts run here, on files of this machine, behind an API server in memory.

The server cuts connections, lets attempts end and heads go, as a cluster does at the end of a run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import recorded
from aiohttp import web
from builders import CLUSTER_NAME, IDENTITY, SUBMISSION_ID, job, saving, small_spec, typed
from servers import Server
from unit.client.test_connection import write_kubeconfig

from rljob.client import AsyncClient, NotAvailable, Unreachable, runs
from rljob.render import configmap
from rljob.render.names import snapshot_name

BEGUN = "2026-01-01T12:00:00Z"


@dataclass
class World:
    """The objects of a job's namespace, and how often the connection of a command is cut."""

    spec: dict[str, Any] = field(default_factory=small_spec)
    ended: bool = False
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    cut_after: list[int] = field(default_factory=list)
    """Bytes after which the connections of the next commands are cut."""
    commands: int = 0
    created: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    kubelet: bytes = b""

    def add_pod(self, name: str, kind: str, owner: str = CLUSTER_NAME) -> None:
        owners = [{"kind": "RayCluster", "name": owner, "uid": "c", "controller": True}]
        metadata = {"name": name, "creationTimestamp": BEGUN, "ownerReferences": owners}
        self.pods[name] = {"metadata": metadata | {"kind": kind}, "status": {"phase": "Running"}}

    def job(self) -> dict[str, Any]:
        attempt: dict[str, Any] = {"number": 1, "clusterName": CLUSTER_NAME, "submissionId": SUBMISSION_ID}
        attempt |= {"submittedTime": BEGUN} | ({"endTime": BEGUN, "outcome": "Succeeded"} if self.ended else {})
        resolved = {"snapshotName": snapshot_name(IDENTITY, 1), "specHash": "x", "nodes": 1, "devices": 2, "cards": "2"}
        status = {"state": "Training", "resolved": resolved, "attempts": [attempt]}
        return job(self.spec, status, creationTimestamp=BEGUN)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/api/v1/namespaces/team/")
        if path.startswith("/apis/"):
            return web.json_response(self.job())
        if path.startswith("configmaps/"):
            made = configmap.build_snapshot(IDENTITY, configmap.Snapshot(typed(self.spec)), 1)
            return web.json_response(made)
        if path.endswith("/exec"):
            return await self._execute(request)
        if path.endswith("/log"):
            return web.Response(body=self.kubelet)
        return self._pods(request, path)

    def _pods(self, request: web.Request, path: str) -> web.Response:
        name = path.removeprefix("pods").strip("/")
        if request.method == "DELETE":
            self.deleted.append(name)
            return web.json_response({"kind": "Status", "status": "Success"})
        if request.method == "POST":
            self.add_pod("reader", "reader")
            self.pods["reader"]["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
            self.created.append(self.pods["reader"])
            return web.json_response(self.pods["reader"])
        if name:
            found = self.pods.get("reader" if "-report-" in name else name)
            missing = {"kind": "Status", "message": "pods not found", "details": {"name": name, "kind": "pods"}}
            return web.json_response(found or missing, status=200 if found else 404)
        kind = request.query["labelSelector"].partition("ray.io/node-type=")[2].partition(",")[0]
        items = [pod for pod in self.pods.values() if pod["metadata"]["kind"] == kind]
        return web.json_response({"items": items, "metadata": {"resourceVersion": "1"}})

    async def _execute(self, request: web.Request) -> web.WebSocketResponse:
        self.commands += 1
        room = self.cut_after.pop(0) if self.cut_after else None
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        process = await asyncio.create_subprocess_exec(
            *request.query.getall("command"), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stderr is not None
        closing = asyncio.create_task(socket.receive())
        try:
            while True:
                reading = asyncio.create_task(process.stdout.read(7))
                await asyncio.wait({reading, closing}, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    reading.cancel()
                    return socket
                data = reading.result()
                if not data:
                    break
                await socket.send_bytes(b"\x01" + data)
                if room is not None and (room := room - len(data)) <= 0:
                    await socket.close()
                    return socket
            told = await process.stderr.read()
            status = "Failure" if await process.wait() else "Success"
            await socket.send_bytes(b"\x02" + told)
            await socket.send_bytes(b"\x03" + json.dumps({"status": status}).encode())
        finally:
            closing.cancel()
            if process.returncode is None:
                process.kill()
                await process.communicate()
        return socket


@asynccontextmanager
async def talking(folder: Path, world: World) -> AsyncIterator[AsyncClient]:
    async with Server(world.answer) as server:
        path = write_kubeconfig(folder, f"http://127.0.0.1:{server.port}")
        async with AsyncClient(kubeconfig=path) as client:
            yield client


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of the driver's log, and make the waits short."""
    monkeypatch.setattr(runs, "DRIVER_LOG", f"{tmp_path}/job-driver-{{}}.log")
    monkeypatch.setattr(runs, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr("rljob.client.lines.IDLE_SECONDS", 1.5)  # `tail -f` may look once a second
    path = tmp_path / f"job-driver-{SUBMISSION_ID}.log"
    path.write_text("".join(f"line {number}\n" for number in range(1, 10)))
    return path


async def follow(client: AsyncClient, seen: list[str], tail: int | None) -> None:
    async with asyncio.timeout(30):
        async for line in client.logs("sums", follow=True, tail=tail):
            seen.append(line)  # noqa: PERF401 - the test looks at it meanwhile


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


async def read(client: AsyncClient, **options: Any) -> list[str]:  # noqa: ANN401 - of `logs`
    async with asyncio.timeout(20):
        return [line async for line in client.logs("sums", **options)]


@pytest.mark.parametrize("tail", [None, 0, 2, 50])
async def test_the_log_of_the_driver_is_that_of_its_file(tmp_path: Path, log: Path, tail: int | None) -> None:
    world = World()
    world.add_pod("head", "head")
    lines = lines_of(log)
    async with talking(tmp_path, world) as client:
        assert await read(client, tail=tail) == (lines if tail is None else lines[len(lines) - min(tail, 9) :])


async def test_a_log_does_not_control_the_terminal_of_its_reader(tmp_path: Path, log: Path) -> None:
    world, written = World(), "\x1b[31mred\x1b[0m \x1b[2J \u202eend"
    world.add_pod("head", "head")
    append(log, f"{written}\n")
    async with talking(tmp_path, world) as client:
        assert (await read(client))[-1:] == ["red \\u001b[2J \\u202eend"]
        assert (await read(client, raw=True))[-1:] == [written]


@pytest.mark.parametrize("tail", [None, 3])
async def test_a_log_that_is_followed_continues_at_the_byte_where_its_connection_was_cut(
    tmp_path: Path, log: Path, tail: int | None
) -> None:
    world = World(cut_after=[20, 9, 30])
    world.add_pod("head", "head")
    expected = lines_of(log)[-(tail or 0) :]
    async with talking(tmp_path, world) as client:
        seen: list[str] = []
        following = asyncio.create_task(follow(client, seen, tail))
        for number in range(10, 15):
            while not seen:  # noqa: ASYNC110 - until the last lines were counted
                await asyncio.sleep(0.05)
            append(log, f"line {number}\n")
            expected.append(f"line {number}")
        world.ended = True
        await following
    assert seen == expected
    assert world.commands >= 3


async def test_a_log_ends_with_its_head(tmp_path: Path, log: Path) -> None:
    world = World()
    world.add_pod("head", "head")
    async with talking(tmp_path, world) as client:
        seen: list[str] = []
        async with asyncio.timeout(20):
            async for line in client.logs("sums", follow=True):
                seen.append(line)
                world.pods.pop("head", None)
        assert seen == lines_of(log)


async def test_a_log_that_was_cut_before_it_began_is_an_error(tmp_path: Path, log: Path) -> None:
    world = World(cut_after=[1, 1])
    world.add_pod("head", "head")
    async with talking(tmp_path, world) as client:
        with pytest.raises(Unreachable):
            await read(client)
        await asyncio.to_thread(log.unlink)
        with pytest.raises(NotAvailable, match="No such file"):
            await read(client, follow=True)


@pytest.mark.usefixtures("log")
async def test_a_pod_that_is_not_of_the_job_is_not_read(tmp_path: Path) -> None:
    world = World()
    world.add_pod("impostor", "head", owner="other-00000-1")
    async with talking(tmp_path, world) as client:
        with pytest.raises(NotAvailable, match=r"no head pod any more.*observability\.logPath"):
            await read(client)
        with pytest.raises(NotAvailable, match="has 0 head pods"):
            await read(client, role="head")
        with pytest.raises(NotAvailable, match="has no head pod, and kept no records"):
            await client.metrics("sums")
    assert world.commands == 0


@pytest.mark.usefixtures("log")
async def test_the_log_of_a_worker_is_that_of_the_kubelet(tmp_path: Path) -> None:
    world = World(kubelet=b"one\ntwo\n", ended=True)
    for name in ("worker-b", "worker-a"):
        world.add_pod(name, "worker")
    async with talking(tmp_path, world) as client:
        assert await read(client, role="worker", worker=1, follow=True) == ["one", "two"]
        with pytest.raises(NotAvailable, match="has 2 worker pods, so there is no log of number 2"):
            await read(client, role="worker", worker=2)
        with pytest.raises(NotAvailable, match="no log of attempt 7; its attempts are 1"):
            await read(client, attempt=7)


def records(folder: Path, *attempts: tuple[int, range]) -> None:
    for number, steps in attempts:
        place = folder / f"attempt-{number}"
        place.mkdir(parents=True)
        rows = ({"step": n, "time": 100.0 + n, "metrics": {"critic/score/mean": n / number}} for n in steps)
        (place / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


async def test_metrics_are_the_steps_that_made_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = tmp_path / "spool"
    records(spool, (1, range(1, 4)), (2, range(3, 5)))
    monkeypatch.setattr("rljob.reading.kept_records.record_folders", lambda *_: (str(spool), ""))
    world = World()
    world.add_pod("head", "head")
    async with talking(tmp_path, world) as client:
        rows = await client.metrics("sums")
        assert [(row["attempt"], row["step"]) for row in rows] == [(1, 1), (1, 2), (2, 3), (2, 4)]
        assert rows[-1] == {"attempt": 2, "step": 4, "time": 104.0, "critic/score/mean": 2.0}
        assert len(await client.metrics("sums", repeated=True)) == 5
        monkeypatch.setattr(runs, "RECORDS_BYTES", 100)
        with pytest.raises(NotAvailable, match="more than 0 MiB"):
            await client.metrics("sums")


@pytest.mark.usefixtures("log")
async def test_what_only_the_volume_has_is_read_by_a_pod_that_is_deleted(tmp_path: Path) -> None:
    logs = tmp_path / "volume"
    kept = logs / CLUSTER_NAME
    records(kept, (1, range(1, 3)))
    append(kept / "attempt-1" / "driver.log", "kept\n")
    world = World(spec=small_spec(saving({"observability": {"logPath": "/data/logs"}})), ended=True)
    async with talking(tmp_path, world) as client:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(runs, "KEPT_LOG", f"{logs}/{{cluster}}/attempt-{{number}}/driver.log")
            patched.setattr(
                "rljob.reading.kept_records.record_folders", lambda *_: (str(logs), f"{IDENTITY.prefix}-*/")
            )
            assert await read(client) == ["kept"]
            assert [row["step"] for row in await client.metrics("sums")] == [1, 2]
        with pytest.raises(NotAvailable, match="No such file"):
            await read(client)
    assert len(world.created) == len(world.deleted) == 3, "also after a failure"


async def test_answers_of_every_attempt_are_rows(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for number in (1, 2):
        folder = logs / f"{CLUSTER_NAME[:-1]}{number}" / f"attempt-{number}"
        folder.mkdir(parents=True)
        recorded.write_samples(folder)
    world = World(small_spec(saving({"observability": {"logPath": str(logs)}})))
    world.add_pod("head", "head")
    async with talking(tmp_path, world) as client:
        rows = await client.samples("sums")
        assert {row["step"] for row in await client.samples("sums", step=20)} == {20}
    assert {row["attempt"] for row in rows} == {2}
    assert [(row["step"], row["source"]) for row in rows[:4]] == [(1, "rollout")] * 3 + [(1, "validation")]
    assert rows[0]["answer"] == "<b>2</b>"
