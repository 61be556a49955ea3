"""Convert the spool into the metric families of one scrape, under our own names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rljob_runtime.contract import ContractError, JobConfig, Phase, Progress
from rljob_runtime.exporter import async_catalogue, catalogue, verl_metrics
from rljob_runtime.exporter.exposition import Family, label_text
from rljob_runtime.exporter.metric import Metric
from rljob_runtime.exporter.totals import Totals, stage_seconds
from rljob_runtime.spool import judge_metrics, prompt_metrics, step_metrics, tool_metrics
from rljob_runtime.spool.spool import Spool

MAX_REPLICAS = 256
MAX_VERL_SERIES = 400
"""verl logs about a hundred metrics; an unusual data set or a model with many layers may add hundreds."""
MAX_STAGES = 32
MAX_UPDATES = 32
"""Updates of a step whose figures are served, the first ones. steps.jsonl has all."""
TPS_PREFIX = f"{step_metrics.PREFIX}/tokens_per_second/"
TOKENS_PREFIX = f"{step_metrics.PREFIX}/tokens/"
REPLICA_PREFIX = f"{step_metrics.PREFIX}/replica/"
PLAIN = {
    "critic/score/mean": catalogue.REWARD,
    step_metrics.VALIDATION_SCORE: catalogue.VALIDATION_SCORE,
    step_metrics.FIRST_DP_IDLE: catalogue.FIRST_DP_IDLE,
    step_metrics.CLUSTER_IDLE: catalogue.CLUSTER_IDLE,
    step_metrics.ROLLOUT_TAIL: catalogue.ROLLOUT_TAIL,
    step_metrics.DISCARDED_TOKENS: catalogue.DISCARDED_TOKENS,
    step_metrics.PADDED_ROWS: catalogue.PADDED_ROWS,
    step_metrics.DENSE_PADDING: catalogue.DENSE_PADDING,
    step_metrics.UPDATES_WAITING: catalogue.UPDATES_WAITING,
    step_metrics.CONTROL_CALL_SECONDS: catalogue.CONTROL_CALL,
    judge_metrics.SECONDS: catalogue.JUDGE_SECONDS,
    prompt_metrics.MIXED_VERSIONS: async_catalogue.MIXED_VERSIONS,
    prompt_metrics.OLDEST_PROMPT: async_catalogue.OLDEST_PROMPT,
}
"""Values without labels of their own."""
LABELLED = {
    f"{step_metrics.PREFIX}/stage_share/": (catalogue.STAGE_SHARE, "stage"),
    TOKENS_PREFIX: (catalogue.STEP_TOKENS, "tokens"),
    tool_metrics.TOOL_CALLS_PREFIX: (catalogue.TOOL_CALLS, "outcome"),
    judge_metrics.REQUESTS_PREFIX: (catalogue.JUDGE_REQUESTS, "outcome"),
    prompt_metrics.STALENESS_PREFIX: (async_catalogue.STALENESS, "versions"),
    prompt_metrics.QUEUE_PREFIX: (async_catalogue.QUEUE, "state"),
    prompt_metrics.PROMPTS_PREFIX: (async_catalogue.PROMPTS, "event"),
    prompt_metrics.DROPPED_PREFIX: (async_catalogue.PROMPTS_DROPPED, "reason"),
    prompt_metrics.REPLICAS_PREFIX: (async_catalogue.ROLLOUT_REPLICAS, "state"),
    step_metrics.WAIT_PREFIX: (async_catalogue.TRAINER_WAIT, "steps"),
}
"""Metrics with one label, which is the rest of the key."""
REPLICA = {"finish_seconds": catalogue.REPLICA_FINISH, "requests": catalogue.REPLICA_REQUESTS}


class Families:
    """Collects samples by metric and adds the job's labels to each."""

    def __init__(self, job_labels: Mapping[str, str]) -> None:
        self.job_labels = dict(job_labels)
        self._families: dict[str, Family] = {}
        self.dropped = {"rljob": 0, "verl": 0}
        """Number of series beyond a limit."""

    def add(self, metric: Metric, value: float | None, **labels: str) -> None:
        """Add one sample, unless it is None."""
        if value is None:
            return
        if set(labels) != set(metric.labels):
            raise ValueError(f"{metric.name} has the labels {metric.labels}, got {sorted(labels)}")
        family = self._families.setdefault(metric.name, Family(metric.name, metric.kind, metric.description))
        family.samples.append((metric.name, label_text(self.job_labels | labels), repr(float(value))))

    def __iter__(self) -> Iterator[Family]:
        """Iterate over the families in order of their first sample."""
        return iter(self._families.values())


