"""One real replica of verl with vLLM on CPUs: what fits into it, and how its requests end at an abort."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.verl_plugin import cpu_defaults

REQUESTS = 1_200
UPSTREAM_LIMIT = 1_000
"""Of calls to a replica (verl 0.9.1, workers/rollout/replica.py:257-260)."""
SECONDS = 300.0
PROCESS = Path(__file__).parent / "replica_process.py"


def measured(whose: str) -> dict[str, Any]:
    """Return what a replica did, of verl's own class or of ours."""
    with tempfile.TemporaryDirectory(prefix="rlr-", dir="/tmp") as folder:
        words = [sys.executable, str(PROCESS), str(REQUESTS), whose, folder]
        environment = {**os.environ, **cpu_defaults.ENVIRONMENT}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found


def test_every_request_reaches_the_engine_and_ends_at_an_abort() -> None:
    ours = measured("ours")
    # verl's own replica holds a thousand of them, and answers the abort when each of these has a token.
    assert ours["peak"] == REQUESTS > UPSTREAM_LIMIT
    assert (ours["aborted"], ours["completed"]) == (REQUESTS, 0)
    # It was asked for its address while it held them, and its engine counted what it computed; CPUs have no graphs.
    assert ours["control_seconds"] is not None
    assert ours["tokens_of_steps"]["computed NONE"] > REQUESTS
    assert ours["tokens_of_steps"]["padding NONE"] == 0


@pytest.mark.skipif(not os.environ.get("RLJOB_COMPARE"), reason="RLJOB_COMPARE asks for the comparison with verl's own")
def test_verls_own_replica_for_comparison() -> None:
    ours, theirs = measured("ours"), measured("verl")
    print(f"verl's replica: {theirs}\nours: {ours}")  # for docs/benchmarks.md
    assert theirs["peak"] == UPSTREAM_LIMIT
    assert theirs["completed"] > REQUESTS / 2
    assert ours["completed"] == 0
