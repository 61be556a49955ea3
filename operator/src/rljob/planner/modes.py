"""How long a step takes in each mode of the trainer, which waits for its own responses or trains what has ended.

The simulation is coarser than that of one batch (rollout/simulation.py): running responses spread evenly over the
ranks, and all ranks decode in one lockstep. Both modes are simulated the same way, so what differs between them is the
mode. What it leaves out: verl's own work at a pause, prompts at the bound of staleness, and preemption: a full cache
only delays new responses.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rljob.planner.layouts import FILLED, Candidate, Job, rollout_setup
from rljob.planner.rollout.policies import Placement, Policy
from rljob.planner.rollout.replica import Engine
from rljob.planner.rollout.setup import Setup
from rljob.planner.rollout.traces import RolloutRequest, Trace

SYNC, COLOCATE_ASYNC = "Sync", "ColocateAsync"
"""Values of trainer.mode."""
WINDOW = 1
"""Batches in flight beside that of the step: the default of trainer.async.prefetchBatches."""
RESUME_SECONDS = 1.0
"""A paused request waits so long before it is sent again (verl 0.9.1, verl/workers/rollout/llm_server.py:345)."""
STEPS, WARM_UP = 8, 4
"""Steps that are counted, and those before them, in which the window fills up with long responses."""
RESPONSES_MAX = 1 << 18
"""Responses that are simulated in all counted steps; large batches get fewer steps, but at least two."""


@dataclass(frozen=True)
class ModeStep:
    """The mean step of one mode."""

    mode: str
    rollout: float
    """Seconds in which responses are generated while nothing is trained."""
    train: float
    """Seconds of log-probabilities, update and the rest."""
    staleness: float
    """Mean number of updates between sending a prompt and training it."""

    @property
    def total(self) -> float:
        """Seconds of the step."""
        return self.rollout + self.train


class Flow:
    """The responses that run and wait. All running ones gain a token in each decoding step."""

    def __init__(self, engine: Engine, ranks: int, policy: Policy) -> None:
        self._engine, self._ranks, self._policy = engine, ranks, policy
        self.seconds = 0.0
        self._steps = 0
        self._waiting: deque[tuple[int, RolloutRequest]] = deque()
        self._running: list[tuple[int, int, int, RolloutRequest]] = []
        """Heap of the decoding step in which a response ends, its number, that of its prompt, and itself."""
        self._begun = 0
        self._cached = 0
        """Tokens in all caches, less the decoding steps since then of each running response."""
        self._left: dict[int, int] = {}
        """Responses that a prompt still lacks."""

    def add(self, prompt: int, responses: Sequence[RolloutRequest]) -> None:
        """Send the responses of a prompt."""
        self._left[prompt] = len(responses)
        self._waiting.extend((prompt, one) for one in responses)

    def resume(self) -> None:
        """Compute the caches of all running responses again, which a pause has discarded."""
        tokens = self._cached + len(self._running) * self._steps
        self.seconds += self._prefill(tokens) + (RESUME_SECONDS if self._running else 0.0)

    def next_prompt(self) -> int:
        """Generate until a prompt has all its responses, and return its number."""
        while True:
            self._admit()
            ends, _, prompt, request = heapq.heappop(self._running)
            self._decode(ends - self._steps, request)
            self._cached += ends - request.tokens - request.prompt_tokens
            self._left[prompt] -= 1
            if not self._left[prompt]:
                del self._left[prompt]
                return prompt

    def _admit(self) -> None:
        """Start waiting responses while ranks have sequences and caches have room."""
        engine = self._engine
        full = None if engine.cache_tokens is None else FILLED * engine.cache_tokens * self._ranks
        while self._waiting and len(self._running) < self._ranks * engine.sequences:
            prompt, request = self._waiting[0]
            tokens = self._cached + len(self._running) * self._steps + request.prompt_tokens
            if full is not None and self._running and tokens > full:
                return
            self._waiting.popleft()
            self.seconds += self._prefill(request.prompt_tokens)
            self._cached += request.prompt_tokens - self._steps
            self._begun += 1
            heapq.heappush(self._running, (self._steps + request.tokens, self._begun, prompt, request))

    def _decode(self, steps: int, ended: RolloutRequest) -> None:
        """Decode to the end of a response, which was taken off the running ones."""
        live = len(self._running) + 1
        gear = self._policy.gear(-(-live // self._ranks))
        cached = (self._cached + live * (self._steps + steps / 2)) / self._ranks
        # The response that ends next stands for the others: their lengths so far are not kept in order.
        context = max(0, ended.tokens - steps)
        self.seconds += self._engine.step_time.seconds(gear, context, cached, steps)
        self._steps += steps

    def _prefill(self, tokens: int) -> float:
        return tokens / self._ranks * self._engine.prefill_seconds


def modes(job: Job, layout: Candidate, trace: Trace) -> tuple[ModeStep, ...]:
    """Return the mean step of each mode with a layout."""
    setup = rollout_setup(job, layout.layout.rollout, trace)
    seconds = layout.seconds
    train = seconds.log_probabilities + seconds.update + seconds.other
    # Responses of older weights need the pass of the old policy.
    skipped = "optimizations.skipOldLogProb" in job.enabled
    return (
        replace(steps(setup, trace, 0), train=train),
        replace(steps(setup, trace, WINDOW), train=train + (layout.forward_seconds if skipped else 0.0)),
    )


def steps(setup: Setup, trace: Trace, window: int) -> ModeStep:
    """Return the mean rollout of a step that begins with `window` batches in flight beside its own."""
    flow = Flow(setup.engine, setup.ranks, Policy("flow", Placement.INTERLEAVED, setup.gears))
    batch = max(1, len({request.prompt for request in trace.requests}))
    source, sent = enumerate(_groups(trace)), dict[int, int]()
    warm_up, counted = _rounds(len(trace.requests), window)
    rollout = age = 0.0
    for step in range(warm_up + counted):
        begin = flow.seconds
        flow.resume()
        while len(sent) < (1 + window) * batch:
            number, responses = next(source)
            sent[number] = step
            flow.add(number, responses)
        ages = [step - sent.pop(flow.next_prompt()) for _ in range(batch)]
        if step >= warm_up:
            rollout += flow.seconds - begin
            age += sum(ages) / batch
    mode = COLOCATE_ASYNC if window else SYNC
    return ModeStep(mode, rollout / counted, 0.0, age / counted)


def _rounds(responses: int, window: int) -> tuple[int, int]:
    """Return the steps of the warm-up and those that are counted."""
    return WARM_UP if window else 0, min(STEPS, max(2, RESPONSES_MAX // responses))


def _groups(trace: Trace) -> Iterator[list[RolloutRequest]]:
    """Yield the responses of one prompt after the other, in another order in each epoch."""
    groups: dict[int, list[RolloutRequest]] = {}
    for request in trace.requests:
        groups.setdefault(request.prompt, []).append(request)
    dice, order = random.Random(0), list(groups.values())  # noqa: S311 - a simulation
    while True:
        yield from order
        dice.shuffle(order)
