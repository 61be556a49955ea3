"""Real steps of our trainer with verl and vLLM on CPUs: what the switches of a job change in them.

One short run has every switch on, drafts and a profiled step, and all tests but the long one ask about it.
"""

from __future__ import annotations

import gzip
import json
import shutil
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.contract import Finish, Sample

HERE = Path(__file__).parent
STEPS, STEPS_OF_AN_EPOCH, TRAINED = 10, 4, 5
"""Steps of a run of the comparison, of an epoch, and of the run with every switch on."""
PROFILED = 2
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
SUFFIX = f"+{ROLLOUT}.engine_kwargs.vllm.speculative_config"
ESTIMATE = 0.1
"""Relative difference of the entropy from minus the mean log-probability of the 2,048 tokens of a step."""
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
    """Unix time, generation and seconds of each collection; benchmarks/garbage.py adds them up."""
    passes: dict[str, int]
    """Calls of verl's ranks by method."""


@dataclass(frozen=True)
class Run:
    """What one run left."""

    folder: Path
    steps: list[dict[str, Any]]
    notes: list[str]
    processes: list[Process]
    stderr: str

    def mean(self, key: str) -> float:
        """Return the mean of a metric without the first step, which warms up."""
        return statistics.fmean(float(step["metrics"][key]) for step in self.steps[1:])

    @property
    def passes(self) -> dict[str, int]:
        """Return the calls of the only rank, by method."""
        (found,) = [process.passes for process in self.processes if any(process.passes.values())]
        return found

    def parameters(self) -> dict[str, Any]:
        """Return the actor's parameters in the last checkpoint."""
        import torch

        (file,) = self.folder.glob(f"checkpoints/global_step_{STEPS}/actor/model_world_size_1_rank_0.pt")
        loaded = torch.load(file, map_location="cpu", weights_only=False)
        return {name: getattr(value, "_local_tensor", value).float() for name, value in loaded.items()}


Train = Callable[..., Run]


@pytest.fixture(scope="module")
def train(real_training: Any) -> Train:
    """Return a function that trains and returns what was seen."""

    def run(folder: Path, name: str, **wish: Any) -> Run:
        log = folder / f"{name}-processes"
        log.mkdir()
        shutil.copy(HERE / "process_log.py", log / "sitecustomize.py")
        told = real_training(folder, name, log, environment={"PROCESS_LOG": str(log)}, **wish)
        processes = [Process(**json.loads(file.read_text())) for file in log.glob("*.json")]
        return Run(folder / name, told["steps"], told["notes"], processes, told["stderr"])

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder for the inputs and the runs of a comparison."""
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture(scope="module")
def run(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Return the run with every switch on.

    Weights of this spread and the low temperature make the model as certain of its tokens as a trained one; drafts of
    an uncertain model are hardly ever accepted.
    """
    folder, profiler = tmp_path_factory.mktemp("switches"), f"{ACTOR}.profiler"
    overrides = {
        f"{ROLLOUT}.max_num_seqs": 16,  # of the 32 requests of a step
        f"{ROLLOUT}.max_model_len": 96,
        f"{ROLLOUT}.temperature": 0.3,
        "data.max_response_length": 64,
        f"{ACTOR}.optim.lr": 1e-5,
        f"{SUFFIX}.method": "suffix",
        f"{SUFFIX}.num_speculative_tokens": 3,
        "global_profiler.tool": "torch",
        "global_profiler.steps": [PROFILED],
        "global_profiler.save_path": str(folder / "run" / "traces"),
        f"{profiler}.enable": True,
        f"{profiler}.ranks": [0],
        f"{profiler}.tool_config.torch.contents": ["cpu", "shapes"],
    }
    yield train(
        folder,
        "run",
        steps=TRAINED,
        spread=0.3,
        overrides=overrides,
        optimizations={"skip_old_log_prob": True, "gc_freeze": True, "late_binding": True},
        drafts={"max_sequences": 1_000, "history_bytes": 1 << 26, "needs_suffix_trees": True},
    )
    shutil.rmtree(folder, ignore_errors=True)


