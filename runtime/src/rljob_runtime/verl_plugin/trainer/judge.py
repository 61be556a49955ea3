"""The judge of a run, for its trainer: where verl creates what belongs to it, and what its router has counted."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from typing import TYPE_CHECKING

from rljob_runtime.spool.judge_metrics import COUNTS_PATH, JudgeCounts

if TYPE_CHECKING:
    from omegaconf import DictConfig

READ_SECONDS = 5.0
# The pod's HTTP proxy settings, if any, do not apply within the cluster.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def creating(config: DictConfig, *, apart: bool) -> Iterator[None]:
    """Let verl create reward workers and a judge within the block; `apart`: the nodes of the job have roles."""
    with ExitStack() as stack:
        if apart:
            from verl.experimental.reward_loop import reward_loop

            from rljob_runtime.verl_plugin.platform import role_nodes

            stack.enter_context(role_nodes.spread_over_trainers(reward_loop))
        if config.reward.reward_model.enable:
            from rljob_runtime.verl_plugin.router import judge_router

            stack.enter_context(judge_router.counting())
        yield


class StepCounts:
    """Reads what the router has counted since the step before."""

    def __init__(self, address: str | None, note: Callable[[str], None]) -> None:
        self._address, self._note = address, note
        self._last = JudgeCounts()

    def take(self) -> dict[str, float]:
        """Return the metrics; nothing without a judge, or from a router that does not answer, which is noted."""
        if self._address is None:
            return {}
        try:
            with _OPENER.open(f"http://{self._address}/{COUNTS_PATH}", timeout=READ_SECONDS) as answer:
                now = JudgeCounts(**json.load(answer))
        except (OSError, HTTPException, ValueError, TypeError) as error:
            self._note(f"the judge's router did not answer, so the counts of its requests are missing: {error}")
            return {}
        found = now.since(self._last)
        if now.failed > self._last.failed and not self._last.failed:
            self._note(f"the judge failed for the first time: {now.first_error}")
        self._last = now
        return found
