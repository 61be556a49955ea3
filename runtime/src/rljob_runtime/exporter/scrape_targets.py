"""Find and read the metrics endpoints of vLLM and TransferQueue.

A replica serves `/metrics` on a random port that Prometheus cannot discover. verl writes the addresses into a scrape
file (`rollout.prometheus.file`), which the launcher puts into the spool. The trainer writes TransferQueue's address.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rljob_runtime.spool.spool import ROLLOUT_TARGETS_JOB

MAX_BYTES = 2 * 1024 * 1024
"""A replica's page has about 60 kB."""
TIMEOUT_SECONDS = 2.0
WORKERS = 128
"""Enough to finish a scrape of hundreds of silent replicas within Prometheus's default timeout of 10 s."""

# The pod's HTTP proxy settings, if any, do not apply within the cluster.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def replicas(file: Path) -> list[str]:
    """Return the replicas' addresses in the order of the router; empty until verl has written them."""
    import yaml

    try:
        document = yaml.safe_load(file.read_text())
        jobs = {job["job_name"]: job for job in document["scrape_configs"]}
        return [str(address) for group in jobs[ROLLOUT_TARGETS_JOB]["static_configs"] for address in group["targets"]]
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return []


def numbered(addresses: Sequence[str], before: Mapping[int, str]) -> dict[int, str]:
    """Return the replicas by number, as near to `before` as possible.

    A replica keeps its number while others are lost, because its counters belong to it. A new one gets the lowest that
    is free.
    """
    new, kept = list(addresses), dict[int, str]()
    for number, address in sorted(before.items()):
        if address in new:
            new.remove(address)
            kept[number] = address
    free = [number for number in range(len(addresses)) if number not in kept]
    return dict(sorted([*kept.items(), *zip(free, new, strict=False)]))


def queue(file: Path) -> str | None:
    """Return the address of TransferQueue's metrics, or None."""
    try:
        return file.read_text().strip() or None
    except OSError:
        return None


def read_pages(addresses: Sequence[str]) -> list[str | None]:
    """Read all pages concurrently; None for a server that does not respond in time."""
    if not addresses:
        return []
    with ThreadPoolExecutor(min(WORKERS, len(addresses))) as pool:
        return list(pool.map(read_page, addresses))


def read_page(address: str) -> str | None:
    """Read one metrics page; return None if the server does not respond."""
    host = address if "://" in address else f"http://{address}"
    try:
        with _OPENER.open(f"{host.rstrip('/')}/metrics", timeout=TIMEOUT_SECONDS) as answer:
            body: bytes = answer.read(MAX_BYTES)
    except (OSError, urllib.error.URLError, ValueError):
        return None
    return body.decode(errors="replace")
