"""vLLM's own metrics: read from each replica and served under their own names with a label `replica`.

A replica serves `/metrics` on a random port, so Prometheus cannot find it; verl writes the addresses into a scrape file
(`rollout.prometheus.file`), which the launcher puts into the spool.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rljob_runtime.exporter import catalogue
from rljob_runtime.exporter.metrics import Families
from rljob_runtime.exporter.text import Family, join, label_text, parse

MAX_REPLICAS = 64
MAX_BYTES = 2 * 1024 * 1024
"""A replica's page is about 60 kB."""
TIMEOUT_SECONDS = 2.0
WORKERS = 8
SCRAPE_JOB = "rollout"
"""`job_name` of the replicas in verl's file (verl/workers/rollout/utils.py, update_prometheus_config)."""

# The head's HTTP proxy settings, if any, are for the world outside.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def targets(file: Path) -> list[str]:
    """List the replicas' addresses; none before verl has written them."""
    import yaml

    try:
        document = yaml.safe_load(file.read_text())
        jobs = {job["job_name"]: job for job in document["scrape_configs"]}
        return [str(address) for group in jobs[SCRAPE_JOB]["static_configs"] for address in group["targets"]]
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return []


def scrape(addresses: list[str], labels: Mapping[str, str], families: Families) -> dict[str, Family]:
    """Read all replicas side by side; what does not answer in time is marked down and left out."""
    asked = addresses[:MAX_REPLICAS]
    joined: dict[str, Family] = {}
    if not asked:
        return joined
    with ThreadPoolExecutor(WORKERS) as pool:
        pages = list(pool.map(read_page, asked))
    for index, page in enumerate(pages):
        families.add(catalogue.REPLICA_UP, float(page is not None), replica=str(index))
        if page is not None:
            extra = label_text({**labels, "replica": str(index)})
            join(joined, parse(page, catalogue.VLLM_PREFIX, extra))
    families.add(catalogue.REPLICAS_SKIPPED, len(addresses) - len(asked))
    return joined


def read_page(address: str) -> str | None:
    """Read one replica's metrics; None if it does not answer."""
    host = address if "://" in address else f"http://{address}"
    try:
        with _OPENER.open(f"{host.rstrip('/')}/metrics", timeout=TIMEOUT_SECONDS) as answer:
            body: bytes = answer.read(MAX_BYTES)
    except (OSError, urllib.error.URLError, ValueError):
        return None
    return body.decode(errors="replace")
