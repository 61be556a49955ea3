"""Compute our own metrics of a step: tokens per second, idle ratios, shares of a step. Pure; called by the trainer.

docs/reference/definitions.md contains the same definitions in words. Published recipes divide by cards and count tokens
in several ways, so each metric names its stage, its tokens and its divisor in the key:
`rljob/tokens_per_second/<stage>/<tokens>/<divisor>`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rljob_runtime.contract import StepMetric
from rljob_runtime.planning import update_balance

PREFIX = "rljob"
ALL_TOKENS = "prompt_and_response"
RESPONSE_TOKENS = "response"
GENERATED_TOKENS = "generated_prompt_and_response"
GENERATED_RESPONSE_TOKENS = "generated_response"
TRAINED = (ALL_TOKENS, RESPONSE_TOKENS)
FIRST_DP_IDLE = StepMetric.FIRST_DP_IDLE.value
CLUSTER_IDLE = StepMetric.CLUSTER_IDLE.value
ROLLOUT_SECONDS = f"{PREFIX}/rollout_seconds"
ROLLOUT_TAIL = f"{PREFIX}/rollout_tail_ratio"
OTHER_SECONDS = f"{PREFIX}/other_seconds"
DISCARDED_TOKENS = f"{PREFIX}/discarded_tokens_ratio"
PADDED_ROWS = f"{PREFIX}/padded_rows_ratio"
DENSE_PADDING = f"{PREFIX}/dense_padding_ratio"
CONTROL_CALL_SECONDS = f"{PREFIX}/control_call_seconds"
UPDATE_PREFIX = f"{PREFIX}/update/"
UPDATES_WAITING = f"{PREFIX}/updates_waiting_ratio"
VALIDATION_SCORE = f"{PREFIX}/validation/score/mean"
STEP_TPS_PER_CARD = StepMetric.STEP_TPS_PER_CARD.value

VERL_TOKENS = "perf/total_num_tokens"
"""Prompt and response tokens of the trained batch: verl/trainer/ppo/metric_utils.py, compute_throughout_metrics."""
VERL_SECONDS = {"update": "timing_s/update_actor", "step": StepMetric.STEP_SECONDS.value}
"""`timing_s/gen` is not the rollout time: it starts after the prompts were sent and ends at a polling interval."""
STAGE_PREFIX = "timing_s/"
WAIT_SECONDS = f"{STAGE_PREFIX}gen"
"""With prompts in flight across steps: how long the step waits for enough of them to end."""
TRAINER = "trainer"
"""The step of a trainer that stands apart, without what it waits."""
WAIT_PREFIX = f"{PREFIX}/trainer_wait_ratio/"
"""Then a number of steps."""
WAIT_STEPS = 10
"""A single step may wait by chance."""
OTHER = "other"
STAGES = (
    "gen",
    "reward",
    "old_log_prob",
    "ref",
    "values",
    "adv",
    "update_critic",
    "update_actor",
    "save_checkpoint",
    "update_weights",
)
"""Stages that verl times within a step, one after the other: verl/trainer/ppo/v1/trainer_base.py, fit and _step_once,
and trainer_sync.py, on_step_end (0.9.1). `testing` comes after the step."""
TAIL = 0.9
"""The tail of a rollout starts when this share of its requests is answered."""


@dataclass(frozen=True)
class ReplicaWindow:
    """One replica's requests between two readings of the router, in seconds of the router's clock."""

    first_acquire: float | None = None
    last_release: float | None = None
    requests: int = 0


@dataclass(frozen=True)
class RolloutWindow:
    """Times of all replicas in a step's rollout."""

    replicas: Mapping[str, ReplicaWindow] = field(default_factory=dict)
    tail_begin: float | None = None
    """Time of the response that completed nine tenths of the requests."""

    @property
    def begin(self) -> float | None:
        """Time of the first request of the step."""
        return min((r.first_acquire for r in self.replicas.values() if r.first_acquire is not None), default=None)

    @property
    def finish_times(self) -> list[float]:
        """Seconds from the first request to each replica's last response; 0 for a replica without requests."""
        begin = self.begin
        if begin is None:
            return []
        return [max(0.0, (r.last_release or begin) - begin) for r in self.replicas.values()]

    @property
    def seconds(self) -> float:
        """Duration of the rollout, from the first request to the last response."""
        return max(self.finish_times, default=0.0)

    @property
    def first_dp_idle_ratio(self) -> float | None:
        """Share of the rollout during which the replica that finished first was idle (the recipes' metric)."""
        return (self.seconds - min(self.finish_times)) / self.seconds if self.seconds > 0 else None

    @property
    def cluster_idle_ratio(self) -> float | None:
        """Share of all replicas' rollout time that was spent waiting for the slowest replica.

        This is the bubble 1 - sum(busy) / (replicas x makespan). A replica is busy until its last response.
        """
        times, wall = self.finish_times, self.seconds
        return sum(wall - t for t in times) / (wall * len(times)) if wall > 0 else None

    @property
    def tail_ratio(self) -> float | None:
        """Share of the rollout after nine tenths of its requests were answered."""
        if self.seconds <= 0 or self.begin is None or self.tail_begin is None:
            return None
        return (self.begin + self.seconds - self.tail_begin) / self.seconds


