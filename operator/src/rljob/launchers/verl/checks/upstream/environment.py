"""Variables that end a run, or that verl sets for each process, wherever a manifest can set them.

Trainer and engine inherit from the worker pods, from Ray's runtime environment, and from the class's row. The head's
variables reach the driver only (verl forwards few of them: verl/trainer/constants_ppo.py:86, 0.9.1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rljob.core.validation import fields
from rljob.core.validation.violation import Violation
from rljob.launchers.verl.checks.upstream.settings import Settings
from rljob.launchers.verl.effective import VLLM
from rljob.launchers.verl.variables import of_template, worker_variables


@dataclass(frozen=True)
class VariableRule:
    """A variable, or a pair of them, on which a pinned upstream release fails."""

    name: str
    source: str
    variable: str
    fails: Callable[[Settings, str, Mapping[str, str]], bool]
    """Receives the settings, the variable's value, and the values of all variables."""
    message: str


RULES = (
    VariableRule(
        "allocator-segments",
        "vllm_ascend/device_allocator/camem.py:153",
        "PYTORCH_NPU_ALLOC_CONF",
        lambda s, value, _: s.is_npu and "expandable_segments:True" in value and _sleeps(s),
        "expandable_segments:True ends the engine, because the rollout frees its memory between steps (sleep mode); "
        "remove it: verl switches the segments itself",
    ),
    VariableRule(
        "launch-blocking",
        "vllm_ascend/platform.py:651",
        "ASCEND_LAUNCH_BLOCKING",
        lambda s, value, _: s.is_npu and value == "1" and not s.on(f"{VLLM}.enforce_eager"),
        "1 excludes captured graphs, and the engine refuses to start; remove it, or set spec.rollout.eager",
    ),
    VariableRule(
        "engine-version",
        "vllm_ascend/utils.py:620",
        "VLLM_VERSION",
        lambda s, value, _: s.is_npu and re.match(r"v?\d+(\.\d+)*", value.strip()) is None,
        "vllm-ascend compares it as a version such as 0.23.0; remove it",
    ),
    VariableRule(
        "engine-data-size",
        "vllm/config/parallel.py:827",
        "VLLM_DP_SIZE",
        lambda s, value, _: value.strip() != "1" and s.spec.rollout.parallelism.data == 1,
        "vLLM takes it for the size of each replica and waits for ranks that do not exist; remove it and set "
        "spec.rollout.parallelism.data",
    ),
    VariableRule(
        "engine-dev-endpoints",
        "vllm/entrypoints/openai/api_server.py:197",
        "VLLM_SERVER_DEV_MODE",
        lambda _, value, __: value.strip() == "1",
        "the engines' HTTP ports, which ask for no key, would offer calls of any method and sleep to every pod that "
        "reaches them; remove it",
    ),
    VariableRule(
        "visible-rocr",
        "verl/single_controller/base/worker.py:267",
        "ROCR_VISIBLE_DEVICES",
        lambda _, value, seen: bool(value and seen.get("CUDA_VISIBLE_DEVICES")),
        "verl refuses it beside CUDA_VISIBLE_DEVICES; remove both",
    ),
    VariableRule(
        "visible-hip",
        "verl/single_controller/base/worker.py:247",
        "HIP_VISIBLE_DEVICES",
        lambda _, value, seen: bool(value) and seen.get("CUDA_VISIBLE_DEVICES", "") not in ("", value),
        "verl refuses it beside a different CUDA_VISIBLE_DEVICES; remove both",
    ),
)

OF_A_WORKER = "verl sets it for each of its workers, and every other process would inherit this value"
OF_THE_HEAD = "belongs to single processes of the workers, and a value on the head reaches the driver only"
PER_PROCESS = {
    **dict.fromkeys(
        ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT", "WG_PREFIX", "WG_BACKEND", "RAY_LOCAL_WORLD_SIZE"),
        f"{OF_A_WORKER} (verl/single_controller/ray/base.py:632)",
    ),
    "LOCAL_RANK": "verl takes it for the device of every worker (verl/single_controller/base/worker.py:203)",
    "LOCAL_WORLD_SIZE": "verl takes it for its workers on a node (verl/single_controller/base/worker.py:202)",
    "DIST_INIT_METHOD": "all process groups would meet at this address (verl/utils/distributed.py:67)",
    "VERL_REPLICA_RANK": "verl sets it for each replica (verl/workers/rollout/vllm_rollout/vllm_async_server.py:136)",
    "VERL_RAY_JOB_ID": "verl sets it for each replica (verl/workers/rollout/vllm_rollout/vllm_async_server.py:143)",
    "VERL_ZMQ_BASE_TRAINER_RANK": "every replica would take the weights of the same trainer ranks "
    "(verl/workers/rollout/vllm_rollout/utils.py:429)",
    **dict.fromkeys(
        ("VLLM_DP_RANK", "VLLM_DP_RANK_LOCAL", "VLLM_DP_MASTER_IP", "VLLM_DP_MASTER_PORT"),
        "every replica would take it for its own (vllm/config/parallel.py:828)",
    ),
}
"""Variables of single processes, and what a value on all pods does (verl 0.9.1, vLLM 0.23.0)."""


def _sleeps(s: Settings) -> bool:
    """Report whether the engine has sleep mode: verl's default (verl/workers/config/rollout.py:268, 0.9.1)."""
    return s.on(f"{VLLM}.enable_sleep_mode", default=True)


def variables_that_fail(settings: Settings) -> Iterator[Violation]:
    """Report variables that upstream refuses when a worker or the engine starts."""
    found = worker_variables(settings.spec)
    values = {entry.name: entry.value for entry in found if entry.value is not None}
    for entry in found:
        for rule in RULES:
            if entry.name == rule.variable and entry.value is not None and rule.fails(settings, entry.value, values):
                yield Violation(entry.field, f"{rule.variable}: {rule.message}")


def variables_in_the_wrong_place(settings: Settings) -> Iterator[Violation]:
    """Report variables of single processes, which every process inherits, and those of the engine on the head."""
    head = tuple(of_template(settings.spec, fields.HEAD))
    for entry in worker_variables(settings.spec):
        if (why := PER_PROCESS.get(entry.name)) is not None:
            yield Violation(entry.field, f"{entry.name}: {why}; remove it")
    for entry in head:
        if entry.name in PER_PROCESS:
            yield Violation(entry.field, f"{entry.name} {OF_THE_HEAD}; remove it")
        elif entry.name in {rule.variable for rule in RULES}:
            yield Violation(entry.field, f"{entry.name} reaches the driver only, no worker and no engine; remove it")
