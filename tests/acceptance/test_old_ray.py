"""A script of cann-recipes-train by its own arguments, in an image whose Ray has no token authentication.

The job is examples/cann-recipes/qwen2-5-1-5b-grpo.yaml; what CPUs and a tiny model demand is changed, with the reason,
and the rest stays. Its pods get a package that the image lacks. The network of the local cluster enforces no
NetworkPolicies, so a program does until the job trains; what is closed by then is tried from a pod beside it, and
tried again without that program.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.helm import CHART, RELEASE
from tests.cluster.enforcement import enforced
from tests.cluster.images import WHEEL
from tests.cluster.paths import state
from tests.e2e import quickstart, upgrades
from tests.e2e.recorded_run import ENDED, volume
from tests.e2e.shared import ROOT
from tests.kube import Kube, KubectlError, Manifest, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.training, pytest.mark.timeout(1800)]

EXAMPLE = ROOT / "examples/cann-recipes/qwen2-5-1-5b-grpo.yaml"
ON_CPUS = ROOT / "examples/command-verl.yaml"
"""verl by its entry point on CPUs; it explains the flags for which the recipe has none."""
IMAGE = "rljob.local/runtime:old-ray"
RAY = "2.48.0"
STEPS = 2
RUN_SECONDS = 1500.0
LIMIT = "limits.rljob.dev/unauthenticated-ray"
SHARED = "/shared"
"""Mount path of the recipe's volume."""
INPUTS = f"{SHARED}/quickstart"
MODULE = WHEEL.partition("==")[0]
WHEELHOUSE = f"{SHARED}/wheelhouse"

NO_WEIGHTS = "the weights of Qwen2.5-1.5B and the data set cannot be had here"
SMALL = "the tiny model has 256 positions"
MEMORY = "on CPUs, the share is of the machine's memory, which two replicas and the trainer need too"
CHANGED = {
    "data.train_files": (f"{INPUTS}/train.parquet", NO_WEIGHTS),
    "data.val_files": (f"{INPUTS}/validation.parquet", NO_WEIGHTS),
    "actor_rollout_ref.model.path": (f"{INPUTS}/model", NO_WEIGHTS),
    "data.max_prompt_length": ("64", SMALL),
    "data.max_response_length": ("8", SMALL),
    "actor_rollout_ref.rollout.tensor_model_parallel_size": ("1", "two devices are one replica each"),
    "actor_rollout_ref.rollout.gpu_memory_utilization": ("0.1", MEMORY),
    "trainer.n_gpus_per_node": ("2", "the machine has two cores"),
    "trainer.device": ("cpu", "no NPU"),
}
"""Flag of the recipe -> value here, and why the recipe's is impossible."""
UNNEEDED = {"trainer.val_before_train"}
"""Flags of ON_CPUS without which the recipe's defaults work."""
RENAMED = {"custom_reward_function.path": "reward.custom_reward_function.path"}
"""Flags that verl 0.9.1 accepts by their older name and does not read: trainer/main_ppo.py calls none of
migrate_legacy_reward_impl (experimental/reward_loop/reward_loop.py:39)."""

REWARD = f"""\
import {MODULE}


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    assert {MODULE}.__file__.startswith("/rljob-packages/"), {MODULE}.__file__
    return float({MODULE}.unidecode(solution_str).strip() == ground_truth)
"""

SUBMISSION = """\
import http.client
import sys

connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=4)
try:
    connection.request("POST", sys.argv[3], "{}", {"Content-Type": "application/json", "User-Agent": "curl"})
    print("answered", connection.getresponse().status)
except OSError as error:
    print(type(error).__name__)
"""
"""A submission without a token. Its body is not valid, so that it changes nothing where it is answered."""
DASHBOARD, AGENT = (8265, "/api/jobs/"), (52365, "/api/job_agent/jobs/")
EXPORTER, GCS, CLIENT = (8091, "/api/jobs/"), (6379, "/"), (10001, "/")
PORTS = (DASHBOARD, AGENT, EXPORTER, GCS, CLIENT)
CLOSED, REFUSED = "TimeoutError", "ConnectionRefusedError"


@dataclass
class Run:
    """What was observed of the job."""

    job: Manifest = field(default_factory=dict)
    pods: list[Manifest] = field(default_factory=list)
    """Its pods while it trained."""
    closed: dict[int, str] = field(default_factory=dict)
    """By port of the head: what a pod beside the job got while policies were enforced."""
    own: dict[int, str] = field(default_factory=dict)
    """What a worker of the job got at that time."""
    unenforced: dict[int, str] = field(default_factory=dict)
    """What the pod beside the job got without enforcement."""
    ray: str = ""
    """Release of Ray in the head."""

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.job.get("status", {})
        return found


def load(path: Path) -> Manifest:
    manifest: Manifest = next(document for document in yaml.safe_load_all(path.read_text()) if document)
    return manifest


def name_of(flag: str) -> str:
    return flag.partition("=")[0].removeprefix("+")


def arguments(recipe: list[str], on_cpus: list[str]) -> list[str]:
    """Return the recipe's arguments with the changes, and behind them those for CPUs that it has no flag for."""
    begin = next(index for index, word in enumerate(recipe) if "=" in word)
    names = {name_of(flag) for flag in recipe[begin:]}
    assert {*CHANGED, *RENAMED} <= names, "the example no longer has a flag that is changed here"
    changed = []
    for flag in recipe[begin:]:
        name, _, value = flag.partition("=")
        changed.append(f"{RENAMED.get(name, name)}={CHANGED[name][0] if name in CHANGED else value}")
    present = names | set(RENAMED.values()) | UNNEEDED
    return [*recipe[:begin], *changed, *(flag for flag in on_cpus if "=" in flag and name_of(flag) not in present)]


def manifest() -> Manifest:
    """Return the example's job on CPUs, on the quickstart's claim, in the image with the old Ray."""
    job, on_cpus = load(EXAMPLE), load(ON_CPUS)["spec"]
    spec: dict[str, Any] = job["spec"]
    spec["runtime"] = {
        "image": IMAGE,
        "rayVersion": RAY,
        "unauthenticatedRay": True,
        "packages": {"requirements": [WHEEL], "wheelhouse": WHEELHOUSE},
    }
    spec["accelerator"] = {"class": "cpu"}
    del spec["network"]  # HCCL's deadlines
    (group,), (small,) = spec["workerGroups"], on_cpus["workerGroups"]
    group["devicesPerNode"] = small["devicesPerNode"]
    environment = [*copy.deepcopy(group["template"]["env"]), *small["template"]["env"]]
    group["template"] |= {key: small["template"][key] for key in ("cpu", "memory", "sharedMemory")}
    group["template"]["volumes"][0]["persistentVolumeClaim"] = {"claimName": quickstart.CLAIM}
    spec["head"]["template"] = copy.deepcopy(on_cpus["head"]["template"])
    group["template"]["env"] = spec["head"]["template"]["env"] = environment
    command = spec["launcher"]["command"]
    command["args"] = arguments(command["args"], on_cpus["launcher"]["command"]["args"])
    spec["code"] = {"type": "ConfigMap", "configMap": {"name": job["metadata"]["name"]}, "mountPath": "/code"}
    spec["initializers"] = [
        {"name": "prepare", "command": ["python", "/code/prepare.py", INPUTS]},
        {"name": "wheels", "command": ["cp", "-r", "/opt/wheelhouse", SHARED]},
    ]
    spec["trainer"] = {"steps": STEPS}
    spec["restart"] = {"maxRestarts": 0, "maxInfrastructureRestarts": 0}
    spec["observability"] = {"logPath": f"{SHARED}/logs"}
    return job


def code(name: str) -> Manifest:
    """Return the reward function and the quickstart's preparation."""
    (found,) = [one for one in quickstart.surroundings() if one["kind"] == "ConfigMap"]
    data = {"new_math_reward.py": REWARD, "prepare.py": found["data"]["prepare.py"]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def stranger() -> Manifest:
    """Return a pod of the namespace that belongs to no job."""
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "7200"]}
    spec = {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger"}, "spec": spec}


@pytest.fixture(scope="module")
def closed(kube: Kube) -> Iterator[Kube]:
    """Yield the namespace as an administrator prepares it: the limit, and the chart's policies."""
    kube.run("annotate", "namespace", kube.namespace, f"{LIMIT}=true", "--overwrite")
    setting = f"networkPolicy.jobs.namespaces={{{kube.namespace}}}"
    upgrades.change_release(kube, "upgrade", RELEASE, str(CHART), "--reuse-values", "--set", setting)
    yield kube
    upgrades.change_release(kube, "rollback", RELEASE)
    kube.run("annotate", "namespace", kube.namespace, f"{LIMIT}-")


@pytest.fixture(scope="module")
def run(closed: Kube) -> Iterator[Run]:
    job, record = manifest(), Run()
    name = job["metadata"]["name"]
    deadline = time.monotonic() + RUN_SECONDS
    with enforced(state()):
        closed.apply(stranger(), code(name), job)
        wait_for("the job trains", lambda: observe(closed, record, name) in ("Training", *ENDED), RUN_SECONDS, 2)
        if record.status["state"] == "Training":
            record.pods = closed.find("pods", f"rljob.dev/job={name},ray.io/cluster")
            (head,), (worker,) = (of_kind(record.pods, kind) for kind in ("head", "worker"))
            address = head["status"]["podIP"]
            record.closed = {target[0]: submit(closed, "stranger", address, target) for target in PORTS}
            beside = worker["metadata"]["name"]
            record.own = {target[0]: submit(closed, beside, address, target) for target in (DASHBOARD, AGENT, EXPORTER)}
            ask = ("exec", head["metadata"]["name"], "--", "python", "-c", "import ray; print(ray.__version__)")
            record.ray = closed.run(*ask).strip()
    if record.pods:
        record.unenforced = {target[0]: submit(closed, "stranger", address, target) for target in (DASHBOARD, AGENT)}
    wait_for("the job ends", lambda: observe(closed, record, name) in ENDED, deadline - time.monotonic(), 2)
    yield record
    closed.delete("rljob", name)
    closed.delete("pod", "stranger")
    wait_for("no Ray pod", lambda: not closed.find("pods", f"rljob.dev/job={name},ray.io/cluster"), 120)


def observe(kube: Kube, record: Run, name: str) -> str:
    """Update the record and return the job's state."""
    before = record.status.get("state")
    record.job = kube.get("rljob", name) or {}
    if record.status.get("state") != before:
        print(f"{record.status.get('state')}: {record.status.get('message', '')}")
    return str(record.status.get("state"))


def of_kind(pods: list[Manifest], kind: str) -> list[Manifest]:
    return [pod for pod in pods if pod["metadata"]["labels"]["ray.io/node-type"] == kind]


def submit(kube: Kube, pod: str, address: str, target: tuple[int, str]) -> str:
    """Return what a pod gets that submits a job to a port of the head without a token."""
    port, path = target
    try:
        return kube.run("exec", pod, "--", "python", "-c", SUBMISSION, address, str(port), path).strip()
    except KubectlError as error:
        return str(error)


def test_it_trains_and_saves_with_the_old_ray(closed: Kube, run: Run) -> None:
    log = next((volume(closed) / "logs").glob("*/attempt-1/driver.log"), None)
    assert run.status.get("state") == "Succeeded", "\n".join(
        [json.dumps(run.status, indent=1), *(log.read_text(errors="replace").splitlines()[-60:] if log else ())]
    )
    assert run.ray == RAY
    assert run.status["progress"]["summary"] == f"{STEPS}/{STEPS}"
    assert 0 < float(run.status["progress"]["reward"]) < 1
    assert run.status["checkpoint"]["step"] == STEPS
    (saved,) = (volume(closed) / "checkpoints").glob(f"*/*/global_step_{STEPS}/actor")
    assert {path.name for path in saved.glob("model_world_size_*")} == {
        f"model_world_size_2_rank_{rank}.pt" for rank in (0, 1)
    }


def test_a_pod_beside_it_reaches_no_port(run: Run) -> None:
    assert run.closed == {port: CLOSED for port, _ in PORTS}


def test_its_own_pods_reach_each_other_and_need_the_token_for_the_job_api(run: Run) -> None:
    assert run.own[DASHBOARD[0]] == REFUSED
    assert run.own[EXPORTER[0]] == "answered 401"
    assert run.own[AGENT[0]].startswith("answered"), run.own


def test_without_enforcement_the_agents_port_is_open_and_the_dashboard_refuses(run: Run) -> None:
    assert run.unenforced[DASHBOARD[0]] == REFUSED
    assert run.unenforced[AGENT[0]].startswith("answered"), run.unenforced


def test_a_container_installed_the_package_in_every_pod(run: Run) -> None:
    assert run.status["rayCluster"]["packages"] == WHEEL.split()[0]
    assert len(run.pods) == 2
    for pod in run.pods:
        ended = {one["name"]: one["state"].get("terminated") for one in pod["status"]["initContainerStatuses"]}
        assert ended["rljob-packages"]["exitCode"] == 0
