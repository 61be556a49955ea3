"""From the spool to Prometheus: the families of one scrape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rljob_runtime import figures
from rljob_runtime.contract import ContractError, JobConfig, Phase, Progress
from rljob_runtime.exporter import catalogue
from rljob_runtime.exporter.catalogue import Metric
from rljob_runtime.exporter.text import Family, label_text
from rljob_runtime.spool import Spool

TPS_PREFIX = f"{figures.PREFIX}/tokens_per_second/"
REPLICA_PREFIX = f"{figures.PREFIX}/replica/"
STAGE_PREFIX = "timing_s/"


class Families:
    """Collects samples by metric, each with the job's labels."""

    def __init__(self, job_labels: Mapping[str, str]) -> None:
        self._job_labels = dict(job_labels)
        self._families: dict[str, Family] = {}

    def add(self, metric: Metric, value: float | None, **labels: str) -> None:
        """Add one sample; None is left out."""
        if value is None:
            return
        if set(labels) != set(metric.labels):
            raise ValueError(f"{metric.name} has the labels {metric.labels}, got {sorted(labels)}")
        family = self._families.setdefault(metric.name, Family(metric.name, metric.kind, metric.description))
        family.samples.append((metric.name, label_text(self._job_labels | labels), repr(float(value))))

    def __iter__(self) -> Iterator[Family]:
        """Give the families in the order in which they began."""
        return iter(self._families.values())


def job_labels(config: Path) -> dict[str, str]:
    """Give the labels that name the job; none if job.json is not readable (yet)."""
    try:
        job = JobConfig.from_json(config.read_bytes())
    except (OSError, ContractError):
        return {}
    return {"rljob": job.name, "rljob_namespace": job.namespace}


def collect(spool: Spool, labels: Mapping[str, str]) -> Families:
    """Read the spool once and give everything but vLLM's metrics."""
    families = Families(labels)
    progress = spool.progress()
    if progress is None:
        return families
    _add_progress(families, progress)
    record = spool.last_step(progress.attempt)
    if record is not None:
        _add_step(families, record.metrics)
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
    families.add(catalogue.STEP, progress.step)
    families.add(catalogue.TOTAL_STEPS, progress.total_steps)
    families.add(catalogue.CHECKPOINT_STEP, progress.checkpoint_step)
    families.add(catalogue.CHECKPOINT_TIME, progress.checkpoint_time)
    families.add(catalogue.CHECKPOINT_SECONDS, progress.checkpoint_seconds)
    families.add(catalogue.CHECKPOINT_BYTES, progress.checkpoint_bytes)
    families.add(catalogue.RESUMED_FROM, progress.resumed_from_step)
    families.add(catalogue.MEDIAN_STEP_SECONDS, progress.median_step_seconds)
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


def _add_step(families: Families, metrics: Mapping[str, float]) -> None:
    families.add(catalogue.REWARD, metrics.get("critic/score/mean"))
    families.add(catalogue.FIRST_DP_IDLE, metrics.get(figures.FIRST_DP_IDLE))
    families.add(catalogue.CLUSTER_IDLE, metrics.get(figures.CLUSTER_IDLE))
    families.add(catalogue.STAGE_SECONDS, metrics.get(figures.ROLLOUT_SECONDS), stage="rollout")
    for key, value in metrics.items():
        if key.startswith(TPS_PREFIX):
            stage, tokens, per = key.removeprefix(TPS_PREFIX).split("/")
            families.add(catalogue.TOKENS_PER_SECOND, value, stage=stage, tokens=tokens, per=per)
        elif key.startswith(REPLICA_PREFIX):
            replica, figure = key.removeprefix(REPLICA_PREFIX).split("/")
            metric = catalogue.REPLICA_FINISH if figure == "finish_seconds" else catalogue.REPLICA_REQUESTS
            families.add(metric, value, replica=replica)
        elif key.startswith(STAGE_PREFIX):
            families.add(catalogue.STAGE_SECONDS, value, stage=key.removeprefix(STAGE_PREFIX))
    for key, value in metrics.items():
        if not key.startswith(f"{figures.PREFIX}/"):
            families.add(catalogue.VERL, value, key=key)
