"""What the end of a Ray job means when the exporter did not report the launcher's outcome.

The launcher prints its Outcome as the last line of the driver's log; without it, Ray's state and exit code decide.
"""

from __future__ import annotations

import re
from dataclasses import replace

from rljob.core.observed import RayJob, RayJobState
from rljob.core.reasons import Reason
from rljob_runtime.contract import ContractError, ExitCode, Outcome

WORD = r"[A-Za-z]([A-Za-z0-9_]{0,100}[A-Za-z0-9])?"
"""Format of a reason in conditions and events; anything else is replaced."""
LAST_STEP_MAX = 2_147_483_647
EXIT_CODE_MAX = 2_147_483_647
RULE_LIMIT = 1024
NODES_LIMIT = 8
NODE = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
"""A node's name: a DNS-1123 subdomain."""
TAIL_LIMIT = 1500
"""Characters of the log in a condition's message."""


def outcome_of(ray_job: RayJob, last_step: int) -> Outcome:
    """Return the outcome of a Ray job that ended."""
    reported = _from_log(ray_job.log_tail)
    # A reward function may print anything as well: an outcome that contradicts Ray's state is not the launcher's.
    if reported is not None and (reported.exit_code == ExitCode.DONE) == (ray_job.state is RayJobState.SUCCEEDED):
        return plausible_outcome(reported)
    if ray_job.state is RayJobState.SUCCEEDED:
        return Outcome(exit_code=ExitCode.DONE, reason=Reason.SUCCEEDED, message="", last_step=last_step)
    reason = Reason.DRIVER_STOPPED if ray_job.state is RayJobState.STOPPED else Reason.DRIVER_FAILED
    code = _bounded(ray_job.driver_exit_code) if ray_job.driver_exit_code is not None else int(ExitCode.FAILED)
    tail = ray_job.log_tail.strip() or ray_job.message.strip()
    message = f"exit code {code}: {tail[-TAIL_LIMIT:]}" if tail else f"exit code {code}"
    return Outcome(exit_code=code, reason=reason, message=message, last_step=last_step)


def plausible_outcome(outcome: Outcome) -> Outcome:
    """Bring an outcome that a pod reported into the bounds of the status."""
    reason = outcome.reason if re.fullmatch(WORD, outcome.reason) else ""
    # The user looks for the name of the rule, and the status shows no other part of the outcome.
    unnamed = outcome.rule is not None and outcome.rule not in outcome.message
    message = f"rule {outcome.rule}: {outcome.message}" if unnamed else outcome.message
    nodes = tuple(node for node in dict.fromkeys(outcome.nodes) if re.fullmatch(NODE, node))
    return replace(
        outcome,
        exit_code=_bounded(outcome.exit_code),
        reason=reason,
        message=message,
        rule=outcome.rule and outcome.rule[:RULE_LIMIT],
        last_step=min(max(outcome.last_step, 0), LAST_STEP_MAX),
        unruled_exit_code=None if outcome.unruled_exit_code is None else _bounded(outcome.unruled_exit_code),
        nodes=nodes[:NODES_LIMIT],
        suspect=outcome.suspect if re.fullmatch(NODE, outcome.suspect or "") else None,
    )


def _bounded(exit_code: int) -> int:
    return min(max(exit_code, -EXIT_CODE_MAX), EXIT_CODE_MAX)


def _from_log(log_tail: str) -> Outcome | None:
    lines = log_tail.strip().splitlines()
    for line in reversed(lines[-20:]):
        if line.startswith("{"):
            try:
                return Outcome.from_json(line)
            except ContractError:
                continue
    return None
