"""The main job: the quickstart trains a model while the operator is killed, upgraded and asked the same thing twice.

One run serves every test of this module, because it is the expensive part; each test reads another side of what the
run left behind.
"""

from __future__ import annotations

import base64
import json
import random
import statistics
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.contract import Port
from tests.e2e import quickstart
from tests.e2e.conftest import OPERATOR_NAMESPACE, ROOT
from tests.kube import Kube, Manifest, http_get, wait_for

pytestmark = pytest.mark.e2e

NAME = "quickstart"
KILLS = 3
RUN_SECONDS = 1500


@dataclass
class Record:
    """What was seen of the run, from outside, while it ran."""

    job: Manifest = field(default_factory=dict)
    clusters: set[str] = field(default_factory=set)
    """uids of every RayCluster that ever was."""
    submissions: set[str] = field(default_factory=set)
    """Ray jobs that the head pod knew."""
    scrapes: list[str] = field(default_factory=list)
    """Texts of the exporter's /metrics."""
    steps: list[int] = field(default_factory=list)
    """Values of status.progress.step, in order of sight."""
    killed: int = 0
    lines: list[dict[str, Any]] = field(default_factory=list)
    """The run's own steps.jsonl."""


def _kill_operator(admin: Kube) -> None:
    pod = admin.find("pods", "app.kubernetes.io/name=rljob-operator")[0]["metadata"]["name"]
    admin.run("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")


def _look(kube: Kube, record: Record) -> str:
    """Take down what is seen now; give the job's state."""
    record.job = kube.get("rljob", NAME) or {}
    status = record.job.get("status", {})
    step = status.get("progress", {}).get("step", 0)
    if step and (not record.steps or record.steps[-1] != step):
        record.steps.append(step)
    for cluster in kube.find("rayclusters", f"rljob.dev/job={NAME}"):
        record.clusters.add(cluster["metadata"]["uid"])
    heads = kube.find("pods", f"rljob.dev/job={NAME},ray.io/node-type=head")
    address = heads[0].get("status", {}).get("podIP") if heads else None
    if address and status.get("state") == "Training":
        _look_into_head(kube, record, address)
    return str(status.get("state", ""))


def _look_into_head(kube: Kube, record: Record, address: str) -> None:
    secret = record.job["status"]["rayCluster"]["name"]
    token = base64.b64decode((kube.get("secret", secret) or {})["data"]["auth_token"]).decode()
    try:
        jobs = json.loads(http_get(f"http://{address}:8265/api/jobs/", token))
        record.scrapes.append(http_get(f"http://{address}:{Port.METRICS.value}/metrics"))
    except OSError:
        return  # the pod may be gone by now: the run has ended
    record.submissions |= {entry["submission_id"] for entry in jobs if entry.get("submission_id")}


@pytest.fixture(scope="module")
def run(kube: Kube, admin: Kube) -> Iterator[Record]:
    record = Record()
    kube.apply(quickstart.rljob())
    # The moments are random on purpose; the seed is printed so that a failure can be played again.
    seed = random.SystemRandom().randrange(10_000)
    print(f"seed of the kills: {seed}")
    moments = iter(sorted(random.Random(seed).uniform(5, 240) for _ in range(KILLS)))  # noqa: S311 - no secret
    begin, due, upgraded = time.monotonic(), next(moments, None), False
    while (state := _look(kube, record)) not in ("Succeeded", "Failed", "Invalid"):
        elapsed = time.monotonic() - begin
        assert elapsed < RUN_SECONDS, json.dumps(record.job.get("status"), indent=1)
        if due is not None and elapsed >= due:
            _kill_operator(admin)
            record.killed, due = record.killed + 1, next(moments, None)
        if state == "Training" and due is None and not upgraded:
            upgraded = True
            _upgrade()
        time.sleep(2)
    record.lines = _steps_file(kube, record.job)
    wait_for("no Ray pod", lambda: not kube.find("pods", f"rljob.dev/job={NAME},ray.io/cluster"), 60)
    yield record
    kube.delete("rljob", NAME)


