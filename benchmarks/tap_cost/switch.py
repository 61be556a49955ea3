"""Turn the taps of a run on and off from step to step, and time them. verl itself loads this module into its processes.

verl imports the modules in VERL_USE_EXTERNAL_MODULES wherever it is imported. In the trainer's process the hooks of our
trainer are timed, minus the time of verl's own methods within them. With the taps off they do not ask the router,
compute no metrics and write no records. In the router's process, the clock of the replicas is timed, and stopped with
the taps off. What a run needs in any case (the data's position, stop requests) continues, and is timed too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from benchmarks.tap_cost.figures import is_on
from benchmarks.tap_cost.shared import FOLDER_VARIABLE, STEPS_FILE, Holder, Shared
from rljob_runtime.spool.step_metrics import RolloutWindow
from rljob_runtime.training_attempt import TrainingAttempt
from rljob_runtime.verl_plugin.router.replica_times import ReplicaTimes

TRAINER_MODULE = "rljob_runtime.verl_plugin.trainer.sync_trainer"
SAMPLES_MODULE = "rljob_runtime.verl_plugin.trainer.samples"
HOOKS = ("on_step_begin", "on_step_end", "_compute_metrics")
"""Methods of our trainer that call verl's own of the same name; in on_step_end, verl sends weights."""
Function = Callable[..., Any]
_CPUCLOCK_SCHED = 2
"""Clock ID of a process: include/linux/posix-timers.h of the kernel."""
CPU_STAT = Path("/sys/fs/cgroup/cpu.stat")
CPUACCT = Path("/sys/fs/cgroup/cpuacct/cpuacct.usage")
"""cgroups v2 and v1: docs.kernel.org/admin-guide/cgroup-v2.html and cgroup-v1/cpuacct.html."""


def processor_seconds(unified: Path = CPU_STAT, older: Path = CPUACCT) -> float:
    """Return the CPU time of this container so far, from either version of cgroups."""
    if older.exists():
        return int(older.read_text()) / 1e9
    fields = dict(line.split() for line in unified.read_text().splitlines())
    return int(fields["usage_usec"]) / 1e6


def process_seconds(pid: int) -> float:
    """Return the CPU time of a process so far, from its CPU clock (clock_getcpuclockid(3))."""
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


class Stopwatch:
    """Times calls, each minus the timed calls within it."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inner: list[float] = []

    def timed(self, function: Function, key: str) -> Function:
        """Wrap a function so that its own time is added to a key."""

        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - whatever the function takes and gives
            self._inner.append(0.0)
            begun = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                elapsed = time.perf_counter() - begun
                self.seconds[key] += elapsed - self._inner.pop()
                if self._inner:
                    self._inner[-1] += elapsed

        return call


class TrainerTaps:
    """The taps in the trainer's process."""

    def __init__(self, shared: Shared, steps: Path) -> None:
        self._shared = shared
        self._steps = steps
        self._watch = Stopwatch()
        self._step = 0
        self._begun: float | None = None
        self._router = (0.0, 0)
        self._processor = 0.0
        self._holders: dict[int, float] = {}

    def install(self) -> None:
        """Replace the methods of the attempt; those of the trainer follow when it is known."""
        for name, off in (("own_metrics", dict), ("record", lambda: None)):
            setattr(TrainingAttempt, name, self._switched(getattr(TrainingAttempt, name), off))
        setattr(TrainingAttempt, "stop_mode", self._watch.timed(TrainingAttempt.stop_mode, "stop requests"))  # noqa: B010 - mypy forbids assignment
        began = TrainingAttempt.step_began

        @wraps(began)
        def step_began(run: TrainingAttempt) -> None:
            self._next_step()
            began(run)

        setattr(TrainingAttempt, "step_began", step_began)  # noqa: B010 - the same

    def _install_in_trainer(self) -> None:
        # The trainer is imported by now, because it is the caller.
        ours = sys.modules[TRAINER_MODULE].SyncTrainer
        base = ours.__bases__[-1]  # verl's
        for name in HOOKS:
            setattr(base, name, self._watch.timed(getattr(base, name), "verl"))
            setattr(ours, name, self._watch.timed(getattr(ours, name), "hooks"))
        sampler = sys.modules[SAMPLES_MODULE].Sampler
        sampler.after_step = self._watch.timed(self._switched(sampler.after_step, lambda: None), "samples")
        ours._take_window = self._switched(ours._take_window, RolloutWindow)  # noqa: SLF001 - a tap without a public name

    def _switched(self, function: Function, off: Callable[[], Any]) -> Function:
        """Wrap a method that does nothing while the taps are off."""

        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - whatever the method takes and gives
            return function(*args, **options) if self._shared.on else off()

        return call

    def _next_step(self) -> None:
        """Close a step's account and open the next one's: from the start of a step to the start of the next."""
        now, processor, holders = time.perf_counter(), processor_seconds(), self._holders_seconds()
        if self._begun is None:
            self._install_in_trainer()
        else:
            seconds, calls = self._shared.router
            record = {
                "step": self._step,
                "on": self._shared.on,
                "seconds": now - self._begun,
                "hooks": self._watch.seconds["hooks"],
                "stop_requests": self._watch.seconds["stop requests"],
                "samples": self._watch.seconds["samples"],
                "router": seconds - self._router[0],
                "requests": (calls - self._router[1]) / 2,
                "processor": processor - self._processor,
                "holders": sum(seconds - self._holders.get(pid, seconds) for pid, seconds in holders.items()),
            }
            with self._steps.open("a") as file:
                file.write(json.dumps(record) + "\n")
        self._shared.switch(on=is_on(self._step))
        self._step += 1
        self._router = self._shared.router
        self._watch.seconds.clear()
        self._processor, self._holders = processor_seconds(), self._holders_seconds()
        self._begun = time.perf_counter()

    def _holders_seconds(self) -> dict[int, float]:
        """Return the CPU time so far of each process with taps, by process ID."""
        return {pid: process_seconds(pid) for pid in self._shared.holders | {os.getpid()}}


class RouterTaps:
    """The taps in the router's process."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._seconds, self._calls = 0.0, 0

    def install(self) -> None:
        """Replace the clock's methods."""
        for name in ("acquired", "released"):
            setattr(ReplicaTimes, name, self._timed(getattr(ReplicaTimes, name)))

    def _timed(self, function: Function) -> Function:
        @wraps(function)
        def call(times: ReplicaTimes, replica: str) -> None:
            if self._shared.on:
                if not self._calls:
                    self._shared.hold(Holder.ROUTER, os.getpid())
                begun = time.perf_counter()
                function(times, replica)
                self._seconds += time.perf_counter() - begun
                self._calls += 1
                self._shared.router = (self._seconds, self._calls)

        return call


def install(folder: Path) -> None:
    """Install both; each process uses the methods of one."""
    shared = Shared(folder)
    TrainerTaps(shared, folder / STEPS_FILE).install()
    RouterTaps(shared).install()


if FOLDER_VARIABLE in os.environ:
    install(Path(os.environ[FOLDER_VARIABLE]))
