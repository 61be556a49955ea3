"""Metrics of the requests to reward.judge.

Pure; the judge's router counts them (verl_plugin/router/judge_router.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from rljob_runtime.spool.step_metrics import PREFIX

REQUESTS_PREFIX = f"{PREFIX}/judge_requests/"
"""Then an outcome: `succeeded` or `failed`."""
SECONDS = f"{PREFIX}/judge_request_seconds"
COUNTS_PATH = "rljob/counts"
"""Answered by the router itself; everything else goes to the judge."""


@dataclass(frozen=True)
class JudgeCounts:
    """Requests since the router started."""

    succeeded: int = 0
    failed: int = 0
    seconds: float = 0.0
    """Of all of them together."""
    first_error: str = ""
    """What the first one that failed was answered."""

    def since(self, before: JudgeCounts) -> dict[str, float]:
        """Return the metrics of the requests after an earlier count."""
        succeeded, failed = self.succeeded - before.succeeded, self.failed - before.failed
        found = {f"{REQUESTS_PREFIX}succeeded": float(succeeded), f"{REQUESTS_PREFIX}failed": float(failed)}
        if count := succeeded + failed:
            found[SECONDS] = (self.seconds - before.seconds) / count
        return found
