"""Where vLLM and TransferQueue serve their own metrics, and reading them there.

A replica serves `/metrics` on a random port, so Prometheus cannot find it; verl writes the addresses into a scrape file
(`rollout.prometheus.file`), which the launcher puts into the spool. TransferQueue's address comes from the trainer.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MAX_BYTES = 2 * 1024 * 1024
"""A replica's page is about 60 kB."""
TIMEOUT_SECONDS = 2.0
WORKERS = 128
"""So many that a scrape of hundreds of silent replicas still ends before Prometheus gives up, after 10 s by default."""
SCRAPE_JOB = "rollout"
"""`job_name` of the replicas in verl's file (verl/workers/rollout/utils.py, update_prometheus_config)."""

# The head's HTTP proxy settings, if any, are for the world outside.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def replicas(file: Path) -> list[str]:
    """List the replicas' addresses, in the order of the router; none before verl has written them."""
    import yaml

    try:
        document = yaml.safe_load(file.read_text())
        jobs = {job["job_name"]: job for job in document["scrape_configs"]}
        return [str(address) for group in jobs[SCRAPE_JOB]["static_configs"] for address in group["targets"]]
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return []


def queue(file: Path) -> str | None:
    """Give the address of TransferQueue's metrics; None while there are none."""
    try:
        return file.read_text().strip() or None
    except OSError:
        return None


def read_pages(addresses: Sequence[str]) -> list[str | None]:
    """Read all side by side; None for one that does not answer in time."""
    if not addresses:
        return []
    with ThreadPoolExecutor(min(WORKERS, len(addresses))) as pool:
        return list(pool.map(read_page, addresses))


def read_page(address: str) -> str | None:
    """Read one page of metrics; None if it does not answer."""
    host = address if "://" in address else f"http://{address}"
    try:
        with _OPENER.open(f"{host.rstrip('/')}/metrics", timeout=TIMEOUT_SECONDS) as answer:
            body: bytes = answer.read(MAX_BYTES)
    except (OSError, urllib.error.URLError, ValueError):
        return None
    return body.decode(errors="replace")
