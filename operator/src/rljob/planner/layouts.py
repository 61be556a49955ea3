"""Which layouts of a job fit into its dies, how long a step takes with each, and how sure that is.

A layout is how the rollout and how the trainer are split. Candidates are powers of two that divide the model and the
devices. Each number is a model's; where layouts differ by less than the model's error (`ERROR`), the one that somebody
has published a run of comes first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rljob.planner.rollout.estimate import ReplicaSize, engine
from rljob.planner.rollout.outcome import Outcome
from rljob.planner.rollout.policies import Placement, Policy
from rljob.planner.rollout.setup import Setup
from rljob.planner.rollout.simulation import floor_seconds, simulate
from rljob.planner.rollout.step_time import Origin
from rljob.planner.rollout.traces import Trace
from rljob.planner.stages import (
    PASSES,
    TrainerSize,
    Work,
    communication_seconds,
    forward_seconds,
    other_seconds,
    slowdown,
    transfer_seconds,
    update_seconds,
    work,
)
from rljob.planner.stages import PUBLISHED as PUBLISHED_STEPS
from rljob_runtime.planning import memory
from rljob_runtime.planning.shapes import Shape

ERROR = 0.08
"""Largest difference between the modelled and the published seconds of a published step."""
SIZES = (1, 2, 4, 8, 16)
CONTEXTS = (1, 2, 4, 8)
FAR = 1.25
"""Rollouts that take this many times the best one's seconds, even without any waiting, are not simulated."""
FILLED = 0.8
"""Share of a cache that responses fill while others wait."""
SAME = 0.01
"""Tokens of two batches may differ by this share and count as the same."""
WINDOW = 1.0
"""The default of trainer.async.prefetchBatches."""
PAIRS_MAX = 400
"""Pairs of rollout and trainer whose memory is computed, in the order of their seconds."""


@dataclass(frozen=True)
class Layout:
    """How a job is split."""

    rollout: ReplicaSize
    trainer: TrainerSize


@dataclass(frozen=True)
class PublishedLayout:
    """A layout of which a run was published."""

    architecture: str
    devices: int
    layout: Layout
    source: str


PUBLISHED = (
    PublishedLayout(
        "Qwen3-235B-A22B",
        128,
        Layout(ReplicaSize(4, 32, 128), TrainerSize(4, 4, 4, 32)),
        "cann-recipes-train, GRPO and DAPO on Qwen3-235B, 64 cards",
    ),
    PublishedLayout(
        "DeepSeek-V3",
        256,
        Layout(ReplicaSize(2, 64, 128), TrainerSize(4, 8, 1, 32)),
        "cann-recipes-train, GRPO on DeepSeek-V3, 128 cards",
    ),
    PublishedLayout(
        "Qwen3-32B",
        32,
        Layout(ReplicaSize(8, 1, 1), TrainerSize(8, 2, 2, 1)),
        "cann-recipes-train, GRPO and DAPO on Qwen3-32B, 16 cards",
    ),
)


@dataclass(frozen=True)
class Job:
    """The facts of a job that do not depend on its layout, and its own layout."""

    shape: Shape
    die: memory.Die
    trainer: memory.Trainer
    rollout: memory.Rollout
    setup: Setup
    layout: Layout
    node_devices: int
    """Of the workers that generate."""
    trainer_node_devices: int
    updates: int
    """Optimizer updates of a step."""
    enabled: frozenset[str]
    """Fields of switches that are on, such as optimizations.skipOldLogProb."""
    obstacles: Mapping[str, str] = field(default_factory=dict)
    """Field of a switch that validation would refuse -> why."""
    window: float = WINDOW
    """Batches in flight beside that of the step where prompts run ahead."""

    @property
    def apart(self) -> bool:
        """Whether trainer and rollout have devices of their own."""
        return self.rollout.apart

    @property
    def devices(self) -> int:
        """Devices of trainer and rollout."""
        return self.setup.devices + (self.trainer.devices if self.apart else 0)

    @property
    def samples(self) -> int:
        """Responses of a step."""
        return self.setup.prompts * self.setup.samples

    @property
    def passes(self) -> int:
        """Passes for log-probabilities: of the reference model and of the old policy."""
        return int(self.trainer.reference) + int("optimizations.skipOldLogProb" not in self.enabled)


