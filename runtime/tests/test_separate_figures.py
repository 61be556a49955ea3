"""Figures of a trainer and a rollout that stand apart, from a step's record to the exporter's page."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rljob_runtime.contract import NodeGroup, Phase, Progress, Role, TrainerMode
from rljob_runtime.exporter import scrape_targets
from rljob_runtime.exporter.scrape import Scrape
from rljob_runtime.spool.spool import Spool, StepRecord
from rljob_runtime.spool.step_metrics import Batch, RolloutWindow
from rljob_runtime.training_attempt import TrainingAttempt
from runtime.tests.conftest import MakeJob


@pytest.fixture
def scrape(spool: Spool, make_job: MakeJob, tmp_path: Path) -> Scrape:
    config = tmp_path / "job.json"
    config.write_bytes(make_job().to_json())
    spool.write_progress(Progress(pod_uid="pod-1", phase=Phase.TRAINING, attempt=2, step=3, total_steps=40))
    return Scrape(spool, config)


def families_of(page: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    return {f.name: [(s.labels, s.value) for s in f.samples] for f in text_string_to_metric_families(page)}


def test_a_trainer_that_stands_apart_has_its_own_devices_and_the_job_all(make_job: MakeJob, spool: Spool) -> None:
    verl = {"perf/total_num_tokens": 80.0, "prompt_length/mean": 1.0, "response_length/mean": 1.0}
    verl |= {"timing_s/step": 10.0, "timing_s/gen": 5.0}
    groups = (NodeGroup("train", Role.TRAINER, 1, 2), NodeGroup("roll", Role.ROLLOUT, 1, 6))
    run = TrainingAttempt(
        make_job(nodes=2, devices=8, groups=groups, dies_per_card=1, mode=TrainerMode.SEPARATE_ASYNC), 1, spool
    )
    seen = [run.own_metrics(verl, RolloutWindow(), Batch()) for _ in range(12)][-1]
    rate = "rljob/tokens_per_second/{}/prompt_and_response/card"
    assert (seen[rate.format("step")], seen[rate.format("trainer")]) == (80 / 10 / 8, 80 / 5 / 2)
    assert (seen["rljob/trainer_wait_ratio/1"], seen["rljob/trainer_wait_ratio/10"]) == (0.5, 0.5)
    together = TrainingAttempt(make_job(), 1, spool).own_metrics(verl, RolloutWindow(), Batch())
    assert not [key for key in together if "trainer" in key]


def test_roles_that_stand_apart_have_series_of_their_own(scrape: Scrape, spool: Spool, make_job: MakeJob) -> None:
    assert not [name for name in families_of(scrape.text()) if name.startswith("rljob_role_")]
    groups = (NodeGroup("train", Role.TRAINER, 1, 4), NodeGroup("roll", Role.ROLLOUT, 2, 8))
    scrape.config.write_bytes(make_job(nodes=3, devices=12, groups=groups, dies_per_card=2).to_json())
    metrics = {
        "rljob/replicas/serving": 3.0,
        "rljob/replicas/wanted": 4.0,
        "rljob/trainer_wait_ratio/1": 0.25,
        "rljob/trainer_wait_ratio/10": 0.5,
        "rljob/tokens_per_second/trainer/response/card": 70.0,
    }
    spool.append_step(2, StepRecord(3, 1.0, metrics))
    seen = families_of(scrape.text())
    job = {"rljob": "sums", "rljob_namespace": "team-a"}
    for name, trainer, rollout in (("nodes", 1.0, 2.0), ("devices", 4.0, 8.0), ("cards", 2.0, 4.0)):
        of_roles = [({**job, "role": "Trainer"}, trainer), ({**job, "role": "Rollout"}, rollout)]
        assert (seen[f"rljob_role_{name}"], seen[f"rljob_{name}"]) == (of_roles, [(job, trainer + rollout)])
    assert seen["rljob_rollout_replicas"] == [({**job, "state": "serving"}, 3.0), ({**job, "state": "wanted"}, 4.0)]
    assert seen["rljob_trainer_wait_ratio"] == [({**job, "steps": "1"}, 0.25), ({**job, "steps": "10"}, 0.5)]
    labels = {**job, "stage": "trainer", "tokens": "response", "per": "card"}
    assert seen["rljob_tokens_per_second"] == [(labels, 70.0)]


def test_a_replica_keeps_its_number_while_others_come_and_go() -> None:
    first = scrape_targets.numbered(["a", "b", "c"], {})
    assert first == {0: "a", 1: "b", 2: "c"}
    without_a = scrape_targets.numbered(["b", "c"], first)
    assert without_a == {1: "b", 2: "c"}
    assert scrape_targets.numbered(["b", "c", "d", "e"], without_a) == {0: "d", 1: "b", 2: "c", 3: "e"}
    assert scrape_targets.numbered(["x", "y"], first) == {0: "x", 1: "y"}, "of another attempt"
    assert scrape_targets.numbered(["a", "a"], {0: "a"}) == {0: "a", 1: "a"}


def test_the_sum_of_a_rollout_continues_when_a_replica_is_lost(
    scrape: Scrape, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{{}} {}\n"
    counts = {"a": 100, "b": 90}
    monkeypatch.setattr(scrape_targets, "read_pages", lambda asked: [page.format(counts[one]) for one in asked])

    def generated() -> dict[str, float]:
        spool.write_rollout_targets(list(counts))
        found = families_of(scrape.text())["vllm:generation_tokens"]
        return {labels["replica"]: value for labels, value in found}

    assert generated() == {"0": 100, "1": 90}
    counts = {"b": 95}
    assert generated() == {"0": 100, "1": 95}
    counts = {"b": 96, "c": 2}
    assert generated() == {"0": 102, "1": 96}
