"""The names of all series that dashboards and rules may read: ours from the code, others from their sources."""

from __future__ import annotations

import re

import yaml

from rljob.telemetry.metrics import Metrics
from rljob_runtime.exporter.catalogue import CATALOGUE
from rljob_runtime.exporter.upstream_metrics import TRANSFER_QUEUE
from tests.monitoring.prometheus import ROOT, SCRAPE_CONFIG

HISTOGRAM = ("_bucket", "_sum", "_count")
NPU = r"npu_chip_\w+|machine_(unhealthy_|healthy_)?npu_nums"
"""Series of npu-exporter."""
VLLM = r"vllm:\w+"


def _own() -> set[str]:
    families = list(Metrics().registry.collect())
    operator = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    buckets = {family.name + suffix for family in families if family.type == "histogram" for suffix in HISTOGRAM}
    queue = {row.name for row in TRANSFER_QUEUE}
    queue |= {row.name + suffix for row in TRANSFER_QUEUE if row.kind == "histogram" for suffix in HISTOGRAM}
    return operator | buckets | queue | {row.name for row in CATALOGUE} | _recorded()


def _recorded() -> set[str]:
    groups = yaml.safe_load((ROOT / "charts/rljob-operator/files/rules.yaml").read_text())["groups"]
    return {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}


def _ray() -> str:
    """Return the series of Ray that the scrape configuration keeps."""
    jobs = yaml.safe_load(SCRAPE_CONFIG.read_text())["scrape_configs"]
    ray = next(job for job in jobs if job["job_name"] == "rljob-ray")
    kept: str = next(row["regex"] for row in ray["metric_relabel_configs"] if row["action"] == "keep")
    return kept


KNOWN = re.compile("|".join([*map(re.escape, sorted(_own())), NPU, VLLM, _ray(), "up"]))
