"""Arguments, the objects of every class, what is read in a pod, and the whole command."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from doubles.played_kubectl import PLAN, Cluster

from rljob.api.accelerators import AcceleratorFacts
from rljob.cli.conformance.claims import CLAIMS
from rljob.cli.conformance.facts import ConformancePlan
from rljob.cli.conformance.manifests import manifests, read_quickstart
from rljob.cli.main import main
from rljob.core.validation.document import validate_document
from rljob.launchers import LAUNCHER
from rljob.render.accelerators import BUILT_IN
from rljob_runtime.contract import CoreBinding, Phase, Platform, Progress


def test_list_needs_no_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [claim.id for claim in CLAIMS]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--class", "atlas-a9"], "there is no such class; choose one of atlas-a2"),
        (["--class", "atlas-a3"], "needs --image"),
        (["--access-mode", "ReadWriteOnce"], "needs --node"),
        (["--devices", "17"], "a node of class cpu has 16"),
        (["--devices", "6"], "the 256 samples of a step do not divide over 6 devices; use one of 1, 2, 4, 8, 16"),
        (["--devices", "12"], "do not divide over 12 devices"),
        (["--steps", "15"], "needs at least 16"),
        (["--report", "/absent/report.json"], "no such folder"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", *words]) == 2
    assert told in capsys.readouterr().err


def _plan(name: str, facts: AcceleratorFacts, devices: int) -> ConformancePlan:
    is_npu = facts.platform is Platform.NPU
    return ConformancePlan(
        "abc123", name, facts.resource, is_npu, devices, "x/y:1", queue="q", node="n", pull_secrets=("s",)
    )


@pytest.mark.parametrize("name", list(BUILT_IN))
@pytest.mark.parametrize("whole", [True, False], ids=["a whole node", "two devices"])
def test_the_job_of_every_class_is_valid(name: str, whole: bool) -> None:
    facts = BUILT_IN[name]
    job = manifests(_plan(name, facts, facts.devices_per_node if whole else 2), facts)[-1]
    checked = validate_document(job, {}, launcher=LAUNCHER, accelerators=BUILT_IN)
    assert checked.spec is not None, [str(violation) for violation in checked.violations]


def test_the_objects_are_the_quickstarts_with_the_volume_that_was_asked_for() -> None:
    plan = ConformancePlan(
        "abc123", "cpu", PLAN.resource, False, 2, "x:1", storage_class="fast", access_mode="ReadWriteOnce"
    )
    made = {manifest["kind"]: manifest for manifest in manifests(plan, BUILT_IN["cpu"])}
    assert sorted(made) == sorted(manifest["kind"] for manifest in read_quickstart())
    claim = made["PersistentVolumeClaim"]["spec"]
    assert (claim["accessModes"], claim["storageClassName"]) == (["ReadWriteOnce"], "fast")
    assert "prepare.py" in made["ConfigMap"]["data"]


@pytest.fixture
def exporter() -> Iterator[int]:
    """Serve metrics as the exporter does, and return the port."""
    text = 'rljob_step{a="x"} 3\nrljob_tokens_per_second{a="x"} 12.5\nrljob_cluster_idle_ratio{a="x"} 0.25\n'

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def _in_pod(environment: dict[str, str], *words: str) -> dict[str, object]:
    script = (resources.files("rljob.cli.conformance") / "in_pod.py").read_text()
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=60)
    assert "secret" not in done.stdout
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_the_pod_script_reports_progress_metrics_checkpoints_and_hccl(tmp_path: Path, exporter: int) -> None:
    spool, folder = tmp_path / "spool", tmp_path / "checkpoints"
    (spool / "attempt-2").mkdir(parents=True)
    planned = CoreBinding(nodes=1, planned_nodes=1)
    progress = Progress("uid", Phase.TRAINING, attempt=2, step=3, core_binding=planned)
    (spool / "current.json").write_bytes(progress.to_json())
    (spool / "attempt-2" / "binding.json").write_bytes(CoreBinding(1, 1, 32, 0).to_json())
    (folder / "global_step_5").mkdir(parents=True)
    (folder / "latest_checkpointed_iteration.txt").write_text("5\n")
    variables = {"RLJOB_SPOOL": str(spool), "RLJOB_METRICS_PORT": str(exporter), "TOKEN": "secret", "HCCL_X": "1"}
    found = _in_pod(variables, str(folder))
    assert found["problem"] == ""
    assert found["hccl"] == {"HCCL_X": "1"}
    assert found["checkpoints"] == {"steps": [5], "tracker": "5"}
    assert found["metrics"] == {"rljob_tokens_per_second": [12.5], "rljob_cluster_idle_ratio": [0.25]}
    told = found["progress"]
    assert isinstance(told, dict)
    assert (told["step"], told["coreBinding"]["boundProcesses"]) == (3, 32)


def test_the_pod_script_without_an_exporter_reports_the_rest(tmp_path: Path) -> None:
    found = _in_pod({"RLJOB_SPOOL": str(tmp_path), "RLJOB_METRICS_PORT": "1"}, str(tmp_path / "absent"))
    assert found["checkpoints"] == {"steps": [], "tracker": ""}
    assert "progress: " in str(found["problem"])
    assert "metrics: " in str(found["problem"])


def test_the_command_writes_table_and_report_and_fails_with_a_claim(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.answer("get storageclasses", {"items": []})
    report = tmp_path / "report.json"
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["conformance", "--report", str(report)]) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    said = capsys.readouterr()
    assert "storage " in said.out
    assert "failed: storage: no StorageClass is the default" in said.err
    made = json.loads(report.read_text())
    assert made["result"] == "failed"
    assert made["versions"]["rljob"]
    assert os.fspath(tmp_path) not in report.read_text()