@dataclass(frozen=True)
class Tokens:
    """Tokens of responses and of their prompts. A prompt counts once per response."""

    prompt: int = 0
    response: int = 0


@dataclass(frozen=True)
class Batch:
    """Facts about a step's responses that verl's metrics do not contain."""

    rows: int = 0
    """Rows of the trained batch, including padding."""
    padded_rows: int = 0
    """Rows that verl added as padding so that the batch divides: verl/trainer/ppo/padding_utils.py."""
    discarded: Tokens = Tokens()
    """Tokens generated in the step but not trained."""


def rollout_metrics(window: RolloutWindow) -> dict[str, float]:
    """Return the metrics of one rollout; empty if no request was timed."""
    first, cluster = window.first_dp_idle_ratio, window.cluster_idle_ratio
    if first is None or cluster is None:
        return {}
    figures = {FIRST_DP_IDLE: first, CLUSTER_IDLE: cluster, ROLLOUT_SECONDS: window.seconds}
    if (tail := window.tail_ratio) is not None:
        figures[ROLLOUT_TAIL] = tail
    for index, finish in enumerate(window.finish_times):
        figures[f"{PREFIX}/replica/{index}/finish_seconds"] = finish
    for index, name in enumerate(window.replicas):
        figures[f"{PREFIX}/replica/{index}/requests"] = float(window.replicas[name].requests)
    return figures


def update_metrics(
    placement: update_balance.Placement, lengths: Sequence[int], workloads: Sequence[int]
) -> dict[str, float]:
    """Return the share of time that ranks wait for each other, and each update's fewest and most tokens of a rank.

    `placement` has the samples by update and rank, `lengths` their tokens. The waiting follows from `workloads`, the
    estimated cost of each sample.
    """
    cost = update_balance.times(placement, workloads)
    figures = {UPDATES_WAITING: cost.waiting}
    for index, update in enumerate(placement):
        tokens_of_ranks = [sum(lengths[sample] for sample in share) for share in update]
        figures[f"{UPDATE_PREFIX}{index}/waiting_ratio"] = 1 - cost.ideal[index] / cost.by_update[index]
        figures[f"{UPDATE_PREFIX}{index}/rank_tokens_min"] = float(min(tokens_of_ranks))
        figures[f"{UPDATE_PREFIX}{index}/rank_tokens_max"] = float(max(tokens_of_ranks))
    return figures


def stage_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return each stage's share of the step, and the time that belongs to no stage."""
    step = metrics.get(StepMetric.STEP_SECONDS.value)
    if not step:
        return {}
    seconds = {stage: metrics[key] for stage in STAGES if (key := f"{STAGE_PREFIX}{stage}") in metrics}
    seconds[OTHER] = max(0.0, step - sum(seconds.values()))
    shares = {f"{PREFIX}/stage_share/{stage}": spent / step for stage, spent in seconds.items()}
    return {OTHER_SECONDS: seconds[OTHER]} | shares