def read_job(config: Path) -> JobConfig | None:
    """Read job.json; return None if it is not readable (yet)."""
    try:
        return JobConfig.from_json(config.read_bytes())
    except (OSError, ContractError):
        return None


def collect(spool: Spool, totals: Totals, job: JobConfig | None) -> Families:
    """Return all metrics except those that vLLM and TransferQueue serve themselves."""
    families = Families({"rljob": job.name, "rljob_namespace": job.namespace} if job else {})
    progress = spool.progress()
    if progress is None:
        return families
    if job is not None:
        families.add(catalogue.NODES, job.nodes)
        families.add(catalogue.DEVICES, job.devices)
        families.add(catalogue.CARDS, job.cards)
        for group in job.groups:
            families.add(catalogue.ROLE_NODES, group.nodes, role=group.role.value)
            families.add(catalogue.ROLE_DEVICES, group.devices, role=group.role.value)
            families.add(catalogue.ROLE_CARDS, group.devices / job.dies_per_card, role=group.role.value)
    _add_progress(families, progress)
    totals.catch_up()
    _add_totals(families, totals)
    record = spool.last_step(progress.attempt)
    metrics = {**(totals.validation.metrics if totals.validation else {}), **(record.metrics if record else {})}
    _add_step(families, metrics)
    _add_verl(families, metrics)
    return families


def _add_progress(families: Families, progress: Progress) -> None:
    families.add(
        catalogue.INFO,
        1,
        attempt=str(progress.attempt),
        submission_id=progress.submission_id,
        pod_uid=progress.pod_uid,
    )
    for phase in Phase:
        families.add(catalogue.PHASE, float(phase is progress.phase), phase=phase.value)
    families.add(catalogue.ATTEMPT, progress.attempt)
    families.add(catalogue.ATTEMPT_START, progress.start_time or None)
    families.add(catalogue.STEP, progress.step)
    families.add(catalogue.TOTAL_STEPS, progress.total_steps)
    families.add(catalogue.CHECKPOINT_STEP, progress.checkpoint_step)
    families.add(catalogue.CHECKPOINT_TIME, progress.checkpoint_time)
    families.add(catalogue.CHECKPOINT_SECONDS, progress.checkpoint_seconds)
    families.add(catalogue.CHECKPOINT_BYTES, progress.checkpoint_bytes)
    families.add(catalogue.RESUMED_FROM, progress.resumed_from_step)
    families.add(catalogue.MEDIAN_STEP_SECONDS, progress.median_step_seconds)
    families.add(catalogue.RECORD_SECONDS, progress.record_seconds)
    families.add(catalogue.MEDIAN_ROLLOUT_SECONDS, progress.median_rollout_seconds)
    families.add(catalogue.OBSERVED, progress.observed_time)
    _add_nodes(families, progress)


