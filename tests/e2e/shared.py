"""The main job: the quickstart trains a model, whatever is taken from it on the way, and a Prometheus looks on.

In one run the operator is killed at three moments at which nothing else happens; a worker's main process is killed, the
head pod is deleted, the job is suspended and resumed, with the operator killed in the middle of each. Chart and image
go to a later version in the first attempt and back in the second. One run serves test_training and
test_training_metrics, because it is the expensive part; what it leaves behind is kept in build/e2e, so that the
questions to Prometheus can be put again without another run.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.chart.helm import CHART, RELEASE, helm
from tests.cluster import images
from tests.cluster.api import Api
from tests.cluster.lifecycle import running_nodes
from tests.cluster.paths import state
from tests.e2e import quickstart, story
from tests.e2e.story import OPERATOR_NAMESPACE, Record
from tests.kube import Kube, condition, wait_for
from tests.monitoring.discovery import discovering, scrape_jobs
from tests.monitoring.prometheus import SCRAPE_CONFIG, Prometheus, configuration, running
from tests.monitoring.questions import Time
from tests.monitoring.rules import write_rules

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "e2e"
NAME = "quickstart"
RUN_SECONDS = 2500
SAVE_EVERY = 5
GRACE_SECONDS = 240
PEACE = (0, *sorted(random.sample(range(1, 7), 2)))
"""Steps at which the operator is killed in the first attempt: any two, and once while the job starts."""
BLOWS = ((8, story.lose_worker), (17, story.delete_head), (27, story.suspend))
SCRAPE_SECONDS = 2
"""A step of the quickstart takes three seconds or more."""


@dataclass(frozen=True)
class Seen:
    """What is kept of a run beside Prometheus' data."""

    namespace: str
    begin: float
    end: float
    attempts: list[list[dict[str, Any]]]
    """steps.jsonl by attempt."""

    @property
    def time(self) -> Time:
        """The whole run, in steps of a panel."""
        return Time(self.begin, self.end, 2 * SCRAPE_SECONDS)


@contextmanager
def watching() -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes the local cluster from this machine."""
    shutil.rmtree(KEPT, ignore_errors=True)
    rules, folder, api = write_rules(KEPT / "rules.yaml"), KEPT / "targets", Api(state())
    config = configuration(SCRAPE_SECONDS, scrape_jobs(SCRAPE_CONFIG, folder), rules)
    with (
        discovering(SCRAPE_CONFIG, folder, lambda: (api.get("/api/v1/pods") or {"items": []})["items"]),
        running(KEPT / "prometheus", config) as prometheus,
    ):
        yield prometheus


@contextmanager
def watched_earlier(folder: Path) -> Iterator[tuple[Prometheus, Seen]]:
    """Give what an earlier run left in a folder."""
    seen = Seen(**json.loads((folder / "seen.json").read_text()))
    with running(folder / "prometheus", configuration(SCRAPE_SECONDS)) as prometheus:
        yield prometheus, seen


def play(kube: Kube) -> tuple[Record, Seen]:
    """Run the job to its end."""
    job = quickstart.variant(
        NAME,
        checkpoint={"path": f"{quickstart.MOUNT}/checkpoints/{NAME}", "everySteps": SAVE_EVERY, "keep": 2},
        restart={"maxInfrastructureRestarts": 3, "backoffSeconds": 1},
        stop={"graceSeconds": GRACE_SECONDS},
    )
    begin, changes, record = time.time(), [_upgrade, _downgrade], Record(NAME)
    for record in story.play(kube, job, BLOWS, RUN_SECONDS, PEACE):
        begun = len(record.status.get("attempts", ()))
        if changes and record.status.get("state") == "Training" and begun > 2 - len(changes):
            changes.pop(0)(kube)
    # The end is scraped too, and the rules look at it once.
    time.sleep(3 * SCRAPE_SECONDS)
    seen = Seen(kube.namespace, begin, time.time(), record.attempts)
    (KEPT / "seen.json").write_text(json.dumps(asdict(seen)))
    return record, seen


def _helm(kube: Kube, *words: str) -> None:
    """Change the release; the operator's pod is replaced."""
    words = (*words, "--namespace", OPERATOR_NAMESPACE, "--wait", "--timeout", "120s")
    answer = helm(*words, kubeconfig=Path(kube.kubeconfig), timeout_seconds=150)
    assert answer.code == 0, answer.stderr


def _upgrade(kube: Kube) -> None:
    """Go to a chart and an image of another version, which renders clusters otherwise."""
    images.load(["operator-later"], running_nodes(state()))
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(shutil.copytree(CHART, Path(folder) / CHART.name))
        about = chart / "Chart.yaml"
        about.write_text(re.sub(r"(?m)^(version|appVersion): .*", r"\1: 99.0.0", about.read_text()))
        changes = ("--set-string", "image.tag=later", "--set", "operator.workers=4")
        _helm(kube, "upgrade", RELEASE, str(chart), "--reuse-values", *changes)
    _await_drift(kube, "this operator renders by version later")


def _downgrade(kube: Kube) -> None:
    """Go back: the running cluster was made by the later version meanwhile."""
    _helm(kube, "rollback", RELEASE)
    _await_drift(kube, "was rendered by version later")


def _await_drift(kube: Kube, words: str) -> None:
    def told() -> bool:
        drift = condition(kube.get("rljob", NAME), "RendererDrift")
        return drift is not None and drift["status"] == "True" and words in drift["message"]

    begin = time.monotonic()
    wait_for(f"the running job says: {words}", told, 60)
    print(f"the running job says so after {time.monotonic() - begin:.0f} s: {words}")
