"""Check on the head that the image has what the job's drafts need, before any worker starts.

vLLM raises the same error in each engine (config/speculative.py:812, 0.23.0), minutes later and without naming the
field of the job.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path

from rljob_runtime.contract import ExitCode, JobConfig
from rljob_runtime.outcomes import RefusedError

PACKAGE, EXTENSION = "arctic_inference", "suffix_decoding/_C.*"


def require(job: JobConfig) -> None:
    """Refuse a run whose method of drafts the image lacks (exit 64)."""
    if job.drafts is None or not job.drafts.needs_suffix_trees:
        return
    specification = importlib.util.find_spec(PACKAGE)
    folders = None if specification is None else specification.submodule_search_locations
    if not _has_extension(folders or ()):
        raise RefusedError(
            ExitCode.BAD_CONFIG,
            "ImageUnsuitable",
            "rollout.speculative.method: Suffix needs the suffix trees of arctic-inference, which this image does not "
            "have; install the wheel that images/runtime/suffix_wheel.py builds, or set method to NGram",
        )


def _has_extension(folders: Iterable[str]) -> bool:
    return any(any(Path(folder).glob(EXTENSION)) for folder in folders)
