"""Asynchronous training: verl's keys, what Auto decides, and what is only a warning."""

from __future__ import annotations

import math

import pytest
from builders import IDENTITY, Json, apart, merged, small_spec, typed, validate
from hypothesis import given
from hypothesis import strategies as st

from rljob.core.spec import decisions
from rljob.core.spec.mutability import change_violations, differences
from rljob.launchers import LAUNCHER
from rljob.launchers.verl.asynchronous import STORAGE_ROWS
from rljob_runtime.contract import JobConfig, NodeGroup, Role, TrainerMode

MODES = ("ColocateAsync", "SeparateAsync")
ROLLOUT = "actor_rollout_ref.rollout"
ENGINE = f"{ROLLOUT}.checkpoint_engine"
WARMUP = "trainer.v1.colocate_async.num_warmup_batches"
SAMPLER = "trainer.v1.sampler.max_off_policy"
CORRECTION = "algorithm.rollout_correction"
LOG_PROBS = "actor_rollout_ref.rollout.calculate_log_probs"
ROWS = "transfer_queue.backend.SimpleStorage.total_storage_size"


def colocated(**change: Json) -> Json:
    return merged(small_spec({"trainer": {"mode": "ColocateAsync"}}), change)


def separate(**change: Json) -> Json:
    return merged(small_spec(apart(rollout={"nodes": 3, "devicesPerNode": 4})), change)


def job(spec: Json) -> JobConfig:
    parsed = typed(spec)
    return LAUNCHER(parsed).job_config(IDENTITY, parsed, 1)


def test_a_job_is_synchronous_unless_it_says_otherwise() -> None:
    made = job(small_spec())
    assert made.mode is TrainerMode.SYNC
    assert not {WARMUP, f"{SAMPLER}_threshold", f"{CORRECTION}.rollout_is", ROWS} & set(made.overrides)


def test_an_asynchronous_job_states_every_default() -> None:
    made = job(colocated())
    assert made.mode is TrainerMode.COLOCATE_ASYNC
    assert {key: made.overrides[key] for key in (WARMUP, f"{SAMPLER}_threshold", f"{SAMPLER}_strategy")} == {
        WARMUP: 1.0,
        f"{SAMPLER}_threshold": 8,
        f"{SAMPLER}_strategy": "wait",
    }
    assert made.overrides[f"{CORRECTION}.rollout_is"] == "token"
    assert made.overrides[f"{CORRECTION}.rollout_is_threshold"] == 2.0
    assert made.overrides[LOG_PROBS] is True


def test_the_snapshot_of_an_asynchronous_job_holds_the_defaults() -> None:
    settings = typed(colocated()).trainer.async_
    assert settings is not None
    assert typed(small_spec()).trainer.async_ is None


def test_the_launcher_chooses_the_trainer() -> None:
    assert "trainer.v1.trainer_mode" not in job(colocated()).overrides


@pytest.mark.parametrize(("correction", "level"), [("Token", "token"), ("Sequence", "sequence"), ("None", None)])
def test_without_a_correction_verls_own_settings_apply(correction: str, level: str | None) -> None:
    made = job(colocated(trainer={"async": {"correction": correction, "correctionThreshold": "5"}})).overrides
    assert made.get(f"{CORRECTION}.rollout_is") == level
    assert made.get(f"{CORRECTION}.rollout_is_threshold") == (5.0 if level else None)


def keys(overrides: Json, *names: str) -> Json:
    """Return the keys that are set, of those below some names."""
    return {key: value for key, value in overrides.items() if key.lstrip("+").startswith(names)}


def test_a_job_apart_states_its_groups_and_how_weights_are_sent() -> None:
    made = job(separate(trainer={"miniBatchSize": 8}))
    assert made.mode is TrainerMode.SEPARATE_ASYNC
    assert made.groups == (NodeGroup("train", Role.TRAINER, 1, 2), NodeGroup("generate", Role.ROLLOUT, 3, 12))
    assert (made.nodes, made.devices) == (4, 14)
    sizes = ("trainer.nnodes", "trainer.n_gpus", f"{ROLLOUT}.nnodes", f"{ROLLOUT}.n_gpus")
    assert keys(made.overrides, *sizes) == {
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": 2,
        f"{ROLLOUT}.nnodes": 3,
        f"{ROLLOUT}.n_gpus_per_node": 4,
    }
    assert keys(
        made.overrides, "trainer.v1.separate_async", "trainer.v1.colocate_async", ENGINE, "actor_rollout_ref.h"
    ) == {
        "trainer.v1.separate_async.num_warmup_batches": 1.0,
        "trainer.v1.separate_async.parameter_sync_step": 4,
        "actor_rollout_ref.hybrid_engine": False,
        f"{ENGINE}.backend": "rljob_tcp",
        f"{ENGINE}.custom_backend_module": "rljob_runtime.verl_plugin.weights.tcp_engine",
    }
    assert made.overrides["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"] == 8 * 8 // 2


def test_on_npus_weights_are_sent_by_hccl() -> None:
    whole = {"devicesPerNode": 16}
    spec = small_spec(merged(apart(whole, whole), {"accelerator": {"class": "atlas-a3-superpod"}}))
    assert keys(job(spec).overrides, ENGINE) == {
        f"{ENGINE}.backend": "nccl",
        f"+{ENGINE}.engine_kwargs.nccl.rebuild_group": True,
    }