@dataclass(frozen=True)
class Seconds:
    """The stages of a step."""

    rollout: float
    log_probabilities: float
    """Of the old policy and of the reference model."""
    update: float
    other: float
    transfer: float | None = None
    """Of new weights to a rollout that stands apart and generates while the trainer trains; None for one that does
    not."""

    @property
    def training(self) -> float:
        """Everything but the rollout and such a transfer."""
        return self.log_probabilities + self.update + self.other

    @property
    def total(self) -> float:
        """The whole step."""
        if self.transfer is None:
            return self.rollout + self.training
        return max(self.rollout, self.training) + self.transfer

    @property
    def bottleneck(self) -> str:
        """Name of the longest stage; where rollout and training overlap, of the one that the step waits for."""
        named = {"rollout": self.rollout, "log probabilities": self.log_probabilities, "update": self.update}
        if self.transfer is not None and self.rollout < self.training:
            del named["rollout"]
        elif self.transfer is not None:
            return "rollout"
        return max(named, key=named.__getitem__)


@dataclass(frozen=True)
class Candidate:
    """A layout and what it is expected to do."""

    layout: Layout
    seconds: Seconds
    outcome: Outcome
    """Of the rollout."""
    forward_seconds: float
    """Of one pass for log-probabilities."""
    memory_share: float
    """Of the fullest die in the fullest phase."""
    role_shares: tuple[float, float] | None = None
    """The same of the trainer and of the rollout, where they have dies of their own."""
    published: str = ""
    """Source of a published run with this layout; empty without one."""
    published_seconds: float | None = None
    """Seconds of a published step with this layout and batch."""
    own: bool = False
    """The layout that the job states."""

    @property
    def fits(self) -> bool:
        """Whether every phase fits into a die."""
        return self.memory_share <= 1

    @property
    def origin(self) -> Origin:
        """Where its seconds come from."""
        return Origin.MODELLED


def candidates(job: Job, trace: Trace) -> tuple[Candidate, ...]:
    """Return the layouts that fit, best first. Of many, the slowest may be left out, but not the job's own."""
    done = work(job.shape, trace.requests)
    trainers = {size: _trained(job, done, size) for size in {*_stated(job), *trainer_sizes(job)} if _trains(job, size)}
    pairs = [
        (_order(job, outcome.makespan, job.passes * trained.forward + trained.update), Layout(size, trainer), outcome)
        for size, outcome in rollouts(job, trace).items()
        for trainer, trained in trainers.items()
    ]
    pairs.sort(key=lambda pair: (pair[0], str(pair[1])))
    kept = [*pairs[:PAIRS_MAX], *(pair for pair in pairs[PAIRS_MAX:] if pair[1] == job.layout)]
    found = [_candidate(job, layout, outcome, trainers[layout.trainer], done) for _, layout, outcome in kept]
    return _ordered([one for one in found if one.fits])


def _order(job: Job, rollout: float, training: float) -> tuple[float, float]:
    """Return the seconds by which pairs are sorted: where both overlap, the longer ones and then all."""
    return max(rollout, training) if job.apart else 0.0, rollout + training


def _stated(job: Job) -> list[TrainerSize]:
    """Return the job's own sizes of the trainer, if they divide its devices."""
    own = job.layout.trainer
    return [own] if job.trainer.devices % own.model == 0 else []


def _trains(job: Job, size: TrainerSize) -> bool:
    """Return whether the passes of the trainer fit into a die, whatever the rollout is."""
    plan = memory.plan(job.shape, job.die, trainer_memory(job, size), job.rollout)
    passes = (memory.PhaseName.LOG_PROBABILITIES, memory.PhaseName.UPDATE)
    return all(phase.bytes <= job.die.memory_bytes for phase in plan.phases if phase.name in passes)


