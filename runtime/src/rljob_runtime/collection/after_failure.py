"""Collect the logs of a failed attempt, before its outcome is published: the operator then deletes the pods.

Runs the command in a process of its own, which ends with the deadline whatever Ray, a driver or a volume does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from rljob_runtime.contract import COLLECT_SECONDS, Collection, ContractError, ExitCode, JobConfig, Outcome
from rljob_runtime.node.ascend_tools import KILL_SECONDS
from rljob_runtime.outcomes import FENCED, MESSAGE_LIMIT, bounded

EXPLAINABLE = frozenset({ExitCode.FAILED, ExitCode.ENVIRONMENT, ExitCode.STALLED, ExitCode.RULE_MATCHED})
"""Ends of a run that its nodes' logs may explain. A rule of the manifest may have matched such an end."""
MARGIN_SECONDS = 2.0
"""The process should end by itself this long before the deadline, at which it is killed."""
COMMAND = (sys.executable, "-m", "rljob_runtime", "collect")


def is_due(job: JobConfig, outcome: Outcome) -> bool:
    """Return whether the logs of an attempt are to be collected. An attempt that lost the volume must not write."""
    failed = outcome.unruled_exit_code is not None or outcome.exit_code != ExitCode.RULE_MATCHED
    return failed and job.log_path is not None and outcome.exit_code in EXPLAINABLE and outcome.reason != FENCED


def collect(outcome: Outcome, command: Sequence[str] = COMMAND, seconds: float = COLLECT_SECONDS) -> Outcome:
    """Collect, and return the outcome with the place of the logs and their diagnosis in its message. Never raises."""
    try:
        done = _run([*command, "--seconds", f"{seconds - MARGIN_SECONDS:g}"], seconds)
    except (OSError, subprocess.SubprocessError, ContractError) as error:
        print(f"rljob: the nodes' logs are not collected: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return outcome
    return dataclasses.replace(outcome, message=with_logs(outcome.message, done))


def with_logs(message: str, done: Collection) -> str:
    """Return a message followed by the diagnosis and the place of the logs, of which nothing is cut."""
    told = f"; ascend-fd: {done.diagnosis}" if done.diagnosis else ""
    if done.files:
        count = len([node for node in done.nodes if node.files])
        told += f"; logs of {count} {'node' if count == 1 else 'nodes'} are in {done.folder}/nodes"
    told = bounded(told)
    room = MESSAGE_LIMIT - len(told)
    if len(message) > room:
        message = f"{message[: max(0, room - 1)]}…"
    return f"{message}{told}"


def _run(command: Sequence[str], seconds: float) -> Collection:
    # Its notes go to the driver's log.
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        said, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        # A process that waits for a hanging volume cannot be killed, and is left behind.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=KILL_SECONDS)
        raise
    lines = said.strip().splitlines()
    if child.returncode != 0 or not lines:
        raise ContractError(f"the collection ended with exit code {child.returncode}")
    return Collection.from_json(lines[-1])
