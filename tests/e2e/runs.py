"""The jobs of the lifecycle tests: the contract driver's or, with RLJOB_E2E_TRAINER=verl, the quickstart's.

`make test` uses the contract driver (tests/contract_driver), which needs neither torch nor verl and starts in seconds.
`make acceptance` runs the same tests with real training. The driver's image contains the files that the required paths
name, so its jobs need neither code nor initializers. Checkpoints and logs are on the quickstart's claim, where
`tests.e2e.recorded_run` reads them.
"""

from __future__ import annotations

import copy
import os
from typing import Any

from rljob.api.texts import write_texts
from tests.e2e import quickstart
from tests.kube import Manifest

VERL = os.environ.get("RLJOB_E2E_TRAINER") == "verl"
CONTRACT_IMAGE = "rljob.local/runtime:contract"
CONTRACT_INPUTS = "/opt/contract"
IMAGE: str = quickstart.rljob()["spec"]["runtime"]["image"] if VERL else CONTRACT_IMAGE
RANK = "WorkerDict" if VERL else "ContractRank"
"""Part of a rank's process title: the class in verl/single_controller (0.9.1) or tests/contract_driver/rank.py."""
DEVICES = 2
SLOWER = 3 if VERL else 1
"""Factor for the timeouts of runs."""
SHORT_STEP_SECONDS = 0.1


def rljob() -> Manifest:
    """Return a job on two devices of one node. Steps of the contract driver take a second."""
    job = copy.deepcopy(quickstart.rljob())
    if VERL:
        return job
    spec = job["spec"]
    spec["runtime"] = {"image": CONTRACT_IMAGE}
    spec["head"]["template"] |= {"cpu": "100m", "memory": "2Gi"}
    spec["workerGroups"][0]["template"] |= {"cpu": "100m", "memory": "2Gi", "sharedMemory": "512Mi"}
    spec["code"] = {"type": "Image"}
    spec["initializers"] = []
    spec["model"] = {"path": f"{CONTRACT_INPUTS}/model"}
    spec["data"] |= {"train": [f"{CONTRACT_INPUTS}/train.parquet"], "validation": []}
    spec["reward"]["path"] = f"{CONTRACT_INPUTS}/reward.py"
    return job | {"spec": spec | pace(1.0)}


def variant(name: str, **fields: Any) -> Manifest:  # noqa: ANN401 - JSON values
    """Return that job with another name and with fields set by path: `trainer__steps=3`."""
    return quickstart.changed(rljob(), name, fields)


def pace(step_seconds: float, **settings: float) -> Manifest:
    """Return the fields that set the duration of a step, three quarters of it rollout. Empty with verl."""
    if VERL:
        return {}
    seconds = {"rollout_seconds": 0.75 * step_seconds, "update_seconds": 0.25 * step_seconds}
    overrides = {f"+contract.{name}": value for name, value in (seconds | settings).items()}
    return write_texts({"verl": {"overrides": overrides}})


def saving(name: str, every: int, **more: Any) -> Manifest:  # noqa: ANN401 - JSON values
    """Return a `spec.checkpoint` with a folder for this job."""
    return {"path": f"{quickstart.MOUNT}/checkpoints/{name}", "everySteps": every, **more}