def test_every_step_is_trained_once_without_the_pass_for_old_log_probabilities(run: Run) -> None:
    assert len(run.steps) == TRAINED
    assert run.passes == {"compute_log_prob": 0, "update_actor": TRAINED}
    for step in run.steps:
        metrics = step["metrics"]
        assert (metrics["actor/ppo_kl"], metrics["actor/pg_clipfrac"]) == (0.0, 0.0)
        assert metrics["actor/grad_norm"] > 0
        assert metrics["rljob/replica/0/requests"] == 32


def test_sampled_tokens_have_the_probabilities_that_the_trainer_computes(run: Run) -> None:
    for step in run.steps:
        metrics = step["metrics"]
        assert metrics["training/rollout_probs_diff_valid"] == 1
        assert 0 < metrics["training/rollout_probs_diff_mean"] < 1e-3
        assert abs(metrics["rollout_corr/kl"]) < 1e-3
        assert metrics["actor/entropy"] == pytest.approx(metrics["rollout_corr/training_log_ppl"], rel=ESTIMATE)


def test_the_lengths_of_the_last_step_can_be_planned_with(run: Run) -> None:
    with next(run.folder.glob("spool/**/lengths.jsonl")).open() as file:
        lengths = [json.loads(line) for line in file]
    metrics = run.steps[-1]["metrics"]
    assert len(lengths) == 32
    assert len({row["prompt"] for row in lengths}) == 8
    assert statistics.mean(row["response_tokens"] for row in lengths) == pytest.approx(metrics["response_length/mean"])
    assert {row["prompt_tokens"] for row in lengths} == {int(metrics["prompt_length/mean"])}


def test_answers_of_the_first_and_of_the_last_step_are_recorded_with_their_scores(run: Run) -> None:
    recorded = {int(path.name[:9]): path for path in run.folder.glob("spool/*/samples/*-rollout.jsonl")}
    assert sorted(recorded) == [1, TRAINED]
    for step, path in recorded.items():
        metrics = run.steps[step - 1]["metrics"]
        samples = [Sample.from_json(line) for line in path.read_bytes().splitlines()]
        assert 1 < len(samples) <= 8
        assert all(each.prompt and each.answer and each.tokens and each.prompt_tokens for each in samples)
        scores = [each.score for each in samples if each.score is not None]
        assert max(scores) == pytest.approx(metrics["critic/score/max"])
        assert min(scores) == pytest.approx(metrics["critic/score/min"])
        assert max(each.tokens or 0 for each in samples) == metrics["response_length/max"]
        assert all((each.finish is Finish.LENGTH) == (each.tokens == 64) for each in samples)


def test_each_process_freezes_its_objects_once(run: Run) -> None:
    for caller in ("on_train_begin", "freeze_rank", "warm_up_and_freeze"):  # the trainer, its rank, and vLLM's worker
        freezing = [process for process in run.processes if any(caller in stack for stack in process.freezes)]
        assert [(len(process.freezes), process.enabled) for process in freezing] == [(1, True)], caller


def test_a_chosen_step_leaves_one_trace_of_the_chosen_rank(run: Run) -> None:
    traces = run.folder / "traces"
    (trace,) = traces.iterdir()
    assert f"step{PROFILED}_rank0" in trace.name
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert any("Input Dims" in event.get("args", {}) for event in events)
    assert run.notes == [f"traces of step {PROFILED} are written to {traces}"]


def test_a_second_epoch_drafts_from_the_responses_of_the_first(run: Run) -> None:
    assert "drafts have no history" not in run.stderr
    metrics = [step["metrics"] for step in run.steps]
    for step in metrics:
        assert step["rollout/draft_steps_ratio"] == 1
        assert 0 < step["rollout/spec_accept_rate"] < 1
        assert step["rollout/spec_accept_length"] > 1
        assert step["rollout/draft_history_bytes"] > 0
    # Some of the 32 prompts have the same text, so that a later step of the first epoch may have a history.
    assert metrics[0]["rollout/draft_tokens/history"] == 0
    assert all(step["rollout/draft_tokens_accepted/history"] > 0 for step in metrics[STEPS_OF_AN_EPOCH:])


@pytest.mark.long
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