def tokens(metrics: Mapping[str, float], discarded: Tokens) -> dict[str, float]:
    """Count a step's tokens in every way: trained and generated."""
    trained, responses = metrics[VERL_TOKENS], response_tokens(metrics)
    return {
        ALL_TOKENS: trained,
        RESPONSE_TOKENS: responses,
        GENERATED_TOKENS: trained + discarded.prompt + discarded.response,
        GENERATED_RESPONSE_TOKENS: responses + discarded.response,
    }


def response_tokens(metrics: Mapping[str, float]) -> float:
    """Response tokens of the trained batch, computed from verl's mean lengths."""
    prompt, response = metrics["prompt_length/mean"], metrics["response_length/mean"]
    total = prompt + response
    return metrics[VERL_TOKENS] * response / total if total else 0.0


def token_metrics(
    counted: Mapping[str, float], seconds: Mapping[str, float | None], *, devices: int, dies_per_card: int
) -> dict[str, float]:
    """Return the tokens, and tokens per second of rollout, update and whole step, per card and per die.

    Tokens that were generated and discarded count only for the rollout.
    """
    figures = {f"{PREFIX}/tokens/{basis}": count for basis, count in counted.items()}
    for stage, duration in seconds.items():
        if duration:
            bases = tuple(counted) if stage == "rollout" else TRAINED
            figures |= _rates(stage, {basis: counted[basis] for basis in bases}, duration, devices, dies_per_card)
    return figures


def _rates(
    stage: str, counted: Mapping[str, float], seconds: float, devices: int, dies_per_card: int
) -> dict[str, float]:
    divisors = {"card": devices / dies_per_card, "die": float(devices)}
    return {
        f"{PREFIX}/tokens_per_second/{stage}/{basis}/{unit}": count / seconds / divisor
        for basis, count in counted.items()
        for unit, divisor in divisors.items()
    }


def trainer_metrics(
    metrics: Mapping[str, float], waits: Sequence[tuple[float, float]], *, devices: int, dies_per_card: int
) -> dict[str, float]:
    """Return what a trainer that stands apart trains per second on its own devices, and how much of its time it waits.

    `waits` has the seconds of the attempt's last steps up to this one, each with those that it waits for responses.
    """
    figures = {
        f"{WAIT_PREFIX}{steps}": sum(wait for _, wait in waits[-steps:]) / sum(step for step, _ in waits[-steps:])
        for steps in (1, WAIT_STEPS)
        if len(waits) >= steps
    }
    step, wait = waits[-1]
    if step > wait:
        counted = tokens(metrics, Tokens())
        figures |= _rates(TRAINER, {basis: counted[basis] for basis in TRAINED}, step - wait, devices, dies_per_card)
    return figures


def batch_metrics(metrics: Mapping[str, float], batch: Batch) -> dict[str, float]:
    """Return the padded and discarded shares of the batch."""
    figures = {}
    if batch.rows:
        figures[PADDED_ROWS] = batch.padded_rows / batch.rows
    mean = metrics["prompt_length/mean"] + metrics["response_length/mean"]
    if longest := metrics.get("prompt_length/max", 0.0) + metrics.get("response_length/max", 0.0):
        figures[DENSE_PADDING] = 1 - mean / longest
    if generated := response_tokens(metrics) + batch.discarded.response:
        figures[DISCARDED_TOKENS] = batch.discarded.response / generated
    return figures


def compute(
    metrics: Mapping[str, float], window: RolloutWindow, batch: Batch, *, devices: int, dies_per_card: int
) -> dict[str, float]:
    """Return all our metrics of one step, from verl's metrics, the replicas' times and the batch."""
    rollout = rollout_metrics(window)
    seconds = {stage: metrics.get(key) for stage, key in VERL_SECONDS.items()}
    seconds["rollout"] = rollout.get(ROLLOUT_SECONDS)
    counted = tokens(metrics, batch.discarded)
    return (
        rollout
        | stage_metrics(metrics)
        | batch_metrics(metrics, batch)
        | token_metrics(counted, seconds, devices=devices, dies_per_card=dies_per_card)
    )
