"""The one run with real verl and vLLM: the quickstart trains a model while a Prometheus scrapes it.

In `make test` it is suspended and resumed once, the operator is killed meanwhile, and it ends after few steps. With
RLJOB_LONG set, as in `make acceptance`, a worker's main process and an engine are killed too, the run is as long as the
required reward needs, and its last checkpoint is evaluated. Other faults are tested with the contract driver
(test_lifecycle, test_survival). test_training and test_training_metrics share the run because it is expensive. Its data
is kept in build/e2e, so that the Prometheus queries can be repeated without another run.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.cluster.api import Api
from tests.cluster.paths import state
from tests.e2e import quickstart, recorded_run
from tests.e2e.recorded_run import Record
from tests.kube import Kube, Manifest
from tests.monitoring.discovery import discovering, scrape_jobs
from tests.monitoring.prometheus import SCRAPE_CONFIG, Prometheus, configuration, running
from tests.monitoring.questions import Time
from tests.monitoring.rules import write_rules

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "e2e"
NAME = "quickstart"
LONG = bool(os.environ.get("RLJOB_LONG"))
RUN_SECONDS = 3600
STEPS = 36 if LONG else 13
"""The reward dips on its way: with 28 steps, the last five once fell 0.04 short of the threshold of test_training."""
SAVE_EVERY = 5
GRACE_SECONDS = 240
SUSPENDED_STEP = 21 if LONG else SAVE_EVERY + 1
HASHES = "weight_hashes"
"""Module that records the weights of every save and load, and folder of its records on the volume."""
SAVE_CONTENTS = "actor_rollout_ref.actor.checkpoint.save_contents"
SCRAPE_SECONDS = 2
"""Less than a step of the quickstart, which takes at least three seconds."""


def suspend(kube: Kube, record: Record) -> None:
    """Suspend the run, which is held at its next save meanwhile: the operator is killed, and steps take seconds."""
    folder = recorded_run.volume(kube) / HASHES

    def release() -> None:
        # Other runs with these faults have no such folder, and steps enough.
        folder.mkdir(exist_ok=True)
        (folder / "released").touch()

    recorded_run.suspend(kube, record, release)


LOST = (SAVE_EVERY + 1, recorded_run.lose_worker), (13, recorded_run.kill_engine)
FAULTS = (*(LOST if LONG else ()), (SUSPENDED_STEP, suspend))
"""Each after a save, so that every attempt but the first loads one."""
ATTEMPTS = tuple(range(1, len(FAULTS) + 2))


@dataclass(frozen=True)
class Seen:
    """What is kept of a run in addition to the data of Prometheus."""

    namespace: str
    begin: float
    end: float
    attempts: list[list[dict[str, Any]]]
    """Contents of steps.jsonl by attempt."""

    @property
    def time(self) -> Time:
        """Return the time range of the run with the step of a panel."""
        return Time(self.begin, self.end, 2 * SCRAPE_SECONDS)


def variables(seen: Seen) -> dict[str, str]:
    """Return the values of Grafana's variables for a dashboard that shows the whole run."""
    seconds = int(seen.time.end - seen.time.begin)
    return {"namespace": seen.namespace, "rljob": NAME, "__rate_interval": "1m", "__range": f"{seconds}s"}


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
    """Yield Prometheus and the data that an earlier run left in a folder."""
    seen = Seen(**json.loads((folder / "seen.json").read_text()))
    with running(folder / "prometheus", configuration(SCRAPE_SECONDS)) as prometheus:
        yield prometheus, seen


def weight_hashes() -> list[Manifest]:
    """Return the manifests that bring weight_hashes.py into the pods."""
    source = Path(__file__).with_name(f"{HASHES}.py").read_text()
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "weight-hashes"},
            "data": {f"{HASHES}.py": source},
        }
    ]


def hashed() -> Manifest:
    """Return the worker's template of the quickstart with weight_hashes.py in it."""
    template: Manifest = copy.deepcopy(quickstart.rljob()["spec"]["workerGroups"][0]["template"])
    template["volumes"].append({"name": "hashes", "configMap": {"name": "weight-hashes"}})
    template["volumeMounts"].append({"name": "hashes", "mountPath": "/hashes"})
    template["env"] = [
        {"name": "PYTHONPATH", "value": "/hashes"},
        {"name": "VERL_USE_EXTERNAL_MODULES", "value": HASHES},
        {"name": "WEIGHT_HASHES", "value": f"{quickstart.MOUNT}/{HASHES}"},
        {"name": "WEIGHT_HASHES_HOLD", "value": str(-(-SUSPENDED_STEP // SAVE_EVERY) * SAVE_EVERY)},
    ]
    return template


def read_hashes(kube: Kube) -> list[dict[str, Any]]:
    """Return what the ranks wrote, each rank's lines in their order."""
    files = sorted((recorded_run.volume(kube) / HASHES).glob("rank-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def run_job(kube: Kube) -> tuple[Record, Seen]:
    """Run the job to its end."""
    kube.apply(*weight_hashes())
    job = quickstart.variant(
        NAME,
        workerGroups__0__template=hashed(),
        verl__overrides={SAVE_CONTENTS: ["model", "optimizer", "extra", "hf_model"]},
        trainer__steps=STEPS,
        checkpoint={"path": f"{quickstart.MOUNT}/checkpoints/{NAME}", "everySteps": SAVE_EVERY, "keep": 2},
        # Only the last one, and on other devices than the run's.
        **({"evaluation": {"every": STEPS, "devicesPerNode": 1}} if LONG else {}),
        restart={"maxInfrastructureRestarts": 3, "backoffSeconds": 1},
        stop={"graceSeconds": GRACE_SECONDS},
    )
    begin, record = time.time(), Record(NAME)
    for record in recorded_run.run_with_faults(kube, job, FAULTS, RUN_SECONDS):  # noqa: B007 - only the last one is used
        pass
    # Time to scrape the end of the run and to evaluate the rules once.
    time.sleep(3 * SCRAPE_SECONDS)
    seen = Seen(kube.namespace, begin, time.time(), record.attempts)
    (KEPT / "seen.json").write_text(json.dumps(asdict(seen)))
    return record, seen
