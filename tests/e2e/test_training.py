"""The main job: the quickstart trains a model, whatever is taken from it on the way.

In one run a worker's main process is killed, the head pod is deleted, the job is suspended and resumed, the chart is
upgraded, and the operator is killed in the middle of each. One run serves every test of this module, because it is the
expensive part; each test reads another side of what the run left behind.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.contract import Port
from tests.e2e import quickstart
from tests.e2e.conftest import OPERATOR_NAMESPACE, ROOT
from tests.kube import Kube, Manifest, http_get, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2700)]

NAME = "quickstart"
RUN_SECONDS = 2500
SAVE_EVERY = 5


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
    """How often the operator was."""
    freed_seconds: float = 0.0
    """From the request to suspend until no pod of the cluster was left."""
    attempts: list[list[dict[str, Any]]] = field(default_factory=list)
    """The run's own steps.jsonl, by attempt."""

    @property
    def status(self) -> dict[str, Any]:
        """The job's status as it was seen last."""
        found: dict[str, Any] = self.job.get("status", {})
        return found

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The steps that made the model: of a repeated step the last record counts."""
        by_step = {line["step"]: line for lines in self.attempts for line in lines}
        return [by_step[step] for step in sorted(by_step)]


def _kill_operator(admin: Kube) -> None:
    pod = admin.find("pods", "app.kubernetes.io/name=rljob-operator")[0]["metadata"]["name"]
    admin.run("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")


def _look(kube: Kube, record: Record) -> str:
    """Take down what is seen now; give the job's state."""
    record.job = kube.get("rljob", NAME) or {}
    status = record.status
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


def _job() -> Manifest:
    return quickstart.variant(
        NAME,
        checkpoint={"path": f"{quickstart.MOUNT}/checkpoints/{NAME}", "everySteps": SAVE_EVERY, "keep": 2},
        restart={"maxInfrastructureRestarts": 3, "backoffSeconds": 1},
        stop={"graceSeconds": 240},
    )


def _lose_worker(kube: Kube, record: Record) -> None:
    """Kill the worker's main process, as the kernel does when memory runs out."""
    cluster = record.status["rayCluster"]["name"]
    pod = kube.find("pods", f"ray.io/cluster={cluster},ray.io/node-type=worker")[0]
    os.kill(_main_process(pod["metadata"]["uid"]), signal.SIGKILL)


