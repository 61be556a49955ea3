"""Every Auto is decided once, with a correct reason."""

import pytest
from builders import Json, apart, group, merged, small_spec, typed

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import QUESTIONS, decide
from rljob.launchers import LAUNCHER
from rljob.launchers.verl.job import overrides
from rljob.render.names import JobIdentity

ATLAS: Json = {"accelerator": {"class": "atlas-a2"}}
IDENTITY = JobIdentity("team-a", "sums", "uid-1")
APART = apart({"template": {"cpu": "8"}})
RUNTIME: Json = {"runtime": {"runtimeClassName": "npu"}}
ONE_RANK = group({"devicesPerNode": 1})
SHUFFLED: Json = {"verl": {"overrides": {"actor_rollout_ref.actor.shuffle": True}}}
SAVES: Json = {"checkpoint": {"path": "/ckpt", "everySteps": 5}}
LENGTH_AWARE: Json = {"optimizations": {"promptOrder": "LengthAware"}}
DISCARDS: Json = {"optimizations": {"sleepLevel": 2}}
ROLLOUT = "actor_rollout_ref.rollout"


def override(key: str, value: object) -> Json:
    return {"verl": {"overrides": {key: value}}}


ONE_REPLICA: Json = {"rollout": {"parallelism": {"tensor": 2}}}
ONE_REPLICA_OF_TWO: Json = {"rollout": {"parallelism": {"data": 2}}}
HUGE_STEP: Json = {"trainer": {"globalBatchSize": 1024}}
ENGINE_SEQUENCES: Json = {"verl": {"overrides": {"actor_rollout_ref.rollout.engine_kwargs.vllm.max_num_seqs": 8}}}
EVALUATE: Json = {"trainer": {"mode": "Evaluate"}}


def sequences(count: int) -> Json:
    return {"rollout": {"maxSequences": count}}


def sized(cpu: str) -> Json:
    return group({"template": {"cpu": cpu}})


def answer(name: str, *changes: Json) -> tuple[str, str]:
    spec = small_spec()
    for change in changes:
        spec = merged(spec, change)
    return next(
        (made.value, made.reason) for made in decide(typed(spec), LAUNCHER(typed(spec)).questions) if made.name == name
    )


