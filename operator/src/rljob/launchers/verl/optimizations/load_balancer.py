"""How requests are distributed over the engines: the data-parallel ranks of all replicas.

LateBinding keeps them in the router until a replica has room (rljob_runtime.verl_plugin.router.late_binding). Inside
the replica they go to the rank with the fewest (rank_choice).
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import SET, Answer
from rljob.core.validation.violation import Violation
from rljob.launchers.verl.agent import AGENT
from rljob.launchers.verl.asynchronous import with_mode
from rljob.launchers.verl.rows import ASYNC
from rljob.launchers.verl.sizes import engine_sequences, replicas

LATE_BINDING, REQUEST_COUNT, AUTO = "LateBinding", "RequestCount", "Auto"
FIELD = "spec.optimizations.loadBalancer"
PAUSED = (
    "a pause ends every request before its response has ended, and late binding learns the lengths of responses when "
    "requests end"
)
TURNS = (
    "with rollout.agent a response has several requests, and late binding learns the lengths of responses when "
    "requests end"
)


def decide(spec: RLJobSpec) -> Answer:
    """Return the way. Holding requests back pays only where they queue, and there is an engine to choose."""
    if spec.optimizations.load_balancer != AUTO:
        return Answer(spec.optimizations.load_balancer, SET)
    if spec.trainer.mode == "Evaluate":
        return Answer(REQUEST_COUNT, "the number of requests of an evaluation is not known before it starts")
    if ASYNC.holds(spec):
        return Answer(REQUEST_COUNT, f"{with_mode(spec)} {PAUSED}")
    if AGENT.holds(spec):
        return Answer(REQUEST_COUNT, TURNS)
    count = replicas(spec) * spec.rollout.parallelism.data
    if count < 2:
        return Answer(REQUEST_COUNT, "there is one engine, which takes all requests")
    running = count * engine_sequences(spec)
    requests = spec.trainer.global_batch_size * spec.trainer.samples_per_prompt
    if requests <= running:
        return Answer(REQUEST_COUNT, f"{count} engines run all {requests} requests of a step at a time")
    return Answer(LATE_BINDING, f"{count} engines run {running} of the {requests} requests of a step at a time")


def check(spec: RLJobSpec) -> Iterator[Violation]:
    """The router takes the end of a request for that of its response (verl_plugin/router/late_binding.py)."""
    if spec.optimizations.load_balancer != LATE_BINDING:
        return
    if ASYNC.holds(spec):
        yield Violation(FIELD, f"LateBinding, but {with_mode(spec)} {PAUSED}; use Auto, or set trainer.mode to Sync")
    if AGENT.holds(spec):
        yield Violation(FIELD, f"LateBinding, but {TURNS}; use Auto")
