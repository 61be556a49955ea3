"""The logs of a job's nodes come to its volume on request, and after a failure before its pods are gone.

CANN's logs, npu-smi and ascend-fd are files that the test writes to the job's volume, in the forms that are documented.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.tests.fake_ascend import A2, ASCEND_FD
from tests.e2e import quickstart, runs
from tests.e2e.recorded_run import log_folders, volume
from tests.kube import Kube, Manifest, wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.lifecycle,
    pytest.mark.skipif(runs.VERL, reason="only the contract driver fails at a step"),
]

NAME = "collects"
PLOGS, TOOLS = f"{quickstart.MOUNT}/{NAME}/plogs", f"{quickstart.MOUNT}/{NAME}/tools"
IMAGE_PATH = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Of the image (images/runtime/cpu/Dockerfile): a variable of the pod replaces it."""
ERROR = "[ERROR] HCCL(7,python):2026-11-28-05:00:00.000 the connection failure between this device and target device"
DIAGNOSIS = "AISW_CANN_HCCL_017 (socket timeout) at "


def job() -> Manifest:
    made = runs.variant(
        NAME,
        **runs.pace(1.0, fail_at_step=25),
        trainer__steps=40,
        restart={"maxRestarts": 0},
        observability={"logPath": f"{quickstart.MOUNT}/logs"},
    )
    env = [{"name": "ASCEND_PROCESS_LOG_PATH", "value": PLOGS}, {"name": "PATH", "value": f"{TOOLS}:{IMAGE_PATH}"}]
    for template in (made["spec"]["head"]["template"], made["spec"]["workerGroups"][0]["template"]):
        template["env"] = [*template.get("env", []), *env]
    return made


def write_logs_and_tools(kube: Kube) -> None:
    folder = volume(kube) / NAME
    for name, text in {"debug/plog/plog-7_20261128.log": ERROR, "run/plog/plog-7_20261128.log": "[EVENT] HCCL"}.items():
        log = folder / "plogs" / name
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"{text}\n")
    tools = A2.install(folder / "tools")
    (tools / "ascend-fd").write_text(ASCEND_FD)
    (tools / "ascend-fd").chmod(0o755)


def collected(folder: Path) -> dict[str, list[str]]:
    """Return the files below the folder of each node."""
    nodes = (path for path in (folder / "nodes").iterdir() if path.is_dir())
    return {
        node.name: sorted(str(path.relative_to(node)) for path in node.rglob("*") if path.is_file()) for node in nodes
    }


def test_logs_are_collected_on_request_and_after_a_failure(kube: Kube) -> None:
    kube.apply(job())

    def state() -> str:
        return str(((kube.get("rljob", NAME) or {}).get("status") or {}).get("state"))

    wait_for("it trains", lambda: state() == "Training", 300)
    write_logs_and_tools(kube)
    environment = os.environ | {
        "KUBECONFIG": str(kube.kubeconfig),
        "PATH": f"{Path(kube.kubectl).parent}:{os.environ['PATH']}",
    }
    words = [sys.executable, "-m", "rljob.cli.main", "logs", "--collect", f"{kube.namespace}/{NAME}"]
    asked = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert asked.returncode == 0, asked.stderr
    assert f"ascend-fd: {DIAGNOSIS}" in asked.stdout
    assert "stacks of " in asked.stdout
    assert state() == "Training"

    kube.run("wait", f"rljob/{NAME}", "--for=condition=Finished", "--timeout=300s", seconds=330)
    failed = kube.get("rljob", NAME) or {}
    message = failed["status"]["message"]
    assert (failed["status"]["state"], failed["status"]["reason"]) == ("Failed", "RunFailed"), failed["status"]
    assert [attempt["outcome"] for attempt in failed["status"]["attempts"]] == ["Failed"]
    wait_for("an event", lambda: [event for event in kube.events(NAME) if event.get("reason") == "RunFailed"], 30)
    (folder,) = log_folders(kube, failed)
    there = str(folder).replace(str(volume(kube)), quickstart.MOUNT)
    assert "PlannedError: rank 1 fails in step 25" in message
    assert f"; ascend-fd: {DIAGNOSIS}" in message
    assert message.endswith(f"are in {there}/nodes"), message
    nodes = collected(folder)
    assert len(nodes) == 2, nodes
    for files in nodes.values():
        assert {"process_log/debug/plog/plog-7_20261128.log", "environment_check/npu_info_after.txt"} <= set(files)
    assert any(name.startswith("train_log/worker-") for files in nodes.values() for name in files)
    assert (folder / "stacks" / "summary.txt").exists()
    assert (folder / "collection.json").exists()
    wait_for("the cluster is freed", lambda: not kube.find("rayclusters", f"rljob.dev/job={NAME}"), 60)
    kube.delete("rljob", NAME)
