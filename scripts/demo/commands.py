"""Run programs for the demo: kubectl, helm and the local cluster's own command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.demo.errors import DemoError

ROOT = Path(__file__).resolve().parents[2]
Manifest = dict[str, Any]


@dataclass(frozen=True)
class Kubernetes:
    """A cluster, through kubectl; a `kubeconfig` of None is the user's own."""

    kubeconfig: Path | None
    kubectl: str = "kubectl"

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment for kubectl and helm."""
        return os.environ if self.kubeconfig is None else {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def run(self, *words: str, text: str | None = None, timeout_seconds: float = 60) -> str:
        """Run kubectl and return its output."""
        return capture((self.kubectl, *words), environment=self.environment, text=text, seconds=timeout_seconds)

    def get(self, *words: str) -> Manifest | None:
        """Get one object or list; None if it does not exist."""
        text = self.run("get", *words, "--ignore-not-found", "--output", "json")
        answer: Manifest | None = json.loads(text) if text.strip() else None
        return answer


def capture(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    text: str | None = None,
    seconds: float = 60,
) -> str:
    """Run a command to its end and return its output; its error message becomes a DemoError."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, input=text, capture_output=True, text=True, timeout=seconds, check=False
        )
    except FileNotFoundError as error:
        raise DemoError(f"{command[0]} is not installed on this machine") from error
    except subprocess.TimeoutExpired as error:
        raise DemoError(f"`{' '.join(command)}` did not end within {seconds:.0f} s") from error
    if done.returncode:
        raise DemoError(f"`{' '.join(command)}` failed:\n{(done.stderr or done.stdout).strip()}")
    return done.stdout


def show(*command: str, seconds: float, environment: Mapping[str, str] | None = None) -> None:
    """Run a command whose own progress the user should see."""
    try:
        code = subprocess.run(command, cwd=ROOT, env=environment, timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired as error:
        raise DemoError(f"`{' '.join(command)}` did not end within {seconds / 60:.0f} minutes") from error
    if code:
        raise DemoError(f"`{' '.join(command)}` exited with code {code}; see its output above")


def cluster(*words: str, seconds: float) -> None:
    """Run a command of the local cluster, showing its progress."""
    show(sys.executable, "-m", "tests.cluster", *words, seconds=seconds)


def cluster_answer(*words: str) -> str:
    """Return the last line that a command of the local cluster prints."""
    printed = capture((sys.executable, "-m", "tests.cluster", *words), seconds=600).strip()
    return printed.splitlines()[-1] if printed else ""
