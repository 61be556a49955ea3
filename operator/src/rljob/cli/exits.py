"""The exit codes of all commands, in one table; docs/reference/cli.md shows it."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """How a command ended."""

    SUCCESS = 0
    NEGATIVE = 1
    USAGE = 2
    DEGRADED = 3
    NOT_FOUND = 4
    DENIED = 5
    UNREACHABLE = 6
    INCOMPLETE = 7
    REFUSED = 64
    INTERRUPTED = 130


MEANING = {
    Exit.SUCCESS: "the command did what it says",
    Exit.NEGATIVE: "the answer is no: a job is invalid, failed or does not fit; files differ; a check failed",
    Exit.USAGE: "the command cannot be run: its arguments, a file, or a state of the job that does not allow it",
    Exit.DEGRADED: "`check-image`: the image runs jobs with restrictions, or has what this project has not tried",
    Exit.NOT_FOUND: "the cluster has no such job, recipe, namespace or pod",
    Exit.DENIED: "the cluster does not know the caller, such as after a login has expired, or forbids the request",
    Exit.UNREACHABLE: "the API server does not answer",
    Exit.INCOMPLETE: "the cluster lacks what the command needs: the CRDs of RLJob, KubeRay or Kueue",
    Exit.REFUSED: "`check-image`: the image cannot run jobs",
    Exit.INTERRUPTED: "interrupted by Ctrl-C",
}
"""Meaning of each code. `rljob exec` returns the code of the command that it runs."""
