"""Run other programs with a deadline and an error that contains their output."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.errors import ClusterError

SHOWN_LINES = 25


def run(
    command: Sequence[str | Path],
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    text: str | None = None,
    timeout_seconds: float = 120,
) -> str:
    """Run a command to its end and return its output.

    Raises:
        ClusterError: when it cannot be started, fails, or takes longer than allowed.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
    except FileNotFoundError as error:
        raise ClusterError(
            f"{words[0]} is not installed on this machine; `python -m tests.cluster up` installs it"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"`{' '.join(words)}` did not end within {timeout_seconds:.0f} s") from error
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-SHOWN_LINES:])
        raise ClusterError(f"`{' '.join(words)}` exited with code {done.returncode}:\n{said}")
    return done.stdout


def succeeds(command: Sequence[str | Path], *, timeout_seconds: float = 30) -> bool:
    """Return whether a command exits with code 0."""
    try:
        run(command, timeout_seconds=timeout_seconds)
    except ClusterError:
        return False
    return True
