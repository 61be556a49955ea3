"""Aggregated pages: what is summed, what continues after a restart, and the maximum number of series."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rljob_runtime.checkpoints.prompt_ledger import PromptLedger
from rljob_runtime.contract import CheckResult, NodeGroup, Phase, Preflight, Progress, Role
from rljob_runtime.exporter import catalogue, scrape_targets, upstream_metrics, verl_metrics
from rljob_runtime.exporter.aggregator import Aggregator, without
from rljob_runtime.exporter.collector import MAX_REPLICAS, MAX_STAGES, MAX_UPDATES, MAX_VERL_SERIES
from rljob_runtime.exporter.exposition import render
from rljob_runtime.exporter.metric import Metric
from rljob_runtime.exporter.scrape import OF_A_REPLICA, OF_AN_UPDATE, PLAIN_SERIES, Scrape, bound
from rljob_runtime.spool import prompt_metrics
from rljob_runtime.spool.prompt_metrics import REPLICAS_SERVING, REPLICAS_WANTED
from rljob_runtime.spool.spool import Spool, StepRecord
from rljob_runtime.spool.step_metrics import UPDATE_PREFIX, WAIT_STEPS, Batch, ReplicaWindow, RolloutWindow
from rljob_runtime.training_attempt import TrainingAttempt
from runtime.tests.conftest import MakeJob

JOBS = 1000
SCRAPE_TIMEOUT_SECONDS = 10.0
"""Prometheus' default (scrape_timeout)."""
RANKS = 256
BUCKETS = 22
HISTOGRAMS = 18
"""As many as in vLLM 0.23, each with at most this many buckets."""


def counting(value: float, running: int = 1) -> str:
    return f"""# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="m"}} {value}
# TYPE vllm:generation_tokens_created gauge
vllm:generation_tokens_created{{engine="0",model_name="m"}} 1.7e9
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} {value}
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{{engine="0",model_name="m",reason="capacity"}} {running}
"""


def vllm(limit: int = 100) -> Aggregator:
    return Aggregator(
        "vllm:", limit, "replica", kept=frozenset({"vllm:generation_tokens_total"}), summed_away=("engine",)
    )


def served(proxy: Aggregator, pages: dict[str, str | None]) -> dict[str, float]:
    families, _ = proxy.join(pages, {"rljob": "sums"})
    return {line.split(" ")[0]: float(line.split(" ")[1]) for line in render(families).splitlines() if line[:1] != "#"}


KEPT = 'vllm:generation_tokens_total{engine="0",model_name="m",replica="%d",rljob="sums"}'
SUM = 'vllm:prefix_cache_hits_total{model_name="m",rljob="sums"}'
NOW = 'vllm:num_requests_waiting_by_reason{model_name="m",reason="capacity",rljob="sums"}'


def test_families_are_kept_by_member_or_summed() -> None:
    seen = served(vllm(), {"0": counting(5, 2), "1": counting(7, 3)})
    assert seen == {KEPT % 0: 5.0, KEPT % 1: 7.0, SUM: 12.0, NOW: 5.0}


def test_counters_continue_when_the_member_restarts() -> None:
    proxy = vllm()
    served(proxy, {"0": counting(100)})
    seen = served(proxy, {"0": counting(3)})
    assert (seen[KEPT % 0], seen[SUM]) == (103.0, 103.0)
    seen = served(proxy, {"0": counting(4)})
    assert (seen[KEPT % 0], seen[SUM]) == (104.0, 104.0)


def test_a_member_that_does_not_answer_keeps_its_counters_and_loses_its_gauges() -> None:
    proxy = vllm()
    served(proxy, {"0": counting(100), "1": counting(50)})
    assert served(proxy, {"0": counting(101), "1": None}) == {KEPT % 0: 101.0, KEPT % 1: 50.0, SUM: 151.0, NOW: 1.0}
    assert served(proxy, {}) == {KEPT % 0: 101.0, KEPT % 1: 50.0, SUM: 151.0}


def test_a_new_life_counts_series_that_its_page_does_not_have_yet() -> None:
    proxy = vllm()
    served(proxy, {"0": counting(100)})
    seen = served(
        proxy,
        {"0": '# TYPE vllm:prefix_cache_hits_total counter\nvllm:prefix_cache_hits_total{engine="0",model_name="m"} 1'},
    )
    assert (seen[KEPT % 0], seen[SUM]) == (100.0, 101.0)


def test_over_the_limit_whole_families_are_left_out_and_counted() -> None:
    families, dropped = vllm(limit=3).join({"0": counting(1), "1": counting(1), "2": counting(1)}, {})
    assert ([family.name for family in families], dropped) == (["vllm:generation_tokens_total"], 2)


def test_what_is_no_number_is_served_as_such() -> None:
    text = '# TYPE vllm:prefix_cache_hits_total counter\nvllm:prefix_cache_hits_total{engine="0"} many'
    families, _ = vllm().join({"0": text}, {})
    assert [sample[2] for family in families for sample in family.samples] == ["nan"]


@pytest.mark.parametrize(
    ("labels", "left"),
    [
        ('engine="0",model_name="m"', 'model_name="m"'),
        ('a="x,engine=\\"0\\"",engine="0"', 'a="x,engine=\\"0\\""'),
        ("", ""),
    ],
)
def test_a_label_is_taken_out_of_a_label_text(labels: str, left: str) -> None:
    assert without(labels, ("engine",)) == left