def _ordered(found: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return candidates by seconds; among those within the error of the best, published ones first."""
    best = min((one.seconds.total for one in found), default=0.0)

    def key(one: Candidate) -> tuple[bool, bool, float]:
        near = one.seconds.total <= best * (1 + ERROR)
        return not near, not (near and one.published), one.seconds.total

    return tuple(sorted(found, key=key))


def rollout_sizes(job: Job) -> Iterator[ReplicaSize]:
    """Yield the sizes of replicas that divide devices and model; ranks of experts are all dies of a replica."""
    shape, devices = job.shape, job.setup.devices
    for tensor in SIZES:
        if devices % tensor or tensor > job.node_devices or not _divides_heads(shape, tensor):
            continue
        if (moe := shape.experts) is None:
            yield ReplicaSize(tensor, 1, 1)
            continue
        data = devices // tensor
        while moe.count % (tensor * data) == 0:
            yield ReplicaSize(tensor, data, tensor * data)
            if data % 2:
                break
            data //= 2


def trainer_sizes(job: Job) -> Iterator[TrainerSize]:
    """Yield the sizes of Megatron's trainer that divide devices, model and batch; FSDP2 has no such choice."""
    shape, devices, trainer = job.shape, job.trainer.devices, job.trainer
    if trainer.engine is memory.Engine.FSDP2:
        return
    experts = shape.experts.count if shape.experts else 1
    for tensor in SIZES:
        if tensor > job.trainer_node_devices or not _divides_heads(shape, tensor) or shape.kv_heads % tensor:
            continue
        for pipeline in (size for size in SIZES if size <= shape.layers):
            for context in CONTEXTS:
                size = TrainerSize(tensor, pipeline, context)
                if devices % size.model or job.samples // job.updates % (devices // size.model):
                    continue
                expert = 1
                while experts % expert == 0 and devices % (expert * pipeline * _expert_tensor(job, tensor)) == 0:
                    yield replace(size, expert=expert)
                    expert *= 2


def _divides_heads(shape: Shape, tensor: int) -> bool:
    return shape.heads % tensor == 0 and (shape.kv_heads % tensor == 0 or tensor % shape.kv_heads == 0)


def _expert_tensor(job: Job, tensor: int) -> int:
    """Return the ranks that share an expert: as many as share a layer, unless the job states another number."""
    own = job.trainer.cut
    return tensor if own.expert_tensor == own.tensor else own.expert_tensor


def rollout_setup(job: Job, size: ReplicaSize, trace: Trace) -> Setup:
    """Return the job's rollout with other sizes: as many responses at a time as its own, spread over other ranks.

    Where caches do not hold them, they are fewer: as many as a full queue keeps in four fifths of a cache. A response
    that runs has then half of the size-biased mean length, because long ones run longer.
    """
    own = job.setup
    if size == job.layout.rollout:
        return own
    replicas = own.devices // size.devices
    share = -(-own.ranks * own.engine.sequences // (replicas * size.data))
    plan = memory.plan(job.shape, job.die, job.trainer, _rollout_memory(job, size, share))
    held = int(FILLED * plan.kv_tokens / (trace.size_biased_mean / 2))
    sequences = share if plan.kv_tokens >= share * trace.mean / 2 else max(1, min(share, held))
    gears = sorted({max(1, -(-gear * sequences // own.engine.sequences)) for gear in own.gears})
    return replace(
        own, engine=engine(job.shape, size, sequences, plan.kv_tokens), replicas=replicas, gears=tuple(gears)
    )


def rollouts(job: Job, trace: Trace) -> dict[ReplicaSize, Outcome]:
    """Return the rollout of each size as verl spreads it today, the job's own first.

    Sizes whose cache does not hold the longest response, and those that cannot come near the best, are left out.
    """
    found: dict[ReplicaSize, Outcome] = {}
    own = job.layout.rollout
    stated = [own] if job.setup.devices % own.devices == 0 else []
    for size in sorted({*rollout_sizes(job), *stated}, key=lambda size: (size != own, str(size))):
        setup = rollout_setup(job, size, trace)
        policy = Policy("today", Placement.INTERLEAVED, setup.gears)
        best = min((outcome.makespan for outcome in found.values()), default=math.inf)
        if floor_seconds(trace, setup.engine, policy, setup.replicas) > best * FAR:
            continue
        try:
            found[size] = simulate(trace, setup.engine, policy, setup.replicas)
        except ValueError:
            continue
    return found


@dataclass(frozen=True)
class _Trained:
    """Seconds of the trainer's stages with one layout."""

    forward: float
    """One pass for log-probabilities."""
    update: float


def _trained(job: Job, done: Work, size: TrainerSize) -> _Trained:
    """Return the seconds of passes and update; the published rates include the collectives of the job's own layout."""
    devices, tokens = job.trainer.devices, job.trainer.tokens * job.trainer.context
    slower = slowdown(done, devices, size, trainer_memory(job, size).stage_layers, tokens)
    more = communication_seconds(job.shape, done, devices, size) - communication_seconds(
        job.shape, done, devices, job.layout.trainer
    )
    return _Trained(
        slower * forward_seconds(done, devices) + more / PASSES, slower * update_seconds(done, devices) + more
    )


def trainer_memory(job: Job, size: TrainerSize) -> memory.Trainer:
    """Return the trainer with other sizes; a micro batch keeps its tokens on all dies that share a sample."""
    own, sizes = job.trainer, job.layout.trainer
    if size == sizes:
        return own
    layers = job.shape.layers
    even = tuple(
        layers * (stage + 1) // size.pipeline - layers * stage // size.pipeline for stage in range(size.pipeline)
    )
    cut = replace(own.cut, tensor=size.tensor, expert=size.expert, expert_tensor=_expert_tensor(job, size.tensor))
    return replace(
        own,
        stage_layers=own.stage_layers if size.pipeline == sizes.pipeline else even,
        tokens=-(-own.tokens * own.context // size.context),
        micro_batches=max(1, own.micro_batches * size.model // sizes.model),
        cut=cut,
        context=size.context,
    )


def _rollout_memory(job: Job, size: ReplicaSize, sequences: int) -> memory.Rollout:
    return replace(job.rollout, tensor=size.tensor, data=size.data, expert=size.expert, sequences=sequences)


def _candidate(job: Job, layout: Layout, outcome: Outcome, trained: _Trained, done: Work) -> Candidate:
    own = job.setup
    ranks = own.devices // layout.rollout.tensor
    sequences = -(-own.ranks * own.engine.sequences // ranks)
    plan = memory.plan(
        job.shape, job.die, trainer_memory(job, layout.trainer), _rollout_memory(job, layout.rollout, sequences)
    )
    lacks = plan.kv_bytes < plan.kv_bytes_needed
    return Candidate(
        layout=layout,
        seconds=Seconds(
            rollout=outcome.makespan,
            log_probabilities=job.passes * trained.forward,
            update=trained.update,
            other=other_seconds(done),
            transfer=transfer_seconds(job.shape) if job.apart else None,
        ),
        outcome=outcome,
        memory_share=float("inf") if lacks else plan.peak.bytes / job.die.memory_bytes,
        role_shares=_role_shares(plan) if job.apart else None,
        forward_seconds=trained.forward,
        published=_published(job, layout),
        published_seconds=_published_seconds(job, layout, done),
        own=layout == job.layout,
    )


def _role_shares(plan: memory.MemoryPlan) -> tuple[float, float]:
    """Return the shares of a die of the trainer and of one of the rollout in their fullest phases."""
    largest = [
        max(phase.bytes for phase in plan.phases if (phase.name in memory.OF_THE_ROLLOUT) is generates)
        for generates in (False, True)
    ]
    return largest[0] / plan.die.memory_bytes, largest[1] / plan.die.memory_bytes


def _published(job: Job, layout: Layout) -> str:
    """Return the source of a published run; all of them trained and generated on the same dies in turn."""
    for row in () if job.apart else PUBLISHED:
        if (row.architecture, row.devices, row.layout) == (job.shape.name, job.setup.devices, layout):
            return row.source
    return ""


def _published_seconds(job: Job, layout: Layout, done: Work) -> float | None:
    """Return the seconds of the published step with this layout, as many responses, and as many tokens."""
    if _published(job, layout):
        for step in PUBLISHED_STEPS:
            same = (step.architecture, step.devices, step.prompts * step.samples, step.rounds)
            alike = abs(step.tokens / done.tokens - 1) < SAME
            if alike and same == (job.shape.name, job.setup.devices, done.sequences, 1):
                return step.total
    return None
