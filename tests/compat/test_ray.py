"""A Ray without token authentication: its job API is reached through the exporter and its token only.

Ray is the release of requirements/ray-unauthenticated.txt, started with the arguments of a rendered head. The exporter,
the launcher and the operator's client are the product's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.local.processes import Processes, wait_until
from rljob.cli.local.ray import free_ports, listens
from rljob.cluster import errors
from rljob.cluster.ray import RayClient
from rljob.cluster.token import TokenKey
from rljob.core.observed import RayJob, RayJobState
from rljob.core.plan import SubmitJob
from rljob.core.requirements import Head
from rljob.core.steps.submitting import ENTRYPOINT
from rljob.launchers import LAUNCHER
from rljob.render.accelerators import BUILT_IN
from rljob.render.names import JobIdentity
from rljob.render.raycluster import build_raycluster
from rljob.telemetry.metrics import Metrics
from rljob_runtime.contract import AttemptVariable, PodVariable
from scripts.compat import ROOT, find, prepare

JOB = JobIdentity("team", "sums", "0a1b2c3d")
KEY = TokenKey(b"k" * 32)
CLUSTER = "sums-0a1b2-1"
PROGRAM = "import ray; ray.init(); print('the answer is', ray.get(ray.remote(lambda: 6 * 7).remote()))"
SPEC = {
    "runtime": {"image": "registry.example/runtime:old", "rayVersion": "2.48.0", "unauthenticatedRay": True},
    "accelerator": {"class": "cpu"},
    "workerGroups": [{"name": "trainer", "nodes": 1, "devicesPerNode": 1}],
    "launcher": {"type": "Command", "command": {"args": ["python", "-c", PROGRAM]}},
}
START_SECONDS = 120.0
RUN_SECONDS = 180.0


@dataclass(frozen=True)
class Pod:
    """A head: Ray and the exporter."""

    address: str
    """An address that other machines reach."""
    dashboard: int
    agent: int
    api: int
    job_digest: str

    @property
    def head(self) -> Head:
        return Head(self.address, "head-uid", JOB.uid, CLUSTER, dashboard_port=self.api, api_port=self.api)


def own_address() -> str:
    """Return the address by which this machine would leave itself. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    interpreter = find("3.11")
    if interpreter is None:
        pytest.skip("no Python 3.11 on this machine")
    python = prepare(interpreter, ROOT / "requirements/ray-unauthenticated.txt")
    folder, address = tmp_path_factory.mktemp("ray"), own_address()
    spec = RLJobSpec.model_validate(SPEC, context=BUILT_IN)
    config = LAUNCHER(spec).job_config(JOB, spec, 1)
    (folder / "job.json").write_bytes(config.to_json())
    head = build_raycluster(JOB, spec, 1, config.digest())["spec"]["headGroupSpec"]
    (exporter,) = [one for one in head["template"]["spec"]["initContainers"] if one["name"] == "exporter"]
    gcs, client, dashboard, agent, metrics, api, own_metrics = free_ports(7)
    chosen = {variable["name"]: variable.get("value") for variable in exporter["env"]}
    assert chosen[PodVariable.RAY_JOBS_PORT]
    base = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ} | {
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "runtime/src"),
        PodVariable.POD_UID: "head-uid",
        PodVariable.POD_IP: address,
        PodVariable.CONFIG: str(folder / "job.json"),
        PodVariable.SPOOL: str(folder / "spool"),
        PodVariable.API_PORT: str(api),
        PodVariable.METRICS_PORT: str(own_metrics),
    }
    words = [str(python), "-c", "from ray.scripts.scripts import main; main()", "start", "--head", "--block"]
    words += ["--node-ip-address", address, "--dashboard-host", head["rayStartParams"]["dashboard-host"]]
    words += ["--port", str(gcs), "--ray-client-server-port", str(client), "--dashboard-port", str(dashboard)]
    words += ["--dashboard-agent-listen-port", str(agent), "--metrics-export-port", str(metrics)]
    words += ["--min-worker-port", "0", "--max-worker-port", "0", "--temp-dir", str(Path("/tmp") / f"rljob-{gcs}")]
    words += ["--disable-usage-stats", "--num-cpus", "2", "--resources", json.dumps({"NPU": 1})]
    processes = Processes(base)
    try:
        processes.start(words, {"RAY_ADDRESS": f"{address}:{gcs}"}, folder / "ray.log", folder)
        own = {PodVariable.TOKEN.value: KEY.token(JOB.uid, CLUSTER), PodVariable.RAY_JOBS_PORT.value: str(dashboard)}
        processes.start([sys.executable, "-m", "rljob_runtime", "exporter"], own, folder / "exporter.log", folder)
        listening = wait_until(lambda: all(map(listens, (dashboard, api))), START_SECONDS)
        assert listening, (folder / "ray.log").read_text() + (folder / "exporter.log").read_text()
        yield Pod(address, dashboard, agent, api, config.digest())
    finally:
        processes.end_all(10)


