"""The quickstart in each asynchronous mode, killed and suspended, and the examples of agent and judge, to a reward."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e import quickstart, recorded_run
from tests.e2e.recorded_run import Record, volume
from tests.e2e.shared import FAULTS, ROOT
from tests.kube import Kube, Manifest

pytestmark = [pytest.mark.e2e, pytest.mark.training, pytest.mark.timeout(1800)]

STEPS, BATCH, ROWS = 40, 32, 640
RUN_SECONDS = 1500
WORKER = quickstart.rljob()["spec"]["workerGroups"][0]["template"]
SMALL = WORKER | {"cpu": "300m", "memory": "4Gi", "sharedMemory": "1Gi"}
GROUPS = [
    {"name": "train", "roles": ["Trainer"], "nodes": 1, "devicesPerNode": 1, "template": SMALL},
    {"name": "generate", "roles": ["Rollout"], "nodes": 2, "devicesPerNode": 1, "template": SMALL},
]
APART = ((6, recorded_run.lose_trainer), (13, recorded_run.suspend), (20, recorded_run.lose_rollout))
"""The last one begins no attempt."""
MODES: dict[str, tuple[tuple[tuple[int, recorded_run.Fault], ...], dict[str, Any]]] = {
    "ColocateAsync": (FAULTS, {}),
    "SeparateAsync": (APART, {"workerGroups": GROUPS, "trainer__miniBatchSize": BATCH // 2}),
}
GUIDES = ROOT / "docs/guides"


def rewards(record: Record) -> list[float]:
    return [line["metrics"]["critic/score/mean"] for line in record.lines]


def ended(kube: Kube, job: Manifest, *faults: tuple[int, recorded_run.Fault]) -> Record:
    record = Record("")
    for record in recorded_run.run_with_faults(kube, job, faults, RUN_SECONDS):  # noqa: B007 - the last one is used
        pass
    return record


@pytest.fixture(scope="module", params=MODES)
def asynchronous(request: pytest.FixtureRequest, kube: Kube) -> Iterator[tuple[Record, Path]]:
    """Return the run, and the folder of its checkpoints on this machine."""
    mode = str(request.param)
    faults, fields = MODES[mode]
    name, folder = mode.lower(), f"checkpoints/{mode}"
    job = quickstart.variant(
        name,
        trainer__mode=mode,
        trainer__steps=STEPS,
        checkpoint={"path": f"{quickstart.MOUNT}/{folder}", "everySteps": 1},
        restart={"maxInfrastructureRestarts": 3, "backoffSeconds": 1},
        **fields,
    )
    yield ended(kube, job, *faults), volume(kube) / folder
    kube.delete("rljob", name)


def test_prompts_in_flight_do_not_keep_the_quickstart_from_its_reward(asynchronous: tuple[Record, Path]) -> None:
    reached = rewards(asynchronous[0])
    first, last = statistics.mean(reached[:5]), statistics.mean(reached[-5:])
    print(f"reward: first five {first:.3f}, last five {last:.3f}")
    assert last >= max(first + 0.2, 0.75)


def test_neither_kill_nor_suspension_loses_or_repeats_a_prompt(asynchronous: tuple[Record, Path]) -> None:
    record, folder = asynchronous
    assert len(record.attempts) == len(FAULTS) + 1
    assert {line["metrics"]["rljob/prompts/unaccounted"] for line in record.lines} == {0}
    ledgers = [json.loads((folder / f"global_step_{step}/prompts.json").read_text()) for step in range(1, STEPS + 1)]
    last = ledgers[-1]
    assert sum(last["dropped"].values()) == 0
    trained = [tuple(row) for ledger in ledgers for row in ledger["trainedRows"]]
    rows = [*trained, *((epoch, row) for _, epoch, row, *_ in last["inFlight"])]
    assert len(trained) == STEPS * BATCH
    # Each epoch has its own order, so of the last one only the number of rows is known.
    assert len(set(rows)) == len(rows) == last["fetched"]
    whole, rest = divmod(last["fetched"], ROWS)
    assert Counter(epoch for epoch, _ in rows) == Counter({**dict.fromkeys(range(whole), ROWS), whole: rest})


def example(kube: Kube, page: Path) -> Iterator[Record]:
    """Run the example of a page to its end. The records of a run are read from the quickstart's claim."""
    manifest = re.search(r"kubectl apply -f (examples/\S+)", page.read_text())
    assert manifest is not None
    text = re.sub(r"claimName: \w+", f"claimName: {quickstart.CLAIM}", (ROOT / manifest[1]).read_text())
    documents = [document for document in yaml.safe_load_all(text) if document["kind"] != "PersistentVolumeClaim"]
    kube.apply(*documents[1:])
    yield ended(kube, documents[0])
    kube.delete("rljob", documents[0]["metadata"]["name"])


@pytest.fixture(scope="module")
def agent(kube: Kube) -> Iterator[Record]:
    yield from example(kube, GUIDES / "agents.md")


@pytest.fixture(scope="module")
def judge(kube: Kube) -> Iterator[Record]:
    yield from example(kube, GUIDES / "reward.md")


def test_the_agent_learns_that_calling_pays(agent: Record) -> None:
    reached, calls = rewards(agent), [line["metrics"]["rljob/tool_calls/succeeded"] for line in agent.lines]
    first, last = statistics.mean(reached[:3]), statistics.mean(reached[-3:])
    print(f"reward: first three {first:.3f}, last three {last:.3f}; calls: first {calls[0]}, last {calls[-1]}")
    assert last >= first + 0.2
    assert calls[-1] > 1.3 * calls[0]
    # A call with arguments of another name fails, and is the model's mistake.
    assert sum(line["metrics"]["rljob/tool_calls/failed"] for line in agent.lines) < 0.01 * sum(calls)


def test_the_model_learns_from_the_verdicts_of_a_judge(judge: Record) -> None:
    reached = rewards(judge)
    metrics = [line["metrics"] for line in judge.lines]
    first, last = statistics.mean(reached[:5]), statistics.mean(reached[-5:])
    waits = statistics.mean(one["rljob/judge_request_seconds"] for one in metrics)
    print(f"the judge's verdict: first five {first:.3f}, last five {last:.3f}; a request takes {waits:.2f} s")
    assert last >= max(first + 0.2, 0.75)
    assert {one["rljob/judge_requests/failed"] for one in metrics} == {0}
    assert {one["rljob/judge_requests/succeeded"] for one in metrics} == {BATCH * 8}
