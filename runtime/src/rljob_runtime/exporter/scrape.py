"""One scrape: our own metrics and those of vLLM and TransferQueue, limited in number.

docs/reference/definitions.md contains the formula that limits the series of a job; `bound` implements it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rljob_runtime.exporter import catalogue, collector, scrape_targets, upstream_metrics, verl_metrics
from rljob_runtime.exporter.aggregator import Aggregator
from rljob_runtime.exporter.collector import MAX_REPLICAS, MAX_STAGES, MAX_UPDATES, MAX_VERL_SERIES, Families
from rljob_runtime.exporter.exposition import Family, render, within_label_limits
from rljob_runtime.exporter.totals import Totals
from rljob_runtime.spool.spool import Spool

VERL_NAMES = frozenset(metric.name for metric in verl_metrics.METRICS)
MAX_VLLM_SUMMED = 1000
"""Series summed over the replicas. vLLM 0.23 has about four hundred."""
MAX_TRANSFER_QUEUE = 300
PLAIN_SERIES = 160
"""Own series that do not grow with the job: one per metric, and phases, node checks, tokens, divisors, states."""
OF_A_REPLICA = 3
"""Own series per replica: finish time, requests, availability."""
OF_AN_UPDATE = 3
"""Own series per update: waiting, fewest and most tokens of a rank."""


def bound(ranks: int) -> int:
    """Return the maximum number of series of a job with `ranks` data-parallel rollout ranks."""
    own = PLAIN_SERIES + 3 * MAX_STAGES + OF_AN_UPDATE * MAX_UPDATES + OF_A_REPLICA * ranks
    vllm = MAX_VLLM_SUMMED + len(upstream_metrics.PER_REPLICA) * ranks
    return own + MAX_VERL_SERIES + vllm + MAX_TRANSFER_QUEUE


@dataclass
class Scrape:
    """State that is kept between scrapes."""

    spool: Spool
    config: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Create the aggregators."""
        kept = frozenset(metric.name for metric in upstream_metrics.PER_REPLICA)
        self._totals = Totals(self.spool)
        self._replicas: dict[int, str] = {}
        self._vllm = Aggregator(
            upstream_metrics.VLLM_PREFIX,
            MAX_VLLM_SUMMED + len(kept) * MAX_REPLICAS,
            "replica",
            kept=kept,
            summed_away=("engine",),
            left_out=frozenset(upstream_metrics.LEFT_OUT),
        )
        self._queue = Aggregator(
            upstream_metrics.TRANSFER_QUEUE_PREFIX,
            MAX_TRANSFER_QUEUE,
            "member",
            summed_away=("storage_unit_id",),
            only=frozenset(metric.name for metric in upstream_metrics.TRANSFER_QUEUE),
        )

    def text(self) -> str:
        """Return the text of one scrape; empty before the first attempt."""
        with self._lock:
            families = collector.collect(self.spool, self._totals, collector.read_job(self.config))
            if not size(families):
                return render([])
            _apply_label_limits(families)
            verl = size(family for family in families if family.name in VERL_NAMES)
            vllm, vllm_dropped = self._vllm.join(self._replica_pages(families), families.job_labels)
            queue, queue_dropped = self._queue.join(self._queue_pages(families), families.job_labels)
            vllm, vllm_dropped = _limited(vllm, vllm_dropped)
            queue, queue_dropped = _limited(queue, queue_dropped)
            served = {"verl": verl, "vllm": size(vllm), "transfer_queue": size(queue)}
            dropped = families.dropped | {"vllm": vllm_dropped, "transfer_queue": queue_dropped}
            for source, count in ({"rljob": size(families) - verl} | served).items():
                families.add(catalogue.SERIES, count, source=source)
                families.add(catalogue.SERIES_DROPPED, dropped[source], source=source)
            return render([*families, *vllm, *queue])

    def _replica_pages(self, families: Families) -> dict[str, str | None]:
        addresses = scrape_targets.replicas(self.spool.rollout_targets_file)
        asked = addresses[:MAX_REPLICAS]
        self._replicas = scrape_targets.numbered(asked, self._replicas)
        found = zip(self._replicas, scrape_targets.read_pages(list(self._replicas.values())), strict=True)
        pages = {str(number): page for number, page in found}
        for replica, page in pages.items():
            families.add(catalogue.REPLICA_UP, float(page is not None), replica=replica)
        if addresses:
            families.add(catalogue.REPLICAS_SKIPPED, len(addresses) - len(asked))
        return pages

    def _queue_pages(self, families: Families) -> dict[str, str | None]:
        address = scrape_targets.queue(self.spool.queue_target_file)
        if address is None:
            return {}
        page = scrape_targets.read_page(address)
        families.add(catalogue.TRANSFER_QUEUE_UP, float(page is not None))
        return {"controller": page}


def _apply_label_limits(families: Families) -> None:
    for family in families:
        kept = within_label_limits(family).samples
        families.dropped["verl" if family.name in VERL_NAMES else "rljob"] += len(family.samples) - len(kept)
        family.samples = kept


def _limited(families: list[Family], dropped: int) -> tuple[list[Family], int]:
    """Return the families within the limits of labels, and the number of series that are left out now."""
    kept = [within_label_limits(family) for family in families]
    return kept, dropped + size(families) - size(kept)


def size(families: Iterable[Family]) -> int:
    """Count the series of families."""
    return sum(len(family.samples) for family in families)
