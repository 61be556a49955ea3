"""The product on Kubernetes 1.34 with KubeRay 1.5.1: chart, CRDs, policies, the client, and a job's whole way.

API server, scheduler, garbage collector, KubeRay, our operator and helm are real; nodes are virtual, and
tests/scale/heads.py answers for the heads.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rljob.api.v1alpha1 import API_VERSION, RLJobSpec
from rljob.cluster.token import TokenKey
from rljob.render.accelerators import BUILT_IN
from rljob.render.names import JobIdentity
from rljob.render.raycluster import build_raycluster
from tests.chart.helm import CHART, NAMESPACE, RELEASE
from tests.cluster import programs
from tests.scale import objects
from tests.scale.client import Client
from tests.scale.heads import Heads
from tests.scale.plane import ROOT, Plane, Releases, control_plane, install
from tests.scale.run import background
from tests.scale.settings import Settings

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

OLDER = Releases(kube="kube-1.34", kuberay="kuberay-1.5")
WORKERS, STEP_SECONDS = 2, 2
PATIENCE_SECONDS = 240.0
CONTRACT = ("test_cluster.py", "test_watches.py", "test_bad_manifests.py", "test_policies.py", "test_yaml.py")
"""What the product asks of an API server: verbs, watches, the CRDs' schemas and CEL rules, the policies."""
CONTRACT_SECONDS = 900


@dataclass(frozen=True)
class Scene:
    """The control plane and a client with all rights."""

    plane: Plane
    client: Client

    async def until(self, path: str, what: str, **expected: str) -> dict[str, Any]:
        """Wait until fields of an object's status have these values."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = await self.client.ask("GET", path)
            status = found.get("status") or {}
            if all(status.get(name) == value for name, value in expected.items()):
                return found
            assert time.monotonic() < deadline, f"{what}: {status}"
            await asyncio.sleep(0.5)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene() -> AsyncIterator[Scene]:
    """Start the control plane, KubeRay and the operator."""
    async with control_plane(OLDER) as plane, plane.client() as client:
        await install(client, OLDER)
        await client.create_all("/api/v1/nodes", objects.nodes(Settings(jobs=1, workers=WORKERS)))
        await plane.start_kuberay()
        heads = Heads(TokenKey.from_file(plane.token_key), STEP_SECONDS)
        async with background(heads.serve(client, objects.NAMESPACE)), background(plane.keep_operator()):
            yield Scene(plane, client)


async def test_the_releases_are_the_older_ones(scene: Scene) -> None:
    version = await scene.client.ask("GET", "/version")
    crd = await scene.client.ask("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rayclusters.ray.io")
    assert (version["major"], version["minor"]) == ("1", "34")
    # KubeRay 1.6 added this field.
    schema = next(each for each in crd["spec"]["versions"] if each["name"] == "v1")["schema"]["openAPIV3Schema"]
    assert "upgradeStrategy" not in schema["properties"]["spec"]["properties"]


async def test_a_jobs_cluster_has_no_field_that_the_older_kuberay_drops(scene: Scene) -> None:
    job = JobIdentity(objects.NAMESPACE, "strict", "00000000-0000-4000-8000-000000000000")
    spec = RLJobSpec.model_validate(objects.spec(WORKERS), context=BUILT_IN)
    wanted = build_raycluster(job, spec, 1, "digest")
    made = await scene.client.ask("POST", f"{objects.RAYCLUSTERS}?dryRun=All&fieldValidation=Strict", wanted)
    assert _dropped(wanted["spec"], made["spec"]) == []


def _dropped(wanted: Any, made: Any, path: str = "spec") -> list[str]:  # noqa: ANN401 - JSON
    """Return the paths of values that are not in the object that was created."""
    if isinstance(wanted, dict):
        return [
            found
            for name, value in wanted.items()
            for found in (_dropped(value, made[name], f"{path}.{name}") if name in made else [f"{path}.{name}"])
        ]
    if isinstance(wanted, list):
        pairs = zip(wanted, made, strict=True)
        return [found for number, pair in enumerate(pairs) for found in _dropped(*pair, f"{path}[{number}]")]
    return []


async def test_a_job_trains_and_leaves_nothing(scene: Scene) -> None:
    job = {
        "apiVersion": API_VERSION,
        "kind": "RLJob",
        "metadata": {"name": "older", "namespace": objects.NAMESPACE},
        "spec": objects.spec(WORKERS),
    }
    await scene.client.ask("POST", objects.RLJOBS, job)
    await scene.until(f"{objects.RLJOBS}/older", "the job trains", state="Training")
    (cluster,), _ = await scene.client.list(objects.RAYCLUSTERS)
    assert (cluster["status"]["state"], cluster["status"]["readyWorkerReplicas"]) == ("ready", WORKERS)
    await scene.client.ask("PATCH", f"{objects.RLJOBS}/older", {"spec": {"suspend": True}}, "merge-patch+json")
    await scene.until(f"{objects.RLJOBS}/older", "the job is suspended", state="Suspended")
    assert (await scene.client.list(objects.RAYCLUSTERS))[0] == []
    await scene.client.ask("DELETE", f"{objects.RLJOBS}/older")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (await scene.client.list(objects.RLJOBS))[0]:
        assert time.monotonic() < deadline, "the job is not deleted"
        await asyncio.sleep(0.5)


@pytest.mark.parametrize("helm", ["helm3", "helm"])
async def test_the_chart_is_installed_and_removed(scene: Scene, helm: str) -> None:
    programs.build([helm])
    binary = programs.binary(helm, "helm")
    place = ("--namespace", NAMESPACE, "--kubeconfig", str(scene.plane.state.admin_kubeconfig))
    await _run(binary, "install", RELEASE, str(CHART), *place, "--create-namespace", "--set", "crds.enabled=false")
    policies, _ = await scene.client.list("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies")
    assert policies
    await _run(binary, "upgrade", RELEASE, str(CHART), *place, "--set", "crds.enabled=false,policies.enabled=false")
    await _run(binary, "uninstall", RELEASE, *place, "--wait")
    assert (await scene.client.list("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"))[0] == []


async def test_the_contract_with_the_api_server_is_kept(scene: Scene) -> None:
    folder = ROOT / "operator/tests/contract"
    environment = {"RLJOB_TEST_KUBECONFIG": str(scene.plane.state.admin_kubeconfig)}
    words = ("-m", "pytest", "-q", "-m", "integration", "--timeout=600", "-p", "no:xdist")
    said = await _run(Path(sys.executable), *words, *(str(folder / name) for name in CONTRACT), environment=environment)
    assert " passed" in said.splitlines()[-1], said[-2000:]


async def _run(program: Path, *words: str, environment: dict[str, str] | None = None) -> str:
    """Run a program and return its output."""
    done = await asyncio.to_thread(
        subprocess.run,
        [str(program), *words],
        cwd=ROOT,
        env=os.environ | (environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CONTRACT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout
