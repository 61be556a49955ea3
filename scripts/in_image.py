"""Run tests and benchmarks in the runtime image, which has verl, vLLM and Ray, as pods of the local cluster.

`python -m scripts.in_image SUITE …` runs in the stages `seams` and `emulated` of `make test`, in `make acceptance`, and
in `make test-image`, `garbage`, `planners`, `tap-cost` and `start-time`. The images contain no test tools, so pytest,
at the locked version, and the tests are mounted from this machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rljob.cli.arguments import STAND_IN_UID
from rljob.cli.manifests import read_files
from rljob.cli.render import FIRST_GENERATION
from rljob.core.validation.validate import validate
from rljob.launchers import LAUNCHER
from rljob.render.accelerators import BUILT_IN
from rljob.render.names import JobIdentity
from scripts import wheels
from scripts.demo.commands import ROOT, Kubernetes, Manifest, capture
from scripts.demo.errors import DemoError
from scripts.product import local_kubernetes
from tests.emulated_npu import mindspeed

NAMESPACE = "default"
IMAGE = "rljob.local/runtime:cpu"
EMULATED_IMAGE = "rljob.local/runtime:ascend-emulated"
BUILD = ROOT / "build" / "in-image"
CPU = "500m"
"""A pod that requests none gets a CPU only when no other pod wants it: seams made no progress beside e2e."""
ENDED = ("Succeeded", "Failed")
ENDED_SECONDS = 120.0
TOOLS, WHEELS, JOBS = Path("tools"), Path("wheels"), Path("jobs")
MEGATRON, VLLM_ASCEND, MINDSPEED = Path("megatron"), Path("vllm-ascend"), Path("mindspeed")
"""Folders created for a suite: pytest and hypothesis; the two wheels of this repository, installed; job.json of every
example, because the operator's code is not in the image; Megatron-Core, which is not in it either, and which only
the tests that ask it import; MindSpeed, empty where no place has it."""
MANIFESTS = (ROOT / "charts/rljob-operator/recipes", ROOT / "examples", ROOT / "operator/tests/golden/jobs")


# Exit as the launcher does, without the libraries' exit handlers: a thread of Ray, torch or vLLM once crashed while the
# interpreter exited, after 117 of 117 tests had passed.
MAIN = """
import os, sys, pytest
code = pytest.main(sys.argv[1:])
sys.stdout.flush()
os._exit(code)
"""
# The repository's own pytest settings name plug-ins that are not mounted.
PYTEST = (
    *("python", "-c", MAIN, "-c", "/dev/null", "--rootdir", "/tests", "--import-mode", "importlib"),
    *("-p", "no:cacheprovider", "-ra", "--durations=20", "--color", "no", "/tests"),
)
# One process, because other stages of `make test` run beside it, and each process imports verl and vLLM.
QUICK = (*PYTEST, "-m", "not long")
LONG = (*PYTEST, "-s", "-m", "long")
EMULATED = (*PYTEST, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")


@dataclass(frozen=True)
class Suite:
    """A folder of tests, or a benchmark, and its requirements in the pod."""

    folder: Path
    seconds: int
    mounts: Mapping[str, Path] = field(default_factory=dict)
    """Folder in the pod's root -> folder on this machine, or one created for the suite; in addition to its own, the
    tools and the wheels."""
    shared_memory: str | None = None
    command: tuple[str, ...] = PYTEST
    mounted_at: str = "/tests"
    image: str = IMAGE

    @property
    def name(self) -> str:
        """Name of the pod, and of its folder: two suites may run at the same time."""
        return f"rljob-test-{next(name for name, suite in SUITES.items() if suite is self)}"

    @property
    def made(self) -> Path:
        """Folder of what is created for the suite, separate because two suites may run at the same time."""
        return BUILD / self.name


UPSTREAM = ROOT / "runtime/tests/upstream"
ASKED = {
    "jobs": JOBS,
    "examples": ROOT / "examples",
    "conditions": ROOT / "upstream/conditions",
    "megatron": MEGATRON,
    "vllm-ascend": VLLM_ASCEND,
}
"""What the tests of upstream need beside the image: our jobs and tables, and packages that it lacks."""
NPU = {"mindspeed": MINDSPEED, "upstream": UPSTREAM, "jobs": JOBS}
SUITES = {
    "seams": Suite(
        UPSTREAM,
        seconds=4800,  # The run of stages ends earlier; this ends a pod whose run was killed.
        mounts=ASKED,
        command=QUICK,
    ),
    "seams-long": Suite(UPSTREAM, seconds=7200, mounts=ASKED, command=LONG),
    "emulated": Suite(
        ROOT / "tests/emulated_npu/suite",
        seconds=2400,
        mounts=NPU,
        shared_memory="2Gi",
        command=(*EMULATED, "-m", "not long"),
        image=EMULATED_IMAGE,
    ),
    "emulated-long": Suite(
        ROOT / "tests/emulated_npu/suite",
        seconds=7200,
        mounts=NPU,
        shared_memory="2Gi",
        command=(*PYTEST, "-m", "long"),
        image=EMULATED_IMAGE,
    ),
    "local": Suite(
        ROOT / "tests/local",
        seconds=1700,
        mounts={"examples": ROOT / "examples"},
        shared_memory="2Gi",
    ),
    "planners": Suite(
        ROOT / "benchmarks",
        seconds=600,
        command=("python", "-m", "benchmarks.planners"),
        mounted_at="/repository/benchmarks",
    ),
    "garbage": Suite(
        ROOT / "benchmarks",
        seconds=1200,
        mounts={"upstream": UPSTREAM},
        command=("python", "-m", "benchmarks.garbage"),
        mounted_at="/repository/benchmarks",
    ),
    "tap-cost": Suite(
        ROOT / "benchmarks",
        seconds=1200,
        mounts={"examples": ROOT / "examples"},
        shared_memory="2Gi",
        command=("python", "-m", "benchmarks.tap_cost"),
        mounted_at="/repository/benchmarks",
    ),
    "start-time": Suite(
        ROOT / "benchmarks",
        seconds=1800,
        mounts={"examples": ROOT / "examples"},
        shared_memory="2Gi",
        command=("python", "-m", "benchmarks.start_time"),
        mounted_at="/repository/benchmarks",
    ),
}


def pod(suite: Suite) -> Manifest:
    """Return the pod that runs a suite."""
    mounts = {"tools": TOOLS, "wheels": WHEELS, **suite.mounts}
    folders = {"RLJOB_EXAMPLES": "/examples", "RLJOB_JOBS": "/jobs", "RLJOB_CONDITIONS": "/conditions"}
    folders |= {"RLJOB_MEGATRON": "/megatron", "RLJOB_VLLM_ASCEND": "/vllm-ascend", "RLJOB_UPSTREAM": "/upstream"}
    folders |= {"PYTHONPATH": "/tools:/wheels:/repository:/mindspeed"}
    environment = {"RLJOB_IN_IMAGE": "1", **folders}
    places = {"own": (suite.folder, suite.mounted_at)}
    places |= {name: (suite.made / path, f"/{name}") for name, path in mounts.items()}
    volumes = [{"name": name, "hostPath": {"path": str(path)}} for name, (path, _) in places.items()]
    volume_mounts: list[Manifest] = [
        {"name": name, "mountPath": place, "readOnly": True} for name, (_, place) in places.items()
    ]
    if suite.shared_memory is not None:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": suite.shared_memory}})
        volume_mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - POSIX shared memory
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": suite.name, "namespace": NAMESPACE},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "activeDeadlineSeconds": suite.seconds,
            "containers": [
                {
                    "name": "suite",
                    "image": suite.image,
                    "imagePullPolicy": "Never",
                    "command": list(suite.command),
                    "resources": {"requests": {"cpu": CPU}},
                    "env": [{"name": name, "value": value} for name, value in environment.items()],
                    "volumeMounts": volume_mounts,
                }
            ],
            "volumes": volumes,
        },
    }


def install(suite: Suite) -> None:
    """Create the folders that a suite mounts: the locked pytest, the wheels as users get them, and what it names."""
    made, mounted = suite.made, suite.mounts.values()
    install = (str(ROOT / ".venv/bin/uv"), "pip", "install", "--quiet", "--target")
    capture(
        (*install, str(made / TOOLS), "-c", "requirements/dev.txt", "pytest", "pytest-xdist", "hypothesis"), seconds=120
    )
    for folder, lock in ((MEGATRON, "seams"), (VLLM_ASCEND, "seams-ascend")):
        if folder in mounted:
            locked = ("--no-deps", "--require-hashes", "-r", f"requirements/{lock}.txt")
            capture((*install, str(made / folder), *locked), seconds=120)
    if MINDSPEED in mounted:
        found = mindspeed.folder()
        shutil.rmtree(made / MINDSPEED, ignore_errors=True)
        (made / MINDSPEED).mkdir(parents=True)
        if found is None:
            print("in_image: no place has MindSpeed; its tests are skipped (tests/emulated_npu/README.md)", flush=True)
        else:
            shutil.copytree(found, made / MINDSPEED, dirs_exist_ok=True)
    built = map(str, wheels.build(made))
    capture((*install, str(made / WHEELS), "--no-deps", "--reinstall", *built), seconds=120)


def render_jobs(made: Path) -> None:
    """Write job.json of every example and golden job that verl trains, as the operator renders it."""
    shutil.rmtree(made / JOBS, ignore_errors=True)
    (made / JOBS / "commands").mkdir(parents=True)
    files = read_files([str(path) for folder in MANIFESTS for path in sorted(folder.rglob("*.yaml"))])
    for job in files.jobs:
        checked = validate(job.name, job.spec, files.recipes, launcher=LAUNCHER, accelerators=BUILT_IN)
        if checked.spec is None:
            raise DemoError(f"{job.source}: {'; '.join(str(violation) for violation in checked.violations)}")
        # The arguments of a command are not composed by our launcher.
        place = made / JOBS / ("commands" if checked.spec.command is not None else "")
        identity = JobIdentity(namespace=job.namespace, name=job.name, uid=STAND_IN_UID)
        config = LAUNCHER(checked.spec).job_config(identity, checked.spec, FIRST_GENERATION)
        (place / f"{job.name}.json").write_bytes(config.to_json())


def prepare_and_run(kubernetes: Kubernetes, suite: Suite) -> bool:
    """Create what the suite mounts, and run it."""
    install(suite)
    if JOBS in suite.mounts.values():
        render_jobs(suite.made)
    return run(kubernetes, suite)


def run(kubernetes: Kubernetes, suite: Suite) -> bool:
    """Run the pod and print its log as it grows; return whether all tests passed."""
    kubernetes.run("delete", "pod", suite.name, "--namespace", NAMESPACE, "--ignore-not-found", "--now")
    named = ("--namespace", NAMESPACE, f"pod/{suite.name}")
    try:
        kubernetes.run("create", "--filename", "-", text=json.dumps(pod(suite)))
        return _followed(kubernetes, suite, named)
    finally:
        kubernetes.run("delete", *named, "--ignore-not-found", "--now", "--wait=false")


def _followed(kubernetes: Kubernetes, suite: Suite, named: Sequence[str]) -> bool:
    """Print the log of the pod until it ends; return whether all tests passed."""
    try:
        kubernetes.run("wait", *named, "--for=condition=Ready", "--timeout=120s", timeout_seconds=130)
        words = (kubernetes.kubectl, "logs", "--follow", *named)
        subprocess.run(words, env=kubernetes.environment, timeout=suite.seconds, check=False)
        return _succeeded(kubernetes, named)
    except DemoError:
        print(kubernetes.run("describe", *named))
        return False


def _succeeded(kubernetes: Kubernetes, named: Sequence[str]) -> bool:
    """Poll until the kubelet has reported how the pod ended, which happens some time after the last line of the log."""
    deadline = time.monotonic() + ENDED_SECONDS
    while (phase := kubernetes.run("get", *named, "--output=jsonpath={.status.phase}").strip()) not in ENDED:
        if time.monotonic() > deadline:
            raise DemoError(f"the pod is {phase} {ENDED_SECONDS:.0f} s after the end of its log")
        time.sleep(1)
    if phase != "Succeeded":
        print(kubernetes.run("describe", *named))
    return phase == "Succeeded"


def main() -> int:
    """Run the named suites; exit code 1 if one did not pass. SIGINT and SIGTERM delete the pod that runs."""
    parser = argparse.ArgumentParser(prog="scripts.in_image", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("suites", nargs="+", choices=list(SUITES), metavar="SUITE", help=", ".join(SUITES))
    chosen = parser.parse_args().suites
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        kubernetes = local_kubernetes()
        passed = [prepare_and_run(kubernetes, SUITES[name]) for name in chosen]
        return 0 if all(passed) else 1
    except DemoError as error:
        print(f"in_image: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
