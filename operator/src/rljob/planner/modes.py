"""How long a step takes in each mode of the trainer, which waits for its own responses or trains what has ended.

The simulation is coarser than that of one batch (rollout/simulation.py): running responses spread evenly over the
ranks, and all ranks decode in one lockstep. All modes are simulated the same way, so what differs between them is the
mode. What it leaves out: verl's own work at a pause, prompts at the bound of staleness, and preemption: a full cache
only delays new responses.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rljob.planner.layouts import FILLED, Candidate, Job, Seconds, rollout_setup
from rljob.planner.rollout.policies import Placement, Policy
from rljob.planner.rollout.replica import Engine
from rljob.planner.rollout.setup import Setup
from rljob.planner.rollout.traces import RolloutRequest, Trace

SYNC, COLOCATE_ASYNC, SEPARATE_ASYNC = "Sync", "ColocateAsync", "SeparateAsync"
"""Values of trainer.mode."""
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
    """Seconds in which nothing is trained because responses are generated."""
    train: float
    """Seconds of log-probabilities, update and the rest."""
    staleness: float
    """Mean number of steps between sending a prompt and training it, each of which brings new weights."""
    transfer: float = 0.0
    """Seconds in which weights are sent to a rollout that stands apart, and neither side works."""
    generation: float | None = None
    """Seconds in which such a rollout generates, nearly all of them while the trainer trains."""

    @property
    def total(self) -> float:
        """Seconds of the step."""
        return self.rollout + self.train + self.transfer


class Flow:
    """The responses that run and wait. All running ones gain a token in each decoding step."""

    def __init__(self, engine: Engine, ranks: int, policy: Policy) -> None:
        self._engine, self._ranks, self._policy = engine, ranks, policy
        self.seconds = 0.0
        self.idle = 0.0
        """Seconds in which no response ran, before the time that `until` was given."""
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
            if (prompt := self._end_next()) is not None:
                return prompt

    def until(self, seconds: float) -> list[int]:
        """Generate until a time, and return the prompts that have all their responses by then."""
        ended: list[int] = []
        while self.seconds < seconds:
            self._admit()
            if not self._running:
                self.idle += seconds - self.seconds
                self.seconds = seconds
                break
            steps, request = self._running[0][0] - self._steps, self._running[0][3]
            needed = self._step_seconds(len(self._running), steps, request)
            if self.seconds + needed > seconds:
                self._steps += int(steps * max(0.0, seconds - self.seconds) / needed)
                self.seconds = max(self.seconds, seconds)
            elif (prompt := self._end_next()) is not None:
                ended.append(prompt)
        return ended

    def _end_next(self) -> int | None:
        """Decode to the end of the next response; return its prompt if that was the last one of it."""
        ends, _, prompt, request = heapq.heappop(self._running)
        steps = ends - self._steps
        self.seconds += self._step_seconds(len(self._running) + 1, steps, request)
        self._steps = ends
        self._cached += ends - request.tokens - request.prompt_tokens
        self._left[prompt] -= 1
        if self._left[prompt]:
            return None
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

    def _step_seconds(self, live: int, steps: int, ends: RolloutRequest) -> float:
        """Return the seconds of the steps to the end of the response that ends next."""
        gear = self._policy.gear(-(-live // self._ranks))
        cached = (self._cached + live * (self._steps + steps / 2)) / self._ranks
        # That response stands for the others: their lengths so far are not kept in order.
        return self._engine.step_time.seconds(gear, max(0, ends.tokens - steps), cached, steps)

    def _prefill(self, tokens: int) -> float:
        return tokens / self._ranks * self._engine.prefill_seconds


def modes(job: Job, layout: Candidate, trace: Trace) -> tuple[ModeStep, ...]:
    """Return the mean step of each mode that a layout allows: one where trainer and rollout stand apart, else two."""
    setup = rollout_setup(job, layout.layout.rollout, trace)
    seconds = layout.seconds
    if seconds.transfer is not None:
        return (overlapped(setup, trace, job.window, job.updates, seconds),)
    # Responses of older weights need the pass of the old policy.
    skipped = "optimizations.skipOldLogProb" in job.enabled
    ahead = seconds.training + (layout.forward_seconds if skipped else 0.0)
    return (
        replace(steps(setup, trace, 0), train=seconds.training),
        replace(steps(setup, trace, job.window), mode=COLOCATE_ASYNC, train=ahead),
    )


def steps(setup: Setup, trace: Trace, window: float) -> ModeStep:
    """Return the mean rollout of a step that begins with `window` batches in flight beside its own."""
    flow = _flow(setup)
    batch, held = _sizes(trace, window)
    source, sent = enumerate(_groups(trace)), dict[int, int]()
    warm_up, counted = _rounds(len(trace.requests), window)
    rollout = age = 0.0
    for step in range(warm_up + counted):
        begin = flow.seconds
        flow.resume()
        _send(flow, source, sent, held, step)
        ages = [step - sent.pop(flow.next_prompt()) for _ in range(batch)]
        if step >= warm_up:
            rollout += flow.seconds - begin
            age += sum(ages) / batch
    mode = COLOCATE_ASYNC if window else SYNC
    return ModeStep(mode, rollout / counted, 0.0, age / counted)


def overlapped(setup: Setup, trace: Trace, window: float, updates: int, seconds: Seconds) -> ModeStep:
    """Return the mean step of a trainer and a rollout that stand apart.

    Each update begins when its share of the batch has ended, and trains the prompts that were sent first. Generation
    continues meanwhile, until the step's weights are sent: then it pauses, and new prompts follow.
    """
    transfer = seconds.transfer or 0.0
    flow = _flow(setup)
    batch, held = _sizes(trace, window)
    source, sent, ended = enumerate(_groups(trace)), dict[int, int](), list[int]()
    warm_up, counted = _rounds(len(trace.requests), window)
    now = begin = idle = age = waited = 0.0
    for step in range(warm_up + counted):
        if step == warm_up:
            begin, idle, age, waited = now, flow.idle, 0.0, 0.0
        flow.resume()
        _send(flow, source, sent, held, step)
        for update in range(updates):
            share = batch * (update + 1) // updates - batch * update // updates
            if len(ended) < share:
                while len(ended) < share:
                    heapq.heappush(ended, flow.next_prompt())
                waited += flow.seconds - now
                now = flow.seconds
            age += sum(step - sent.pop(heapq.heappop(ended)) for _ in range(share)) / batch
            now += seconds.training / updates
            for prompt in flow.until(now):
                heapq.heappush(ended, prompt)
        # Prompts that have begun to be read are read first.
        waited += flow.seconds - now
        flow.seconds = now = flow.seconds + transfer
    return ModeStep(
        SEPARATE_ASYNC,
        waited / counted,
        seconds.training,
        age / counted,
        transfer,
        (now - begin - (flow.idle - idle)) / counted - transfer,
    )


def _flow(setup: Setup) -> Flow:
    return Flow(setup.engine, setup.ranks, Policy("flow", Placement.INTERLEAVED, setup.gears))


def _sizes(trace: Trace, window: float) -> tuple[int, int]:
    """Return the prompts of a step, and those in flight when it begins."""
    batch = max(1, len({request.prompt for request in trace.requests}))
    return batch, batch + math.floor(window * batch)


def _send(
    flow: Flow, source: Iterator[tuple[int, list[RolloutRequest]]], sent: dict[int, int], held: int, step: int
) -> None:
    """Send prompts until as many are in flight, or wait to be trained."""
    while len(sent) < held:
        number, responses = next(source)
        sent[number] = step
        flow.add(number, responses)


def _rounds(responses: int, window: float) -> tuple[int, int]:
    """Return the steps of the warm-up, in which a prompt's turn comes, and those that are counted."""
    warm_up = WARM_UP + max(0, math.ceil(window) - 1) if window else 0
    return warm_up, min(STEPS, max(2, RESPONSES_MAX // responses))


def _groups(trace: Trace) -> Iterator[list[RolloutRequest]]:
    """Yield the responses of one prompt after the other, in another order in each epoch."""
    groups: dict[int, list[RolloutRequest]] = {}
    for request in trace.requests:
        groups.setdefault(request.prompt, []).append(request)
    dice, order = random.Random(0), list(groups.values())  # noqa: S311 - a simulation
    while True:
        yield from order
        dice.shuffle(order)