def rank_page(rank: int) -> str:
    """Return a page as large as vLLM's, for one rank."""
    label = 'engine="0",model_name="m"'
    lines = [
        f"# TYPE {metric.name} {metric.kind}\n{metric.name}{{{label}}} {rank}"
        for metric in upstream_metrics.PER_REPLICA
    ]
    for histogram in range(HISTOGRAMS):
        name = f"vllm:histogram_{histogram}_seconds"
        lines.append(f"# TYPE {name} histogram")
        lines += [f'{name}_bucket{{{label},le="{bucket}"}} {rank}' for bucket in range(BUCKETS)]
        lines += [f"{name}_{end}{{{label}}} {rank}" for end in ("sum", "count")]
    return "\n".join(lines)


def big_step(run: TrainingAttempt) -> dict[str, float]:
    """Return a step of a job with many ranks, all known metrics of verl, and too many unknown ones."""
    verl = {row.key.replace("{", "").replace("}", ""): 1.0 for row in verl_metrics.ROWS}
    verl |= {f"layer/{number}": 1.0 for number in range(1000)}
    verl |= {f"timing_s/part_{number}": 1.0 for number in range(100)}
    verl |= {"perf/total_num_tokens": 1.0, "prompt_length/mean": 1.0, "response_length/mean": 1.0, "timing_s/step": 9.0}
    verl["timing_s/gen"] = 1.0
    replicas = {str(rank): ReplicaWindow(0.0, 1.0 + rank, 1) for rank in range(RANKS + 10)}
    names = ("waiting_ratio", "rank_tokens_min", "rank_tokens_max")
    verl |= {f"{UPDATE_PREFIX}{number}/{name}": 1.0 for number in range(MAX_UPDATES + 10) for name in names}
    figures = [run.own_metrics(verl, RolloutWindow(replicas, 1.0), Batch(rows=8)) for _ in range(WAIT_STEPS)]
    prompts = prompt_metrics.prompts(PromptLedger(), 0) | prompt_metrics.queue([{"global_steps": 1}], 9)
    ages = prompt_metrics.staleness([{"min_global_steps": age, "max_global_steps": 9} for age in range(9)], 9)
    return verl | figures[-1] | prompts | ages | {REPLICAS_SERVING: 1.0, REPLICAS_WANTED: 2.0}


def by_source(samples: list[str], metric: Metric) -> dict[str, float]:
    rows = [line.rsplit(" ", 1) for line in samples if line.startswith(f"{metric.name}{{")]
    return {labels.split('source="')[1].split('"')[0]: float(value) for labels, value in rows}


def test_series_of_a_job_stay_within_the_documented_bound(
    make_job: MakeJob, spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = (NodeGroup("train", Role.TRAINER, 8, 64), NodeGroup("roll", Role.ROLLOUT, 8, 64))
    job, config = make_job(nodes=16, devices=128, groups=groups), tmp_path / "job.json"
    config.write_bytes(job.to_json())
    checks = tuple(CheckResult(f"check {number}", 1, 0, 0, "") for number in range(16))
    progress = Progress("p", Phase.TRAINING, attempt=1, start_time=1.0, preflight=Preflight(8, 1.0, checks))
    spool.write_progress(progress)
    spool.append_step(1, StepRecord(1, 1.0, big_step(TrainingAttempt(job, 1, spool))))
    monkeypatch.setattr(scrape_targets, "replicas", lambda _: [str(rank) for rank in range(RANKS)])
    monkeypatch.setattr(scrape_targets, "read_pages", lambda asked: [rank_page(int(rank)) for rank in asked])
    samples = [line for line in Scrape(spool, config).text().splitlines() if line[:1] != "#"]
    print(f"{RANKS} ranks: {len(samples)} series, at most {bound(RANKS)}; {JOBS} jobs: {JOBS * len(samples)}")
    of_vllm = RANKS * len(upstream_metrics.PER_REPLICA) + HISTOGRAMS * (BUCKETS + 2)
    assert of_vllm < len(samples) <= bound(RANKS)
    sizes, dropped = by_source(samples, catalogue.SERIES), by_source(samples, catalogue.SERIES_DROPPED)
    # The rows about series were added after counting.
    assert sum(sizes.values()) == len(samples) - len(sizes) - len(dropped)
    assert (sizes["vllm"], sizes["verl"]) == (of_vllm, MAX_VERL_SERIES)
    assert sizes["rljob"] + 8 <= PLAIN_SERIES + 3 * MAX_STAGES + OF_AN_UPDATE * MAX_UPDATES + OF_A_REPLICA * RANKS
    assert dropped["verl"] > 600
    assert dropped["rljob"] > 2 * 10 + OF_AN_UPDATE * 10
    assert dropped["vllm"] == 0


def test_the_documented_bound_is_the_codes() -> None:
    text = (Path(__file__).parents[2] / "docs/reference/definitions.md").read_text()
    assert f"{bound(0):,} + {bound(1) - bound(0)} R" in text
    assert f"{bound(RANKS):,} series" in text
    assert f"{JOBS * bound(RANKS):,}" in text
    assert MAX_REPLICAS == RANKS


def test_a_scrape_ends_before_prometheus_gives_up_though_no_member_answers() -> None:
    rounds = math.ceil(MAX_REPLICAS / scrape_targets.WORKERS) + 1
    assert rounds * scrape_targets.TIMEOUT_SECONDS <= 0.8 * SCRAPE_TIMEOUT_SECONDS, "replicas, then TransferQueue"
