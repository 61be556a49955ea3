"""One object from the cluster, through kubectl: it knows every way to sign in, and whoever has RLJobs has it."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

from rljob.cli.errors import UsageError

TIMEOUT_SECONDS = 20


def get_job(name: str, namespace: str | None, context: str | None) -> dict[str, Any]:
    """GET an RLJob with the current kubeconfig."""
    if shutil.which("kubectl") is None:
        raise UsageError("kubectl is not on the PATH; `rljob status` reads the cluster through it")
    words = ["kubectl", "get", "rljobs.rljob.dev", name, "--output", "json"]
    words += ["--namespace", namespace] if namespace else []
    words += ["--context", context] if context else []
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"kubectl gave no answer within {TIMEOUT_SECONDS} s; is the cluster up?") from error
    if done.returncode:
        raise UsageError(f"kubectl: {done.stderr.strip() or done.stdout.strip()}")
    manifest: dict[str, Any] = json.loads(done.stdout)
    return manifest
