"""What vLLM does with its weights during training.

At level 1 an engine copies its weights to host memory when it goes to sleep, and back when it wakes up, only for the
next weight sync to overwrite them. At level 2 it discards them. verl 0.9.1 chooses level 1 on NPUs
(workers/rollout/vllm_rollout/vllm_async_server.py:1303); the runtime's server chooses what the spec says.
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import SET, Answer
from rljob.core.validation.violation import Violation
from rljob.launchers.verl.effective import effective
from rljob.launchers.verl.rows import MODEL, ROLLOUT
from rljob.launchers.verl.trained import trained
from rljob.render.accelerators import facts_of
from rljob_runtime.planning.on_policy import is_on

KEEP, DISCARD = 1, 2
FIELD = "spec.optimizations.sleepLevel"
SLEEPS = f"{ROLLOUT}.free_cache_engine"
"""Whether verl lets engines sleep (vllm_async_server.py:854)."""


def decide(spec: RLJobSpec) -> Answer:
    """Return the level of sleep."""
    if spec.optimizations.sleep_level == KEEP:
        return Answer(str(KEEP), "the weights stay in host memory")
    if not facts_of(spec).is_npu:
        return Answer(str(KEEP), f"engines do not sleep on class {spec.accelerator.class_}")
    seen = effective(spec)
    if seen.value(SLEEPS) is False or seen.engine_value("enable_sleep_mode") is False:
        return Answer(str(KEEP), "engines do not sleep: an override says so")
    return Answer(str(DISCARD), SET)


def check(spec: RLJobSpec) -> Iterator[Violation]:
    """Only what the next weight sync sends can be discarded (vllm_async_server.py:1289-1305)."""
    if spec.optimizations.sleep_level == KEEP:
        return
    for field, problem in _problems(spec):
        yield Violation(FIELD, f"{DISCARD} discards {problem} ({field}); set it to {KEEP}")


def _problems(spec: RLJobSpec) -> Iterator[tuple[str, str]]:
    seen, what = effective(spec), trained(spec)
    if what.field is not None and what.rank and not what.merged:
        yield what.field, "the weights below LoRA's adapter, and only the adapter is sent again"
    if is_on(seen.value(f"{MODEL}.mtp.enable")) and is_on(seen.value(f"{MODEL}.mtp.enable_rollout")):
        yield seen.field(f"{MODEL}.mtp.enable_rollout"), "the drafter's weights, which are not sent again"


def warn(spec: RLJobSpec) -> Iterator[Violation]:
    """A comment in verl expects inaccuracies with distributed experts (vllm_async_server.py:1295)."""
    if spec.optimizations.sleep_level == DISCARD and facts_of(spec).is_npu and spec.rollout.parallelism.expert > 1:
        yield Violation(
            FIELD,
            f"{DISCARD} with rollout.parallelism.expert {spec.rollout.parallelism.expert} is not proven on NPUs; "
            f"compare training/rollout_probs_diff_mean of the second step with the first, or set it to {KEEP}",
        )