@pytest.fixture
def client() -> RayClient:
    return RayClient(KEY, Metrics())


def submission(pod: Pod, name: str) -> SubmitJob:
    environment = {
        AttemptVariable.ATTEMPT: "1",
        AttemptVariable.SUBMISSION_ID: name,
        AttemptVariable.HEAD_POD_UID: "head-uid",
        AttemptVariable.JOB_DIGEST: pod.job_digest,
    }
    return SubmitJob(
        pod_ip=pod.address,
        pod_uid="head-uid",
        job_uid=JOB.uid,
        cluster_name=CLUSTER,
        submission_id=name,
        entrypoint=ENTRYPOINT,
        environment=tuple((variable.value, text) for variable, text in environment.items()),
        metadata=(("rljob", "team/sums"),),
        port=pod.api,
    )


async def submitted(client: RayClient, job: SubmitJob) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return await client.submit(job)
        except errors.HeadBusy:
            assert time.monotonic() < deadline
            await asyncio.sleep(1)


async def ended(client: RayClient, pod: Pod, name: str) -> RayJob:
    deadline = time.monotonic() + RUN_SECONDS
    while True:
        found = await client.job(pod.head, name)
        if found is not None and found.state.ended:
            return found
        assert time.monotonic() < deadline, found
        await asyncio.sleep(1)


async def test_a_command_runs_that_was_submitted_with_the_token(pod: Pod, client: RayClient) -> None:
    assert await client.job(pod.head, "attempt-1") is None
    job = submission(pod, "attempt-1")
    await submitted(client, job)
    await client.submit(job)  # again, as after a lost answer
    found = await ended(client, pod, "attempt-1")
    assert "the answer is 42" in found.log_tail
    assert (found.state, found.driver_exit_code) == (RayJobState.SUCCEEDED, 0), found.log_tail


async def test_another_token_submits_nothing(pod: Pod) -> None:
    stranger = RayClient(TokenKey(b"x" * 32), Metrics())
    with pytest.raises(errors.HeadRefused):
        await stranger.submit(submission(pod, "attempt-2"))


def post(address: str, port: int, path: str) -> int:
    body = json.dumps({"entrypoint": "true"})
    with contextlib.closing(http.client.HTTPConnection(address, port, timeout=5)) as connection:
        connection.request("POST", path, body, {"User-Agent": "curl", "Content-Type": "application/json"})
        return connection.getresponse().status


def test_another_pod_does_not_reach_the_job_api(pod: Pod) -> None:
    with pytest.raises(ConnectionRefusedError):
        post(pod.address, pod.dashboard, "/api/jobs/")
    assert post(pod.address, pod.api, "/api/jobs/") == 401


def test_the_agent_listens_to_everybody_so_that_a_network_policy_is_needed(pod: Pod) -> None:
    """Ray has no setting for it: dashboard/http_server_agent.py of 2.48 listens on 0.0.0.0 beside any address."""
    with socket.create_connection((pod.address, pod.agent), 5):
        pass
