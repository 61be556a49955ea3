"""One real operator process of all namespaces under a tenant that harms it as far as it can.

Specs are huge, or as large and as slow to check as the API allows, and more than the namespace has memory for; heads
are silent, endless or deep, or answer with numbers out of range; ConfigMaps pretend to belong to the job of another.
Every number is a tenth of what `make hostile` sends (RLJOB_HOSTILE=10).

KubeRay makes the pods. No node takes them: the test plays the kubelet, and says that the heads listen on addresses of
this machine, where it answers in their place.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import os
import string
import time
from typing import TYPE_CHECKING, Any

import pytest
from builders import group, small_spec
from contract.conftest import KUBECONFIG, NAMESPACE, _request
from contract.large_objects import (
    NUMBER,
    create_all,
    empty_objects,
    manifest,
    memory_limit_mib,
    peak_mib,
    unbounded_crds,
)
from contract.operator_process import until
from contract.place import Place
from contract.test_bad_manifests import kubectl

from rljob.api.limits import SPEC_BYTES_MAX
from rljob.api.v1alpha1 import API_VERSION
from rljob.cluster.errors import Conflict, NotFound
from rljob.cluster.kinds import LEASE, POD, RAY_CLUSTER, RLJOB
from rljob.cluster.kube import KubeCluster, _Call
from rljob.control.memory_budget import MIB
from rljob.core.validation.sizes import json_bytes
from rljob.render import labels
from rljob.render.ports import DASHBOARD_PORT
from rljob_runtime.contract import Port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from contract.operator_process import Process

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
    pytest.mark.parametrize("place", ["real"], indirect=True),
]
TENTHS = int(os.environ.get("RLJOB_HOSTILE", "1"))
LARGE = "large-"
"""Jobs that were stored before the CRDs had bounds."""
STORED = 3 if TENTHS == 1 else NUMBER
"""Of each kind."""
WORKERS = 4
SILENT_HEADS = 40 * TENTHS
REFUSED = ("Validated", "False")
LARGEST = "largest-"
"""Jobs of the largest valid size; of those that the namespace has memory for, some begin."""
CROWD, MARKED = 30 * TENTHS, 20 * TENTHS
MEMORY_LIMIT = 128 * MIB if TENTHS == 1 else int(memory_limit_mib()) * MIB
"""Of the container, as the operator takes it: less than the crowd needs."""
NOWHERE = {"nodeSelector": {"rljob.dev/contract-test": "nowhere"}}

ANSWERS: dict[str, bytes | None] = {
    "silent": None,
    "nested": b"[" * 60_000,
    "nested-objects": b'{"podUid":' * 6_000,
    "huge-number": b'{"podUid": "p", "phase": "Training", "step": 1' + b"0" * 400 + b"}",
    "infinite": b'{"podUid": "p", "phase": "Training", "reward": 1e999, "observedTime": -1e999}',
    "slow-pattern": b'{"phase": "' + b"a-" * 32_000 + b'"}',
    "slow-secret": b'{"podUid": "p", "phase": "' + b"token=" * 10_000 + b'"}',
    "raw-interim": b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000,
    "surrogates": b'{"submission_id": "\\ud800", "status": "\\udfff", "podUid": "\\ud800", "phase": "Idle"}',
}
"""What the heads of a kind answer to every request, below a header unless they are raw; None: nothing, ever."""
TURNCOAT = "turncoat"
"""A head that takes a submission as Ray does, and answers as `nested` from then on."""


class Heads:
    """A server for each kind of head, on an address of its own."""

    def __init__(self) -> None:
        self.asked: dict[str, int] = dict.fromkeys((*ANSWERS, TURNCOAT), 0)
        self._told: list[str] = []
        self._writers: list[asyncio.StreamWriter] = []
        place = os.getpid() % 60_000
        self.addresses = {
            kind: f"127.{10 + number}.{place // 250}.{place % 250 + 1}" for number, kind in enumerate(self.asked)
        }

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._close)
            for kind, address in self.addresses.items():
                for port in (DASHBOARD_PORT, Port.API.value):
                    server = await asyncio.start_server(self._answer(kind), address, port)
                    stack.callback(server.close)
            yield

    def _answer(self, kind: str) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.append(writer)
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    request = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0]
                    self.asked[kind] += 1
                    status, body = self._as_ray(request) if kind == TURNCOAT else ("200 OK", ANSWERS[kind])
                    if body is None:
                        await reader.read()
                        break
                    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                    writer.write(body if kind.startswith("raw-") else head.encode() + body)
                    await writer.drain()
                    if request.startswith(b"POST"):
                        # Its body is not read.
                        break
            writer.close()

        return answer

    def _as_ray(self, request: bytes) -> tuple[str, bytes | None]:
        """Return the answers of a head that knows no submission, takes one and shows it running once."""
        method, path, _ = request.decode().split()
        if "/api/jobs/" not in path or len(self._told) > 1:
            return "200 OK", ANSWERS["nested"]
        if method == "GET" and not self._told:
            return "404 Not Found", b"{}"
        self._told.append(path)
        told = {"submission_id": path.rpartition("/")[2], "status": "RUNNING"}
        return "200 OK", json.dumps(told).encode()

    async def _close(self) -> None:
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class Kubelet:
    """Says of every pod of the namespace that it runs, at the address of its job's kind of head."""

    def __init__(self, place: Place, heads: Heads) -> None:
        assert isinstance(place.cluster, KubeCluster)
        self.place, self.heads, self.api = place, heads, place.cluster

    async def run(self) -> None:
        while True:
            for pod in (await self.api.list(POD, self.place.namespace)).items:
                if not (pod.get("status") or {}).get("podIP"):
                    with contextlib.suppress(Conflict, NotFound):
                        await self._say(pod)
            await asyncio.sleep(0.2)

    async def _say(self, pod: Any) -> None:  # noqa: ANN401 - a manifest
        address = self.heads.addresses.get(kind_of_job(pod["metadata"]["labels"][labels.JOB]))
        if address is None:
            return
        told = [*pod["status"].get("conditions", ()), {"type": "Ready", "status": "True"}]
        status = {**pod["status"], "phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        path = POD.path(self.place.namespace, pod["metadata"]["name"], "status")
        await self.api._request(_Call("update", POD, path, body={**pod, "status": {**status, "conditions": told}}))


def kind_of_job(name: str) -> str:
    return name.rpartition("-")[0]


def rljob(place: Place, name: str, **spec: object) -> dict[str, Any]:
    metadata = {"namespace": place.namespace, "name": name}
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    template = NOWHERE | {"volumes": [volume], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    saved = {"checkpoint": {"path": f"/data/{name}", "everySteps": 10}}
    full = small_spec(group({"template": template}) | {"head": {"template": NOWHERE}} | saved) | spec
    return {"apiVersion": API_VERSION, "kind": "RLJob", "metadata": metadata, "spec": full}


def hostile_jobs(place: Place) -> Iterator[dict[str, Any]]:
    for kind in (*ANSWERS, TURNCOAT):
        for number in range(SILENT_HEADS if kind == "silent" else 1):
            # The finalizer holds the deletion until the run has saved, or the user forces it.
            yield rljob(place, f"{kind}-{number}", stop={"requireCheckpoint": True})


def worst_texts(services: int) -> dict[str, Any]:
    """Return services with texts that are searched for secrets, names and escapes; two make a spec the largest."""
    texts = ("eyJ" * 1365, "{name}" * 682, "token-" * 682, "\U0001f600" * 1000)
    args = [text for text in texts for _ in range(7)]
    return {
        "services": [
            {"name": f"judge-{n}", "image": "judge:1", "port": 9000 + n, "args": args} for n in range(services)
        ]
    }


def many_names() -> Iterator[str]:
    """Yield arguments of a command with 25,600 names, each of which may be a misspelt placeholder."""
    names = ("{" + "".join(letters) + "}" for letters in itertools.product(string.ascii_letters, repeat=3))
    yield from ("".join(itertools.islice(names, 1600)) for _ in range(16))


def crowd(place: Place) -> Iterator[dict[str, Any]]:
    for number in range(CROWD):
        job = rljob(place, f"{LARGEST}{number}", suspend=number % 10 > 0, **worst_texts(services=2))
        if number % 2:
            kept = {name: job["spec"][name] for name in ("runtime", "accelerator", "workerGroups", "head", "suspend")}
            command = {"launcher": {"type": "Command", "command": {"args": [*many_names()]}}}
            job["spec"] = kept | command | worst_texts(services=1)
        assert json_bytes(job["spec"]) < SPEC_BYTES_MAX
        yield job


@pytest.fixture
async def neighbor(place: Place) -> AsyncIterator[Place]:
    """Return the namespace of another tenant."""
    assert isinstance(place.cluster, KubeCluster)
    name = f"{place.namespace}-b"
    await _request(place.cluster, "create", NAMESPACE, None, {"metadata": {"name": name}})
    yield Place(place.cluster, name)
    await _request(place.cluster, "delete", NAMESPACE, name, None)


async def test_a_hostile_tenant_harms_neither_the_operator_nor_a_job_of_another(
    place: Place, neighbor: Place, start: Callable[..., Awaitable[Process]]
) -> None:
    heads = Heads()
    with unbounded_crds():
        create_all([*stored_before_the_bounds(place)])
        await attack(place, neighbor, start, heads)


def stored_before_the_bounds(place: Place) -> Iterator[dict[str, Any]]:
    """Yield jobs with huge specs, and huge recipes with jobs that have huge annotations and name them."""
    spec = small_spec({"podSpecPatch": empty_objects()})
    notes = {f"a{number}.example/x": "" for number in range(13_000)}
    for number in range(STORED):
        yield manifest("RLJob", f"{LARGE}{number}", spec, place.namespace)
        yield manifest("RLRecipe", f"r-{number}", {"template": spec}, place.namespace)
        reference = {"recipeRef": {"kind": "RLRecipe", "name": f"r-{number}"}}
        yield manifest("RLJob", f"{LARGE}named-{number}", reference, place.namespace, annotations=notes)


async def answer_large_ones(place: Place) -> None:
    """Wait until every job stored before the bounds is refused, also as it arrives at a process that watches already.

    They end here: every LIST of the namespace would carry them.
    """
    huge = [f"{LARGE}{number}" for number in range(STORED)]
    named = [f"{LARGE}named-{number}" for number in range(STORED)]
    for name in (*huge, *named):
        await until(functools.partial(is_refused, place, name))
    for name in huge:
        edit(place, name)
    for name in huge:
        await until(functools.partial(is_refused, place, name))
    for name in (*huge, *named):
        await force_delete(place, name)


async def is_refused(place: Place, name: str) -> bool:
    job = await place.cluster.get(RLJOB, place.namespace, name)
    seen = (job.get("status") or {}).get("observedGeneration") == job["metadata"]["generation"]
    return seen and "are allowed; delete and recreate it" in invalid(job)


def invalid(job: Mapping[str, Any]) -> str:
    """Return what the operator says about the spec of a job that it refuses."""
    conditions = (job.get("status") or {}).get("conditions", ())
    return next((str(each["message"]) for each in conditions if (each["type"], each["status"]) == REFUSED), "")


def edit(place: Place, name: str) -> None:
    """Change a job with a huge spec, so that it arrives at a process that watches already."""
    where = ("rljob", name, "-n", place.namespace)
    done = kubectl("patch", *where, "--type=merge", "-p", json.dumps({"spec": {"suspend": True}}))
    assert done.returncode == 0, done.stderr


async def attack(place: Place, neighbor: Place, start: Callable[..., Awaitable[Process]], heads: Heads) -> None:
    async with heads.serve(), asyncio.TaskGroup() as tasks:
        kubelet = tasks.create_task(Kubelet(place, heads).run())
        process = await start(workers=str(WORKERS), namespace="", memory_limit=str(MEMORY_LIMIT))
        await until(process.ready)
        lease = await place.cluster.get(LEASE, place.namespace, process.lease)
        await answer_large_ones(place)
        # Six objects that were kept would take 200 MiB more.
        assert peak_mib(process) < 0.6 * memory_limit_mib()
        for job in hostile_jobs(place):
            await place.cluster.create(job)
        await until(lambda: asked_everybody(heads))
        await until(lambda: is_held_and_runs(place, f"{TURNCOAT}-0"))

        busy = [await busy_workers(process) for _ in range(100)]
        assert sum(count >= WORKERS for count in busy) < len(busy) / 2, "silent heads hold the workers"
        # They take the memory of the namespace, so heads would get no job after them.
        for job in crowd(place):
            await place.cluster.create(job)
        begun = time.monotonic()
        good = await neighbor.cluster.create(rljob(neighbor, "good-0"))
        for number in range(MARKED):
            await place.cluster.create(marked(neighbor, good, number))
        await until(lambda: has_cluster(neighbor, "good-0"))
        # For docs/benchmarks.md.
        print(f"good-0 has its cluster after {time.monotonic() - begun:.1f} s; peak {peak_mib(process):.0f} MiB")
        await until(lambda: crowd_is_answered(place))

        names = [job["metadata"]["name"] for job in (await place.cluster.list(RLJOB, place.namespace)).items]
        for name in names:
            await force_delete(place, name)
        await until(lambda: are_gone(place))
        kubelet.cancel()
    assert peak_mib(process) < memory_limit_mib()
    assert process.process.returncode is None
    assert await process.probe("/healthz") == 200
    now = await place.cluster.get(LEASE, place.namespace, process.lease)
    assert now["spec"]["holderIdentity"] == lease["spec"]["holderIdentity"]
    assert now["spec"]["leaseTransitions"] == lease["spec"]["leaseTransitions"]
    assert [line for line in process.lines() if "crashed" in line["message"]] == []
    assert await process.stop() == 0


def marked(place: Place, job: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Return a ConfigMap with the label of somebody else's job, by which the operator lists."""
    marks = {labels.JOB: job["metadata"]["name"], labels.JOB_UID: job["metadata"]["uid"]}
    metadata = {"name": f"marked-{number}", "namespace": place.namespace, "labels": marks}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "x" * 500_000}}


async def crowd_is_answered(place: Place) -> bool:
    """Report whether every job of the crowd is suspended, begun or refused, and some of them are refused for memory."""
    jobs = (await place.cluster.list(RLJOB, place.namespace)).items
    states = {
        job["metadata"]["name"]: job.get("status") or {} for job in jobs if job["metadata"]["name"].startswith(LARGEST)
    }
    refused = [message for status in states.values() if (message := invalid({"status": status}))]
    assert all("of the operator's memory; jobs and recipes of namespace" in message for message in refused), refused
    return all(status.get("state") for status in states.values()) and 0 < len(refused) < CROWD


async def asked_everybody(heads: Heads) -> bool:
    return all(heads.asked[kind] >= (SILENT_HEADS if answer is None else 2) for kind, answer in ANSWERS.items())


async def busy_workers(process: Process) -> float:
    await asyncio.sleep(0.02)
    return (await process.samples())["rljob_operator_active_workers"]


async def has_cluster(place: Place, job: str) -> bool:
    found = await place.cluster.list(RAY_CLUSTER, place.namespace, f"{labels.JOB}={job}")
    return bool(found.items)


async def are_gone(place: Place) -> bool:
    return not (await place.cluster.list(RLJOB, place.namespace)).items


async def is_held_and_runs(place: Place, name: str) -> bool:
    job = await place.cluster.get(RLJOB, place.namespace, name)
    return bool((job.get("status") or {}).get("attempts")) and labels.STOP_FINALIZER in job["metadata"]["finalizers"]


async def force_delete(place: Place, name: str) -> None:
    """Delete a job, and force it if it is still there: without a run, nothing holds it."""
    job = await place.cluster.get(RLJOB, place.namespace, name)
    await place.cluster.delete(RLJOB, place.namespace, name, job["metadata"]["uid"])
    if name.startswith((LARGE, LARGEST)):
        # No finalizer holds it.
        return
    with contextlib.suppress(NotFound):
        while True:
            job = await place.cluster.get(RLJOB, place.namespace, name)
            noted = {**job["metadata"], "annotations": {labels.FORCE_DELETE: "true"}}
            with contextlib.suppress(Conflict):
                await place.cluster.replace({**job, "metadata": noted})
                return
