"""Traces of chosen steps by verl's own profiler: what we rely on (test_real_training.py has a run)."""

from __future__ import annotations

import inspect

import pytest
from verl.utils.profiler.config import NPUToolConfig, TorchProfilerToolConfig

from rljob_runtime.verl_plugin.trainer.optimized_trainer import OptimizedTrainer


def test_the_hooks_are_verls() -> None:
    base = OptimizedTrainer.__mro__[1]
    for name in ("_start_profiling", "_stop_profiling"):
        assert "self.curr_step_profile" in inspect.getsource(inspect.getattr_static(base, name))


@pytest.mark.parametrize("level", ["level0", "level1", "level2"])
def test_what_a_job_may_choose_is_accepted(level: str) -> None:
    details = ["memory", "shapes", "stack"]
    assert NPUToolConfig(contents=["npu", *details], level=level, analysis=False).level == level
    assert TorchProfilerToolConfig(contents=["cpu", *details]).contents
