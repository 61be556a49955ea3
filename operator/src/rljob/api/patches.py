"""The bodies of the JSON merge patches by which users suspend, resume, stop and restart a job.

The command line and the Python client send them (Content-Type application/merge-patch+json). Pure, and without the
models of the API, because a command line loads them only where it reads a spec.
"""

from __future__ import annotations

from typing import Any

from rljob.api.group import RESTART

Patch = dict[str, Any]


def suspend() -> Patch:
    """Return the patch that saves a checkpoint and releases the NPUs."""
    return {"spec": {"suspend": True}}


def resume() -> Patch:
    """Return the patch that lets a suspended job run again."""
    return {"spec": {"suspend": False}}


def stop(*, now: bool = False) -> Patch:
    """Return the patch that ends a job for good: after a checkpoint, or with `now` without one."""
    return {"spec": {"stop": {"requested": True, **({"mode": "Immediate"} if now else {})}}}


def restart(value: str) -> Patch:
    """Return the patch that restarts a run from a checkpoint; each value, such as the present time, acts once."""
    return {"metadata": {"annotations": {RESTART: value}}}