def _add_nodes(families: Families, progress: Progress) -> None:
    bound, table = progress.core_binding, progress.preflight
    if bound is not None:
        families.add(catalogue.BINDING_NODES, bound.planned_nodes, state="planned")
        families.add(catalogue.BINDING_NODES, bound.nodes - bound.planned_nodes, state="unplanned")
        families.add(catalogue.BINDING_PROCESSES, bound.bound_processes, state="bound")
        families.add(catalogue.BINDING_PROCESSES, bound.strayed_processes, state="strayed")
    for row in table.checks if table is not None else ():
        for result, count in (("passed", row.passed), ("failed", row.failed), ("warned", row.warned)):
            families.add(catalogue.PREFLIGHT, count, check=row.check, result=result)


def _add_totals(families: Families, totals: Totals) -> None:
    families.add(catalogue.ATTEMPTS_TOTAL, len(totals.attempts))
    families.add(catalogue.STEPS_TOTAL, totals.steps)
    for tokens, count in totals.tokens.items():
        families.add(catalogue.TOKENS_TOTAL, count, tokens=tokens)
    for stage, seconds in _stages(families, totals.stage_seconds):
        families.add(catalogue.STAGE_SECONDS_TOTAL, seconds, stage=stage)
    for state, seconds in totals.replica_seconds.items():
        families.add(catalogue.REPLICA_SECONDS_TOTAL, seconds, state=state)
    families.add(catalogue.FIRST_DP_IDLE_TOTAL, totals.first_dp_idle_seconds)
    if totals.validation is not None:
        families.add(catalogue.VALIDATION_STEP, totals.validation.step)


def _add_step(families: Families, metrics: Mapping[str, float]) -> None:
    for key, metric in PLAIN.items():
        families.add(metric, metrics.get(key))
    for stage, seconds in _stages(families, stage_seconds(metrics)):
        families.add(catalogue.STAGE_SECONDS, seconds, stage=stage)
    for key, value in metrics.items():
        if key.startswith(TPS_PREFIX):
            stage, tokens, per = key.removeprefix(TPS_PREFIX).split("/")
            families.add(catalogue.TOKENS_PER_SECOND, value, stage=stage, tokens=tokens, per=per)
        elif key.startswith(REPLICA_PREFIX):
            replica, figure = key.removeprefix(REPLICA_PREFIX).split("/")
            if int(replica) < MAX_REPLICAS:
                families.add(REPLICA[figure], value, replica=replica)
            else:
                families.dropped["rljob"] += 1
        elif key.startswith(step_metrics.UPDATE_PREFIX):
            update, figure = key.removeprefix(step_metrics.UPDATE_PREFIX).split("/")
            _add_update(families, int(update), figure, value)
        else:
            for prefix, (metric, label) in LABELLED.items():
                if key.startswith(prefix):
                    families.add(metric, value, **{label: key.removeprefix(prefix)})


def _add_update(families: Families, update: int, figure: str, value: float) -> None:
    if update >= MAX_UPDATES:
        families.dropped["rljob"] += 1
    elif figure == "waiting_ratio":
        families.add(catalogue.UPDATE_WAITING, value, update=str(update))
    else:
        stat = figure.removeprefix("rank_tokens_")
        families.add(catalogue.UPDATE_RANK_TOKENS, value, update=str(update), stat=stat)


def _stages(families: Families, seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    """Limit the number of stages, because verl defines their names."""
    known = (*step_metrics.STAGES, "step", "testing", "rollout", step_metrics.OTHER)
    ranked = sorted(seconds.items(), key=lambda item: (item[0] not in known, item[0]))
    families.dropped["rljob"] += max(0, len(ranked) - MAX_STAGES)
    return ranked[:MAX_STAGES]


def _add_verl(families: Families, metrics: Mapping[str, float]) -> None:
    named = verl_metrics.named(
        key for key in metrics if not key.startswith((f"{step_metrics.PREFIX}/", step_metrics.STAGE_PREFIX))
    )
    families.dropped["verl"] += max(0, len(named) - MAX_VERL_SERIES)
    for found in named[:MAX_VERL_SERIES]:
        families.add(found.metric, metrics[found.key] * found.factor, **found.labels)
