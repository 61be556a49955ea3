"""How requests are distributed over the replicas.

LateBinding keeps them in the router until a replica has room (rljob_runtime.verl_plugin.late_binding).
"""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import SET, Answer
from rljob.launchers.verl.sizes import engine_sequences, replicas

LATE_BINDING, REQUEST_COUNT, AUTO = "LateBinding", "RequestCount", "Auto"


def decide(spec: RLJobSpec) -> Answer:
    """Return the way. Holding requests back pays only where they queue, and there is a replica to choose."""
    if spec.optimizations.load_balancer != AUTO:
        return Answer(spec.optimizations.load_balancer, SET)
    if spec.trainer.mode == "Evaluate":
        return Answer(REQUEST_COUNT, "the number of requests of an evaluation is not known before it starts")
    count = replicas(spec)
    if count < 2:
        return Answer(REQUEST_COUNT, "there is one replica, which takes all requests")
    running = engine_sequences(spec) * spec.rollout.parallelism.data
    requests = spec.trainer.global_batch_size * spec.trainer.samples_per_prompt
    if requests <= count * running:
        return Answer(REQUEST_COUNT, f"{count} replicas run all {requests} requests of a step at a time")
    return Answer(
        LATE_BINDING, f"{count} replicas run {count * running} of the {requests} requests of a step at a time"
    )