def test_nodes_of_two_sizes_need_what_the_smaller_one_has() -> None:
    small, large = ({"template": {"cpu": cpu, "sharedMemory": memory}} for cpu, memory in (("8", "2Gi"), ("16", "1Gi")))
    assert (job(small_spec(apart(small, large))).needs.cpus, job(small_spec(apart(large, small))).needs.cpus) == (8, 8)
    assert job(small_spec(apart(small, large))).needs.shared_memory_bytes == 1 << 30
    assert job(small_spec(apart(small))).needs.cpus is None


@given(
    ahead=st.integers(0, 160).map(lambda tenths: f"{tenths / 10:g}"),
    staleness=st.integers(1, 64),
    stale=st.sampled_from(["Wait", "Drop"]),
    batch=st.sampled_from([2, 32, 4096, 8192]),
    samples=st.sampled_from([2, 16]),
)
def test_a_job_that_is_accepted_trains_its_window_and_holds_it(
    ahead: str, staleness: int, stale: str, batch: int, samples: int
) -> None:
    trainer = {"async": {"prefetchBatches": ahead, "maxStaleness": staleness, "stale": stale}}
    spec = colocated(trainer={"globalBatchSize": batch, "samplesPerPrompt": samples, **trainer})
    # A prompt is sampled after the batches before it, and its span counts the step that sends it.
    span = math.ceil(float(ahead)) + 1
    made = job(spec).overrides
    threshold, rows = made[f"{SAMPLER}_threshold"], made.get(ROWS, STORAGE_ROWS)
    assert isinstance(threshold, int)
    assert isinstance(rows, int)
    assert (validate("sums", spec).violations == ()) == (span <= threshold)
    prompts = batch * (2 + float(ahead))
    assert rows >= prompts * (1 + samples)


def test_the_queue_of_a_large_synchronous_batch_is_enlarged_as_well() -> None:
    trainer = {"globalBatchSize": 8192, "samplesPerPrompt": 16}
    assert job(small_spec({"trainer": trainer})).overrides[ROWS] == 2 * 8192 * 17
    own: Json = {"verl": {"overrides": {ROWS: 500_000}}}
    assert job(merged(small_spec({"trainer": trainer}), own)).overrides[ROWS] == 500_000


@pytest.mark.parametrize("mode", MODES)
def test_auto_is_off_where_a_pause_or_older_weights_forbid_it(mode: str) -> None:
    # Synchronously, both would be on.
    many: Json = {"globalBatchSize": 4096, "samplesPerPrompt": 8}
    answers: dict[str, dict[str, tuple[str, str]]] = {}
    specs = {"ColocateAsync": colocated(trainer=many), "SeparateAsync": separate(trainer=many)}
    for spec in (small_spec({"trainer": many}), specs[mode]):
        parsed = typed(spec)
        answers[parsed.trainer.mode] = {
            each.name.removeprefix("optimizations."): (each.value, each.reason)
            for each in decisions.decide(parsed, LAUNCHER(parsed).questions)
        }
    assert [answers["Sync"][name][0] for name in ("skipOldLogProb", "loadBalancer")] == ["Enabled", "LateBinding"]
    skipped, balanced = (answers[mode][name] for name in ("skipOldLogProb", "loadBalancer"))
    assert skipped == (
        "Disabled",
        f"with trainer.mode {mode} responses come from older weights: the ratio is not 1",
    )
    assert balanced[0] == "RequestCount"
    assert f"with trainer.mode {mode} a pause ends every request" in balanced[1]


BYPASS: Json = {"verl": {"overrides": {f"{CORRECTION}.bypass_mode": True}}}
UNCORRECTED: Json = {"trainer": {"async": {"correction": "None"}}}
FILTERED: Json = {"algorithm": {"name": "DAPO", "groupFilter": {"maxInflightBatches": 2}}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        (UNCORRECTED, "None: responses of older weights are trained as if the present weights had generated them."),
        # The ratio is then that to the weights that generated.
        (merged(UNCORRECTED, BYPASS), None),
        (FILTERED, "2 has no effect with trainer.mode ColocateAsync"),
        ({"algorithm": {"name": "DAPO", "groupFilter": {}}}, None),
    ],
)
def test_a_doubtful_setting_is_one_warning(change: Json, words: str | None) -> None:
    checked = validate("sums", colocated(**change))
    assert checked.violations == ()
    assert len(checked.warnings) == (words is not None)
    assert all(str(words) in str(warning) for warning in checked.warnings)


def test_a_merged_adapter_is_sent_as_part_of_the_weights() -> None:
    model = "actor_rollout_ref.model"
    merged_adapter: Json = {"verl": {"overrides": {f"{model}.lora_rank": 8, f"{model}.lora.merge": True}}}
    assert validate("sums", colocated(**merged_adapter)).violations == ()


def test_a_job_keeps_its_mode_and_may_change_how_far_it_runs_ahead() -> None:
    began, further = typed(colocated()), typed(colocated(trainer={"async": {"prefetchBatches": "2", "stale": "Drop"}}))
    assert list(change_violations(began, further)) == []
    assert differences(began, further) == (
        "trainer.async.prefetchBatches: 1 -> 2",
        "trainer.async.stale: Wait -> Drop",
    )
    (refused,) = change_violations(began, typed(small_spec()))
    assert str(refused).startswith("spec.trainer.mode: Sync, but the job began with ColocateAsync")
