"""The functions of the pure core that `control` calls, as one value that tests can replace."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import datetime

from rljob.api.status import RLJobStatus
from rljob.core.derived import Derived
from rljob.core.launcher import LauncherOf
from rljob.core.observed import Observed, RayJob, Unseen
from rljob.core.plan import Plan
from rljob.core.reconcile import await_turn, begins, reconcile, required
from rljob.core.requirements import Requirements, needs_evidence, needs_ray_job
from rljob.core.watched import Watched
from rljob.render.accelerator_table import AcceleratorTable
from rljob_runtime.contract import Progress


@dataclass(frozen=True)
class Core:
    """What decides: launcher, accelerator table, and functions that are the real ones unless a test replaces them."""

    launcher: LauncherOf
    accelerators: AcceleratorTable

    required: Callable[[Watched], Requirements] = required
    needs_ray_job: Callable[[Progress | Unseen, datetime], bool] = needs_ray_job
    reconcile: Callable[[Observed, datetime, LauncherOf, AcceleratorTable, Derived], Plan] = reconcile
    begins: Callable[[Observed, datetime, LauncherOf, AcceleratorTable, Derived], Generator[None, None, bool]] = begins
    await_turn: Callable[[Observed, datetime, LauncherOf, AcceleratorTable, Derived], Plan] = await_turn
    needs_evidence: Callable[[Progress | Unseen, RayJob | Unseen | None, RLJobStatus | None], bool] = needs_evidence
