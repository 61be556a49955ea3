"""Real steps of our trainer with verl and vLLM on CPUs: what the switches of `spec.optimizations` change in them.

One short run is part of every run of tests. The comparisons of two ways take minutes: RLJOB_COMPARE=1 asks for them.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.planning.rollout.recorded import read_trace

HERE = Path(__file__).parent
compares = pytest.mark.skipif(not os.environ.get("RLJOB_COMPARE"), reason="RLJOB_COMPARE asks for the comparison")
STEPS = 10
ACTOR = "actor_rollout_ref.actor"
MISMATCH = ("training/rollout_probs_diff_mean", "training/rollout_actor_probs_pearson_corr", "rollout_corr/kl")


@dataclass(frozen=True)
class Process:
    """One Python process of a run."""

    name: str
    freezes: list[list[str]]
    """Functions on the stack of each call of `gc.freeze`."""
    frozen: int
    """Objects."""
    enabled: bool
    pauses: list[tuple[float, int, float]]
    """Unix time, generation and seconds of each collection."""
    passes: dict[str, int]
    """Calls of verl's ranks by method."""

    def seconds(self, since: float, until: float) -> float:
        """Return the seconds that it paused in between."""
        return sum(seconds for at, _, seconds in self.pauses if since <= at <= until)


@dataclass(frozen=True)
class Run:
    """What one run left."""

    folder: Path
    steps: list[dict[str, Any]]
    notes: list[str]
    processes: list[Process]

    def mean(self, key: str) -> float:
        """Return the mean of a metric without the first step, which warms up."""
        return statistics.fmean(float(step["metrics"][key]) for step in self.steps[1:])

    @property
    def passes(self) -> dict[str, int]:
        """Return the calls of the only rank, by method."""
        (found,) = [process.passes for process in self.processes if any(process.passes.values())]
        return found

    def of(self, name: str) -> list[Process]:
        """Return the processes with a name."""
        return [process for process in self.processes if name in process.name]

    def parameters(self) -> dict[str, Any]:
        """Return the actor's parameters in the last checkpoint."""
        import torch

        (file,) = self.folder.glob(f"checkpoints/global_step_{STEPS}/actor/model_world_size_1_rank_0.pt")
        loaded = torch.load(file, map_location="cpu", weights_only=False)
        return {name: getattr(value, "_local_tensor", value).float() for name, value in loaded.items()}


Train = Callable[..., Run]


@pytest.fixture
def train(real_training: Any) -> Train:
    """Return a function that trains and returns what was seen."""

    def run(folder: Path, name: str, **wish: Any) -> Run:
        log = folder / f"{name}-processes"
        log.mkdir()
        shutil.copy(HERE / "process_log.py", log / "sitecustomize.py")
        told = real_training(folder, name, log, environment={"PROCESS_LOG": str(log)}, **wish)
        processes = [Process(**json.loads(file.read_text())) for file in log.glob("*.json")]
        return Run(folder / name, told["steps"], told["notes"], processes)

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder for the inputs and the runs of a test."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_steps_with_every_switch_on(folder: Path, train: Train) -> None:
    few = {"actor_rollout_ref.rollout.max_num_seqs": 4}  # of the 32 requests of a step
    switches = {"skip_old_log_prob": True, "gc_freeze": True, "late_binding": True}
    run = train(folder, "run", steps=3, overrides=few, optimizations=switches)
    assert (len(run.steps), run.notes) == (3, [])
    for step in run.steps:
        metrics = step["metrics"]
        assert (metrics["actor/ppo_kl"], metrics["actor/pg_clipfrac"]) == (0.0, 0.0)
        assert metrics["actor/grad_norm"] > 0
        assert metrics["rljob/replica/0/requests"] == 32
        assert metrics["training/rollout_probs_diff_valid"] == 1
        assert 0 < metrics["training/rollout_probs_diff_mean"] < 1e-3
        assert abs(metrics["rollout_corr/kl"]) < 1e-3
        assert metrics["actor/entropy"] == pytest.approx(metrics["rollout_corr/training_log_ppl"], rel=0.05)
    assert run.passes == {"compute_log_prob": 0, "update_actor": 3}
    # The lengths of the last step, which can be planned with.
    with next(run.folder.glob("spool/**/lengths.jsonl")).open() as file:
        trace = read_trace("lengths", file)
    metrics = run.steps[-1]["metrics"]
    assert len(trace.requests) == 32
    assert len({request.prompt for request in trace.requests}) == 8
    assert trace.mean == pytest.approx(metrics["response_length/mean"])
    assert {request.prompt_tokens for request in trace.requests} == {int(metrics["prompt_length/mean"])}
    # The trainer, its rank, and vLLM's worker: once in a process of each.
    for caller in ("on_train_begin", "freeze_rank", "warm_up_and_freeze"):
        freezing = [process for process in run.processes if any(caller in stack for stack in process.freezes)]
        assert [(len(process.freezes), process.enabled) for process in freezing] == [(1, True)], caller