def _main_process(pod_uid: str) -> int:
    """Give the process that is number 1 in the pod's own container, as this machine counts it."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            mine = pod_uid in (folder / "cgroup").read_text().replace("_", "-")
            ids = next(row for row in (folder / "status").read_text().splitlines() if row.startswith("NSpid:")).split()
            if mine and len(ids) > 2 and ids[-1] == "1" and (folder / "comm").read_text().strip() != "pause":
                return int(folder.name)
        except (OSError, StopIteration):
            continue
    raise AssertionError(f"no process of pod {pod_uid} on this machine")


def _delete_head(kube: Kube, record: Record) -> None:
    cluster = record.status["rayCluster"]["name"]
    head = kube.find("pods", f"ray.io/cluster={cluster},ray.io/node-type=head")[0]["metadata"]["name"]
    kube.run("delete", "pod", head, "--wait=false")


def _suspend(kube: Kube, record: Record) -> None:
    """Suspend, see that the NPUs are free, and resume; the operator is killed on the way there too."""
    cluster, begin = record.status["rayCluster"]["name"], time.monotonic()
    _patch(kube, suspend="true")
    _kill_operator(kube.in_namespace(OPERATOR_NAMESPACE))
    record.killed += 1

    def suspended() -> bool:
        state = _look(kube, record)
        assert state != "Failed", record.status
        return state == "Suspended"

    wait_for("the job is suspended", suspended, 400, every=2)
    assert not kube.find("pods", f"ray.io/cluster={cluster}")
    record.freed_seconds = time.monotonic() - begin
    _patch(kube, suspend="false")


def _patch(kube: Kube, suspend: str) -> None:
    kube.run("patch", "rljob", NAME, "--type", "merge", "-p", f'{{"spec":{{"suspend":{suspend}}}}}')


BLOWS: tuple[tuple[int, Callable[[Kube, Record], None]], ...] = ((8, _lose_worker), (17, _delete_head), (27, _suspend))
"""What happens when the run shows a step, each to another attempt."""


@pytest.fixture(scope="module")
def run(kube: Kube, admin: Kube) -> Iterator[Record]:
    record = Record()
    kube.apply(_job())
    begin, blows, upgraded = time.monotonic(), list(BLOWS), False
    while (state := _look(kube, record)) not in ("Succeeded", "Failed", "Stopped", "Invalid"):
        assert time.monotonic() - begin < RUN_SECONDS, json.dumps(record.status, indent=1)
        if state == "Training" and not upgraded:
            upgraded = True
            _upgrade()
        running = len(record.status.get("attempts", ())) == len(BLOWS) - len(blows) + 1
        if blows and state == "Training" and running and record.status["progress"]["step"] >= blows[0][0]:
            _, blow = blows.pop(0)
            print(f"{blow.__name__} at step {record.status['progress']['step']}")
            blow(kube, record)
            time.sleep(2)
            _kill_operator(admin)
            record.killed += 1
        time.sleep(2)
    record.attempts = _steps_files(kube, record.job)
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


def _steps_files(kube: Kube, job: Manifest) -> list[list[dict[str, Any]]]:
    """Read the records that the run left on its volume; the local cluster's volumes are folders of this machine."""
    claim = (kube.get("pvc", quickstart.CLAIM) or {})["spec"]["volumeName"]
    volume = (kube.get("pv", claim) or {})["spec"]
    host = volume.get("hostPath", volume.get("local", {}))["path"]
    logs = Path(host) / Path(job["spec"]["observability"]["logPath"]).relative_to(quickstart.MOUNT)
    files = [
        logs / attempt["clusterName"] / f"attempt-{attempt['number']}" / "steps.jsonl"
        for attempt in job["status"]["attempts"]
    ]
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in files]


def test_it_succeeds_with_every_step(run: Record) -> None:
    status = run.status
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


def test_each_blow_cost_one_attempt_one_cluster_and_one_submission(run: Record) -> None:
    status = run.status
    assert run.killed == len(BLOWS) + 1
    assert [attempt["number"] for attempt in status["attempts"]] == [1, 2, 3, 4]
    assert len(run.clusters) == 4
    assert run.submissions == {attempt["submissionId"] for attempt in status["attempts"]}
    print(
        json.dumps(
            [{k: a.get(k) for k in ("reason", "cause", "resumedFromStep", "lastStep")} for a in status["attempts"]]
        )
    )
    worker, head, suspended, last = status["attempts"]
    assert worker["cause"] == "Infrastructure", worker
    assert head["outcome"] in ("Lost", "Preempted"), head
    assert (suspended["outcome"], suspended["reason"]) == ("Stopped", "Suspended")
    assert last["outcome"] == "Succeeded"
    counters = status["counters"]
    assert counters["infrastructureFailures"] + counters["preemptions"] == 2
    assert counters["userFailures"] == 0
    assert status["restarts"] == 2


def test_little_is_lost(run: Record) -> None:
    for before, after in pairwise(run.attempts):
        assert before[-1]["step"] - after[0]["step"] <= SAVE_EVERY
        steps = [line["step"] for line in after]
        assert steps == list(range(steps[0], steps[-1] + 1))


def test_a_suspended_run_has_saved_its_last_step_and_frees_its_npus_in_time(run: Record) -> None:
    suspended, last = run.status["attempts"][2:]
    print(f"suspended: NPUs free after {run.freed_seconds:.0f} s")
    assert last["resumedFromStep"] >= suspended["lastStep"]
    assert run.attempts[3][0]["step"] == last["resumedFromStep"] + 1


def test_usage_tells_what_was_held_and_what_was_worth_it(run: Record) -> None:
    usage, attempts = run.status["usage"], run.status["attempts"]
    print(json.dumps(usage))
    assert usage["deviceSeconds"] == sum(attempt["deviceSeconds"] for attempt in attempts)
    assert 0 < usage["productiveDeviceSeconds"] < usage["deviceSeconds"]


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
    for line in (line for lines in run.attempts for line in lines):
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
