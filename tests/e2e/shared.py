"""The one run with real verl and vLLM: the quickstart trains a model while a Prometheus looks on.

It is as short as its reward allows. On its way a worker's main process is killed, and the job is suspended and resumed,
the operator killed in the middle of each: what else a run survives is judged with the contract driver (test_lifecycle,
test_survival). One run serves test_training and test_training_metrics, because it is the expensive part; what it leaves
behind is kept in build/e2e, so that the questions to Prometheus can be put again without another run.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.cluster.api import Api
from tests.cluster.paths import state
from tests.e2e import quickstart, story
from tests.e2e.story import Record
from tests.kube import Kube
from tests.monitoring.discovery import discovering, scrape_jobs
from tests.monitoring.prometheus import SCRAPE_CONFIG, Prometheus, configuration, running
from tests.monitoring.questions import Time
from tests.monitoring.rules import write_rules

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "e2e"
NAME = "quickstart"
RUN_SECONDS = 1500
STEPS = 28
"""After twenty, the mean reward of the last five is above test_training's bars by as much as five steps differ."""
SAVE_EVERY = 5
GRACE_SECONDS = 240
BLOWS = ((4, story.lose_worker), (12, story.suspend))
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
        trainer__steps=STEPS,
        checkpoint={"path": f"{quickstart.MOUNT}/checkpoints/{NAME}", "everySteps": SAVE_EVERY, "keep": 2},
        restart={"maxInfrastructureRestarts": 3, "backoffSeconds": 1},
        stop={"graceSeconds": GRACE_SECONDS},
    )
    begin, record = time.time(), Record(NAME)
    for record in story.play(kube, job, BLOWS, RUN_SECONDS):  # noqa: B007 - the last one counts
        pass
    # The end is scraped too, and the rules look at it once.
    time.sleep(3 * SCRAPE_SECONDS)
    seen = Seen(kube.namespace, begin, time.time(), record.attempts)
    (KEPT / "seen.json").write_text(json.dumps(asdict(seen)))
    return record, seen