def test_a_chosen_step_leaves_one_trace_of_the_chosen_rank(folder: Path, train: Train) -> None:
    traces, profiler = folder / "traces", "actor_rollout_ref.actor.profiler"
    run = train(
        folder,
        "profiled",
        steps=3,
        overrides={
            "global_profiler.tool": "torch",
            "global_profiler.steps": [2],
            "global_profiler.save_path": str(traces),
            f"{profiler}.enable": True,
            f"{profiler}.ranks": [0],
            f"{profiler}.tool_config.torch.contents": ["cpu", "shapes"],
        },
    )
    (trace,) = traces.iterdir()
    assert "step2_rank0" in trace.name
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert any("Input Dims" in event.get("args", {}) for event in events)
    assert f"traces of step 2 are written to {traces}" in run.notes


@compares
def test_parameters_are_as_close_as_those_of_two_plain_runs(folder: Path, train: Train) -> None:
    rollouts = {
        "skip.rollout_tq.enable": True,
        "skip.rollout_tq.dump_dir": str(folder / "rollouts"),
        "skip.rollout_tq.steps": list(range(1, STEPS + 1)),
        "trainer.save_freq": STEPS,
    }
    plain = [train(folder, name, steps=STEPS, overrides=rollouts) for name in ("recorded", "replayed")]
    skipped = train(folder, "skipped", steps=STEPS, overrides=rollouts, optimizations={"skip_old_log_prob": True})
    for run, passes in ((plain[0], STEPS), (plain[1], STEPS), (skipped, 0)):
        assert run.passes == {"compute_log_prob": passes, "update_actor": STEPS}
    first, second, ours = (run.parameters() for run in (*plain, skipped))

    def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
        return max(float((one[name] - other[name]).abs().max()) for name in one)

    print(f"plain and plain {apart(first, second):.1e}, plain and skipped {apart(first, ours):.1e}")
    assert apart(first, ours) <= 2 * apart(first, second)
    for key in ("timing_s/step", "timing_s/old_log_prob", "timing_s/update_actor", *MISMATCH):
        print(f"{key}: plain {plain[1].mean(key):.6g}, skipped {skipped.mean(key):.6g}")
    for key in MISMATCH:
        assert skipped.mean(key) == pytest.approx(plain[1].mean(key), rel=0.01, abs=1e-6), key


@compares
def test_pauses_for_garbage(folder: Path, train: Train) -> None:
    long = {"data.max_response_length": 128, "actor_rollout_ref.rollout.max_model_len": 256}
    for freezes in (False, True):
        wish = {"steps": 6, "overrides": long, "optimizations": {"gc_freeze": freezes}, "forks": False}
        run = train(folder, f"freeze-{freezes}", **wish)
        since, until = run.steps[0]["time"], run.steps[-1]["time"]
        for name in ("RLJobTaskRunner", "WorkerDict", "VLLM::Worker", "VLLM::EngineCore"):
            for process in run.of(name):
                paused, most = process.seconds(since, until), max((p[2] for p in process.pauses), default=0.0)
                print(f"gcFreeze {freezes}: {name}: {paused:.3f} s of {until - since:.1f} s, {process.frozen} frozen")
                print(f"  {len(process.pauses)} collections, the longest {most:.3f} s")
            # Short-lived processes have the name too, and vLLM freezes its engine itself.
            if name != "VLLM::EngineCore":
                assert any(process.freezes for process in run.of(name)) == freezes, name