def _upgrade() -> None:
    """Upgrade the chart with another value, so that the operator's pod is replaced."""
    helm = subprocess.run(
        [str(ROOT / ".venv/bin/python"), "-m", "tests.cluster", "path", "helm"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout.strip()
    kubeconfig = subprocess.run(
        [str(ROOT / ".venv/bin/python"), "-m", "tests.cluster", "kubeconfig"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout.strip()
    subprocess.run(
        [
            f"{helm}/helm",
            "upgrade",
            "rljob-operator",
            str(ROOT / "charts/rljob-operator"),
            "--namespace",
            OPERATOR_NAMESPACE,
            "--kubeconfig",
            kubeconfig,
            "--reuse-values",
            "--set",
            "operator.workers=4",
            "--wait",
            "--timeout",
            "120s",
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=150,
    )


def _steps_file(kube: Kube, job: Manifest) -> list[dict[str, Any]]:
    """Read the records that the run left on its volume; the local cluster's volumes are folders of this machine."""
    claim = (kube.get("pvc", quickstart.CLAIM) or {})["spec"]["volumeName"]
    volume = (kube.get("pv", claim) or {})["spec"]
    host = volume.get("hostPath", volume.get("local", {}))["path"]
    logs = Path(host) / Path(job["spec"]["observability"]["logPath"]).relative_to(quickstart.MOUNT)
    path = logs / job["status"]["rayCluster"]["name"] / "attempt-1" / "steps.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_it_succeeds_with_every_step(run: Record) -> None:
    status = run.job["status"]
    assert status["state"] == "Succeeded", json.dumps(status, indent=1)
    assert status["progress"]["summary"] == "40/40"
    assert float(status["progress"]["tokensPerSecondPerCard"]) > 0
    assert [line["step"] for line in run.lines] == list(range(1, 41))


def test_it_learns(run: Record) -> None:
    rewards = [line["metrics"]["critic/score/mean"] for line in run.lines]
    first, last = statistics.mean(rewards[:5]), statistics.mean(rewards[-5:])
    print(f"reward: first five {first:.3f}, last five {last:.3f}")
    assert last >= first + 0.2
    assert last >= 0.75


def test_kubectl_shows_it(kube: Kube, run: Record) -> None:
    row = kube.run("get", "rljob", NAME)
    assert "Succeeded" in row
    assert "40/40" in row
    assert run.job["status"]["progress"]["tokensPerSecondPerCard"] in row


def test_there_was_one_cluster_and_one_submission(run: Record) -> None:
    assert run.killed == KILLS
    assert len(run.clusters) == 1
    assert run.submissions == {run.job["status"]["attempts"][0]["submissionId"]}
    assert len(run.job["status"]["attempts"]) == 1


def test_steps_never_went_back(run: Record) -> None:
    assert run.steps == sorted(run.steps)
    assert run.steps[-1] == 40


def test_the_cluster_is_freed(kube: Kube, run: Record) -> None:
    assert run.clusters
    wait_for("no RayCluster", lambda: not kube.find("rayclusters", f"rljob.dev/job={NAME}"), 60)
    assert not kube.find("pods", f"rljob.dev/job={NAME},ray.io/cluster")


def _values(text: str, name: str, **labels: str) -> list[float]:
    """Read the samples of a metric whose labels hold these."""
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    rows = [row for row in text.splitlines() if row.startswith(f"{name}{{") and all(part in row for part in wanted)]
    return [float(row.rsplit(" ", 1)[1]) for row in rows]


def test_the_exporter_shows_tokens_per_second_while_it_runs(run: Record) -> None:
    for stage in ("rollout", "update", "step"):
        seen = [
            value
            for text in run.scrapes
            for value in _values(text, "rljob_tokens_per_second", stage=stage, tokens="prompt_and_response", per="card")
        ]
        assert seen, stage
        assert min(seen) > 0


def test_the_exporter_shows_both_idle_ratios(run: Record) -> None:
    for name in ("rljob_first_dp_idle_ratio", "rljob_cluster_idle_ratio"):
        seen = [value for text in run.scrapes for value in _values(text, name)]
        assert all(0 <= value <= 1 for value in seen)
        assert len(set(seen)) > 1, f"{name} is constant: {seen}"


def test_the_exporter_passes_on_what_vllm_counts(run: Record) -> None:
    last = next(text for text in reversed(run.scrapes) if "vllm:generation_tokens_total" in text)
    tokens = _values(last, "vllm:generation_tokens_total")
    assert len(tokens) == 2, "one counter a replica"
    assert min(tokens) > 0


def test_figures_follow_from_the_records(run: Record) -> None:
    cards = 2
    for line in run.lines:
        metrics = line["metrics"]
        tps = metrics["perf/total_num_tokens"] / metrics["timing_s/step"] / cards
        assert metrics["rljob/tokens_per_second/step/prompt_and_response/card"] == pytest.approx(tps)
        finish = [metrics["rljob/replica/0/finish_seconds"], metrics["rljob/replica/1/finish_seconds"]]
        wall = max(finish)
        assert metrics["rljob/rollout_seconds"] == pytest.approx(wall)
        assert metrics["rljob/first_dp_idle_ratio"] == pytest.approx((wall - min(finish)) / wall)
        idle = sum(wall - seconds for seconds in finish) / (wall * len(finish))
        assert metrics["rljob/cluster_idle_ratio"] == pytest.approx(idle)


def test_the_status_shows_the_last_record(run: Record) -> None:
    progress, last = run.job["status"]["progress"], run.lines[-1]["metrics"]
    assert float(progress["reward"]) == pytest.approx(last["critic/score/mean"], rel=1e-3)
    tps = last["rljob/tokens_per_second/step/prompt_and_response/card"]
    assert float(progress["tokensPerSecondPerCard"]) == pytest.approx(tps, rel=1e-3)
    assert float(progress["firstDPIdleRatio"]) == pytest.approx(last["rljob/first_dp_idle_ratio"], rel=1e-3, abs=1e-6)