@pytest.mark.parametrize(
    ("name", "changes", "value", "word"),
    [
        ("trainer.microBatchSizePerDevice", (), "128", "share of a mini batch"),
        ("trainer.microBatchSizePerDevice", ({"trainer": {"microBatchSizePerDevice": 4}},), "4", "set in the spec"),
        ("trainer.microBatchSizePerDevice", ({"trainer": {"maxTokensPerDevice": 99}},), "128", "splits it by tokens"),
        ("optimizations.skipOldLogProb", (), "Enabled", "one update of a batch makes the ratio 1"),
        ("optimizations.skipOldLogProb", ({"optimizations": {"skipOldLogProb": "Enabled"}},), "Enabled", "set in"),
        ("optimizations.skipOldLogProb", ({"trainer": {"mode": "Evaluate"}},), "Disabled", "trains nothing"),
        ("optimizations.skipOldLogProb", (override("algorithm.use_kl_in_reward", True),), "Disabled", "KL penalty"),
        (
            "optimizations.skipOldLogProb",
            (override("actor_rollout_ref.model.lora", {"dropout": 0.1}),),
            "Disabled",
            "dropout 0.1",
        ),
        ("optimizations.skipOldLogProb", ({"trainer": {"miniBatchSize": 8}},), "Disabled", "4 updates of a batch"),
        ("optimizations.skipOldLogProb", ({"trainer": {"miniBatchSize": 12}},), "Disabled", "3 updates of a batch"),
        ("optimizations.skipOldLogProb", ({"optimizations": {"skipOldLogProb": "Disabled"}},), "Disabled", "set in"),
        ("optimizations.coreBinding", (), "Disabled", "class cpu"),
        ("optimizations.coreBinding", (ATLAS,), "Enabled", "chosen on its node"),
        ("optimizations.coreBinding", ({"optimizations": {"coreBinding": "Enabled"}},), "Enabled", "set in"),
        ("optimizations.coreBinding", (ATLAS, {"optimizations": {"coreBinding": "Disabled"}}), "Disabled", "set in"),
        ("accelerator.driverMounts", (), "None", "class cpu has no driver"),
        ("accelerator.driverMounts", (ATLAS,), "HostPath", "from the accelerator table, class atlas-a2"),
        ("accelerator.driverMounts", (ATLAS, {"accelerator": {"driverMounts": "None"}}), "None", "set in the spec"),
        ("accelerator.driverMounts", (ATLAS, RUNTIME), "RuntimeClass", "runtime.runtimeClassName is npu"),
        ("workerGroups[0].template", (), "none", "no default size"),
        ("workerGroups[0].template", (ATLAS, sized("46")), "cpu 46, memory 358400Mi, sharedMemory 65536Mi", "memory"),
        ("workerGroups[0].template", (group({"template": {"cpu": "46"}}),), "cpu 46", "set in the spec"),
        ("workerGroups[0].template", (APART,), "cpu 8", "set in the spec"),
        ("workerGroups[1].template", (APART,), "none", "no default size"),
        ("workerGroups[1].template", (apart(None, {"template": {"cpu": "46"}}),), "cpu 46", "set in the spec"),
        ("optimizations.gcFreeze", (), "Enabled", "lives as long as the process"),
        ("optimizations.gcFreeze", ({"optimizations": {"gcFreeze": "Enabled"}},), "Enabled", "set in the spec"),
        ("optimizations.gcFreeze", ({"optimizations": {"gcFreeze": "Disabled"}},), "Disabled", "set in the spec"),
        ("optimizations.loadBalancer", (ONE_REPLICA,), "RequestCount", "one engine"),
        ("optimizations.loadBalancer", (ONE_REPLICA_OF_TWO, sequences(127)), "LateBinding", "2 engines run 254 of"),
        ("optimizations.loadBalancer", (), "RequestCount", "2 engines run all 256 requests"),
        ("optimizations.loadBalancer", (sequences(127),), "LateBinding", "2 engines run 254 of the 256"),
        ("optimizations.loadBalancer", (sequences(127), ENGINE_SEQUENCES), "LateBinding", "run 16 of the 256"),
        ("optimizations.loadBalancer", (ATLAS, HUGE_STEP), "LateBinding", "2 engines run 512 of the 8192"),
        ("optimizations.loadBalancer", (sequences(9), EVALUATE), "RequestCount", "an evaluation"),
        ("optimizations.loadBalancer", ({"optimizations": {"loadBalancer": "LateBinding"}},), "LateBinding", "set"),
        ("optimizations.loadBalancer", ({"optimizations": {"loadBalancer": "RequestCount"}},), "RequestCount", "set"),
        ("optimizations.batchBalance", (ONE_RANK,), "Disabled", "one data-parallel rank"),
        ("optimizations.batchBalance", (), "Enabled", "2 data-parallel ranks wait for the slowest at the up"),
        (
            "optimizations.batchBalance",
            ({"trainer": {"miniBatchSize": 8}},),
            "Enabled",
            "each of the updates, 4",
        ),
        ("optimizations.batchBalance", (SHUFFLED,), "Disabled", "draws its mini-batches at random"),
        ("optimizations.batchBalance", ({"optimizations": {"batchBalance": "Enabled"}},), "Enabled", "set in"),
        ("optimizations.batchBalance", ({"trainer": {"mode": "Evaluate"}},), "Disabled", "trains nothing"),
        ("optimizations.batchBalance", ({"optimizations": {"batchBalance": "Disabled"}},), "Disabled", "set in"),
        ("optimizations.sleepLevel", (), "1", "host memory"),
        ("optimizations.sleepLevel", (DISCARDS,), "1", "do not sleep on class cpu"),
        ("optimizations.sleepLevel", (ATLAS, DISCARDS), "2", "set in the spec"),
        (
            "optimizations.sleepLevel",
            (ATLAS, DISCARDS, override(f"{ROLLOUT}.free_cache_engine", False)),
            "1",
            "an override",
        ),
        (
            "optimizations.sleepLevel",
            (ATLAS, DISCARDS, override(f"+{ROLLOUT}.enable_sleep_mode", False)),
            "1",
            "an override",
        ),
        ("optimizations.promptOrder", (), "Default", "verl's order"),
        ("optimizations.promptOrder", (LENGTH_AWARE,), "LengthAware", "the first epoch has verl's order"),
        ("optimizations.promptOrder", (LENGTH_AWARE, {"trainer": {"mode": "Evaluate"}}), "Default", "Evaluate"),
        ("scheduling.gang", (), "None", "scheduling.queueName is not set"),
        ("scheduling.gang", ({"scheduling": {"queueName": "a3"}},), "Kueue", "queue a3"),
        ("scheduling.gang", (ATLAS,), "None", "no cluster was asked"),
        ("scheduling.gang", ({"scheduling": {"gang": "Volcano"}},), "Volcano", "set in the spec"),
        ("scheduling.gang", ({"scheduling": {"gang": "Volcano", "queueName": "a"}},), "Volcano", "set in the spec"),
        ("scheduling.gang", ({"scheduling": {"gang": "None"}},), "None", "set in the spec"),
        ("restart.scope", (), "Auto", "gets a new cluster"),
        ("restart.scope", ({"restart": {"scope": "Cluster"}},), "Cluster", "set in the spec"),
        ("stop.mode", (), "Immediate", "nothing can be saved"),
        ("stop.mode", (SAVES, {"stop": {"graceSeconds": 90}}), "Auto", "graceSeconds 90"),
        ("stop.mode", ({"stop": {"mode": "AbortRollout"}},), "AbortRollout", "set in the spec"),
        ("checkpoint.resume", (), "Never", "nothing is saved"),
        ("checkpoint.resume", (SAVES,), "Auto", "/ckpt"),
        ("checkpoint.resume", (SAVES, {"checkpoint": {"resume": "Never"}}), "Never", "set in the spec"),
    ],
)
def test_a_decision_and_its_reason(name: str, changes: tuple[Json, ...], value: str, word: str) -> None:
    found, reason = answer(name, *changes)
    assert (found, word in reason) == (value, True), reason


def binds(spec: RLJobSpec) -> bool:
    return LAUNCHER(spec).job_config(IDENTITY, spec, 1).core_binding


def test_a_decision_says_what_is_rendered() -> None:
    disabled = merged(small_spec(ATLAS), {"optimizations": {"coreBinding": "Disabled"}})
    key = "+actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.enable_cpu_binding"
    assert overrides(typed(disabled))[key] is False
    assert binds(typed(disabled)) is False
    assert binds(typed(small_spec(ATLAS))) is True
    assert binds(typed(small_spec())) is False
    micro = str(overrides(typed())["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"])
    assert answer("trainer.microBatchSizePerDevice")[0] == micro


def test_decisions_fit_the_status() -> None:
    assert len({question.name for question in QUESTIONS}) == len(QUESTIONS) < 32
