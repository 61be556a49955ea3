"""Layouts of a job: which are considered, what they cost, and in which order they are shown."""

from __future__ import annotations

import dataclasses

import pytest

from rljob.planner import layouts
from rljob.planner.layouts import Candidate, Job, Layout, candidates, rollout_sizes, trainer_sizes
from rljob.planner.placements import compare, devices_text
from rljob.planner.rollout.estimate import ReplicaSize, engine
from rljob.planner.rollout.published import RECIPES, UNIFORM
from rljob.planner.rollout.setup import Setup
from rljob.planner.rollout.step_time import Origin
from rljob.planner.rollout.traces import RolloutRequest
from rljob.planner.stages import (
    PUBLISHED,
    PublishedStep,
    TrainerSize,
    communication_seconds,
    forward_seconds,
    other_seconds,
    slowdown,
    transfer_seconds,
    update_seconds,
    work,
)
from rljob.planner.switches import BALANCE, DRAFTS, GEARS, LATE, SKIP, Effect, _overlapped, effects, waiting_share
from rljob_runtime.planning import memory
from rljob_runtime.planning.architectures import BUILT_IN
from rljob_runtime.planning.shapes import Shape
from rljob_runtime.planning.weights import Cut

GIB = 1 << 30
DIE = memory.Die(64 * GIB, 61 * GIB, 400 << 20)
DENSE, MOE, QWEN = (BUILT_IN[name] for name in ("Qwen2.5-7B", "Qwen3-30B-A3B", "Qwen3-235B-A22B"))
OWN = Layout(ReplicaSize(4, 1, 1), TrainerSize(4, 1, 1, 1))


def job(
    shape: Shape = DENSE,
    layout: Layout = OWN,
    devices: int = 16,
    trainer_engine: memory.Engine = memory.Engine.MEGATRON,
) -> Job:
    """Return a job with 32 prompts and 8 responses each, of up to 2,048 tokens."""
    rollout, trainer = layout.rollout, layout.trainer
    replicas = max(1, devices // rollout.devices)
    return Job(
        shape=shape,
        die=DIE,
        trainer=memory.Trainer(
            engine=trainer_engine,
            devices=devices,
            stage_layers=(shape.layers // trainer.pipeline,) * trainer.pipeline,
            tokens=4096,
            micro_batches=4,
            cut=Cut(trainer.tensor, trainer.expert, trainer.tensor),
            context=trainer.context,
            recompute=memory.Recompute.UNIFORM,
            offload_weights=True,
            offload_optimizer=True,
            reference=True,
        ),
        rollout=memory.Rollout(
            tensor=rollout.tensor,
            data=rollout.data,
            expert=rollout.expert,
            memory_fraction=0.6,
            sequences=16,
            batched_tokens=4096,
            sequence_tokens=4096,
            bucket_bytes=2 << 30,
        ),
        setup=Setup(
            engine=engine(shape, rollout, 16, 400_000),
            replicas=replicas,
            gears=(4, 16),
            prompts=32,
            samples=8,
            prompt_tokens=100,
            response_tokens=2048,
            devices=devices,
            dies_per_card=2,
        ),
        layout=layout,
        node_devices=8,
        trainer_node_devices=8,
        updates=1,
        enabled=frozenset(),
    )


TRACE = UNIFORM.draw(32, 8)


@pytest.mark.parametrize("step", PUBLISHED, ids=lambda step: step.name)
def test_stages_of_published_steps_are_met(step: PublishedStep) -> None:
    layout = next(row.layout for row in layouts.PUBLISHED if row.architecture == step.architecture)
    shape = BUILT_IN[step.architecture]
    stages = {"Qwen3-235B-A22B": (23, 24, 24, 23), "DeepSeek-V3": (7, 7, 8, 8, 8, 8, 8, 7)}[step.architecture]
    done = work(shape, RECIPES[step.lengths].draw(step.prompts, step.samples).requests)
    assert done.tokens == pytest.approx(step.tokens, rel=0.01)
    # DeepSeek-V3's micro batch is one response.
    slower = slowdown(done, step.devices, layout.trainer, stages, 1651 if len(stages) == 8 else 34_816)
    assert slower * update_seconds(done, step.devices) == pytest.approx(step.update, rel=0.06)
    if step.reference:
        assert slower * forward_seconds(done, step.devices) == pytest.approx(step.reference, rel=0.13)
        rest = step.total - step.rollout - step.reference - step.update
        assert other_seconds(done) == pytest.approx(rest, rel=0.01)


def test_a_pipeline_uneven_stages_and_split_sequences_slow_a_pass_down() -> None:
    done = work(DENSE, TRACE.requests)
    plain = slowdown(done, 16, TrainerSize(4), (28,), 4096)
    assert plain == 1
    assert slowdown(done, 16, TrainerSize(4, 2), (14, 14), 4096) > plain
    assert slowdown(done, 16, TrainerSize(4, 2), (10, 18), 4096) > slowdown(done, 16, TrainerSize(4, 2), (14, 14), 4096)
    assert slowdown(done, 16, TrainerSize(4, 1, 2), (28,), 4096) == pytest.approx(1 + 70 / (done.tokens / 256))


def test_tensor_and_context_ranks_communicate() -> None:
    done = work(DENSE, TRACE.requests)
    alone, tensor, context = (
        communication_seconds(DENSE, done, 16, TrainerSize(t, 1, c)) for t, c in ((1, 1), (2, 1), (1, 2))
    )
    assert alone == 0
    assert tensor > context > 0
    latent = BUILT_IN["DeepSeek-V3"]
    assert communication_seconds(latent, work(latent, TRACE.requests), 16, TrainerSize(1, 1, 2)) > 0


def test_sizes_divide_model_devices_and_batch() -> None:
    dense = set(rollout_sizes(job()))
    # Qwen2.5-7B has 28 heads and 4 of keys.
    assert dense == {ReplicaSize(tensor, 1, 1) for tensor in (1, 2, 4)}
    moe = set(rollout_sizes(job(MOE, Layout(ReplicaSize(4, 4, 16), TrainerSize(4, 1, 1, 4)))))
    assert ReplicaSize(4, 4, 16) in moe
    assert ReplicaSize(4, 2, 8) in moe
    assert all(size.expert == size.devices and 16 % size.devices == 0 for size in moe)
    trainers = list(trainer_sizes(job()))
    assert TrainerSize(4, 2, 2) in trainers
    assert all(16 % size.model == 0 and 28 % size.tensor == 0 and size.expert == 1 for size in trainers)
    experts = {size.expert for size in trainer_sizes(job(MOE, Layout(ReplicaSize(4, 4, 16), TrainerSize(4, 1, 1, 4))))}
    assert experts == {1, 2, 4, 8, 16}


def test_experts_must_divide_over_the_ranks_of_a_replica() -> None:
    # 128 experts do not divide over 12 ranks.
    assert set(rollout_sizes(job(MOE, Layout(ReplicaSize(4, 1, 4), TrainerSize(4)), devices=12))) == set()


def test_a_number_of_expert_ranks_that_the_job_states_is_kept() -> None:
    stated = job(MOE, Layout(ReplicaSize(4, 4, 16), TrainerSize(4, 1, 1, 4)))
    stated = dataclasses.replace(stated, trainer=dataclasses.replace(stated.trainer, cut=Cut(4, 4, 1)))
    assert TrainerSize(4, 1, 1, 16) in list(trainer_sizes(stated))
    assert layouts.trainer_memory(stated, TrainerSize(2, 1, 1, 8)).cut == Cut(2, 8, 1)


def test_the_trainer_of_fsdp_has_one_size() -> None:
    fsdp = job(layout=Layout(ReplicaSize(4, 1, 1), TrainerSize()), trainer_engine=memory.Engine.FSDP2)
    assert list(trainer_sizes(fsdp)) == []
    assert {one.layout.trainer for one in candidates(fsdp, TRACE)} == {TrainerSize()}


def test_another_split_keeps_the_tokens_of_a_micro_batch_and_the_layers() -> None:
    changed = layouts.trainer_memory(job(), TrainerSize(2, 8, 2))
    assert changed.tokens == 2048
    assert changed.micro_batches == 32
    assert sum(changed.stage_layers) == 28
    assert max(changed.stage_layers) - min(changed.stage_layers) == 1
    own = job(layout=Layout(ReplicaSize(4, 1, 1), TrainerSize(4, 2)))
    own = dataclasses.replace(own, trainer=dataclasses.replace(own.trainer, stage_layers=(13, 15)))
    assert layouts.trainer_memory(own, TrainerSize(2, 2)).stage_layers == (13, 15)


def test_layouts_that_fit_come_with_the_stages_of_a_step() -> None:
    found = candidates(job(), TRACE)
    assert all(one.memory_share <= 1 for one in found)
    assert [one.own for one in found].count(True) == 1
    best = found[0]
    seconds = best.seconds
    assert seconds.total == pytest.approx(seconds.rollout + seconds.log_probabilities + seconds.update + seconds.other)
    assert seconds.bottleneck == "rollout"
    assert best.origin is Origin.MODELLED
    assert best.published == ""
    assert best.published_seconds is None
    assert seconds.log_probabilities == pytest.approx(2 * best.forward_seconds)


def test_a_layout_that_does_not_divide_the_devices_is_not_shown() -> None:
    found = candidates(job(layout=Layout(ReplicaSize(8, 1, 1), TrainerSize(8))), TRACE)
    assert any(one.own for one in found) is True
    strange = candidates(job(layout=Layout(ReplicaSize(5, 1, 1), TrainerSize(5))), TRACE)
    assert strange
    assert not any(one.own for one in strange)


def test_dies_that_are_too_small_have_no_layout() -> None:
    tiny = dataclasses.replace(job(), die=memory.Die(8 * GIB, 7 * GIB, 400 << 20))
    assert candidates(tiny, TRACE) == ()


def test_a_cache_that_holds_less_decodes_fewer_responses_at_a_time() -> None:
    wide = layouts.rollout_setup(job(), ReplicaSize(2, 1, 1), TRACE)
    assert wide.engine.sequences == 8
    assert wide.gears == (2, 8)
    assert wide.replicas == 8
    long = dataclasses.replace(TRACE, requests=(RolloutRequest(0, 500_000), RolloutRequest(1, 100_000)))
    narrow = layouts.rollout_setup(job(), ReplicaSize(2, 1, 1), long)
    assert narrow.engine.sequences == 3
    assert narrow.gears == (1, 3)


def test_a_rollout_whose_cache_holds_no_response_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "FAR", 1e9)
    little = dataclasses.replace(job(), rollout=dataclasses.replace(job().rollout, memory_fraction=0.248))
    assert ReplicaSize(1, 1, 1) not in layouts.rollouts(little, TRACE)
    assert ReplicaSize(4, 1, 1) in layouts.rollouts(little, TRACE)


def test_a_rollout_that_cannot_come_near_the_best_is_not_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "FAR", 0.0)
    assert set(layouts.rollouts(job(), TRACE)) == {OWN.rollout}


def test_of_many_pairs_the_own_one_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "PAIRS_MAX", 1)
    found = candidates(job(), TRACE)
    assert len(found) == 2
    assert any(one.own for one in found)


def test_within_the_models_error_a_published_layout_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = candidates(job(), TRACE)
    best = plain[0].seconds.total
    near = next(one for one in reversed(plain) if one.seconds.total < 1.079 * best)
    far = next(one for one in plain if one.seconds.total > 1.081 * best)
    for layout, expected in ((near.layout, 0), (far.layout, plain.index(far))):
        row = layouts.PublishedLayout(DENSE.name, 16, layout, "somebody")
        monkeypatch.setattr(layouts, "PUBLISHED", (row,))
        found = candidates(job(), TRACE)
        assert [one.published for one in found].index("somebody") == expected


def test_the_seconds_of_a_published_step_are_shown_for_its_batch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = work(DENSE, TRACE.requests).tokens
    step = PublishedStep("x", DENSE.name, 16, "uniform", 32, 8, tokens / 256, 1, 1, 1, 77.0)
    monkeypatch.setattr(layouts, "PUBLISHED", (layouts.PublishedLayout(DENSE.name, 16, OWN, "somebody"),))
    for mean, expected in ((1.0, 77.0), (1.5, None)):
        monkeypatch.setattr(layouts, "PUBLISHED_STEPS", (dataclasses.replace(step, mean=mean * step.mean),))
        own = next(one for one in candidates(job(), TRACE) if one.own)
        assert own.published_seconds == expected


# Trainer and rollout on devices of their own.


def apart(of: Job | None = None) -> Job:
    """Return a job of two groups with the devices of the given one each."""
    given = of or job()
    return dataclasses.replace(given, rollout=dataclasses.replace(given.rollout, apart=True))


def test_rollout_and_training_overlap_on_devices_of_their_own() -> None:
    plain = layouts.Seconds(rollout=100, log_probabilities=20, update=70, other=5)
    assert (plain.total, plain.training, plain.bottleneck) == (195, 95, "rollout")
    longer = dataclasses.replace(plain, transfer=3.0)
    assert (longer.total, longer.bottleneck) == (103, "rollout")
    shorter = dataclasses.replace(longer, rollout=80)
    # The step waits for the trainer, although its longest stage is shorter than the rollout.
    assert (shorter.total, shorter.bottleneck) == (98, "update")


def test_a_transfer_takes_as_long_as_the_published_one() -> None:
    assert transfer_seconds(MOE) == pytest.approx(11, rel=0.05)


def test_each_role_has_a_share_of_its_own_die() -> None:
    own = next(one for one in candidates(apart(), TRACE) if one.own)
    assert own.role_shares is not None
    assert own.memory_share == max(own.role_shares)
    assert all(0 < share < 1 for share in own.role_shares)
    assert own.seconds.transfer == transfer_seconds(DENSE)
    assert next(one for one in candidates(job(), TRACE) if one.own).role_shares is None


def test_layouts_are_in_the_order_of_the_longer_side() -> None:
    found = candidates(apart(), TRACE)
    assert [one.seconds.total for one in found] == sorted(one.seconds.total for one in found)


def test_published_runs_say_nothing_of_devices_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "PUBLISHED", (layouts.PublishedLayout(DENSE.name, 16, OWN, "somebody"),))
    assert any(one.published for one in candidates(job(), TRACE))
    assert not any(one.published for one in candidates(apart(), TRACE))


def test_the_tensor_size_of_the_trainer_stays_within_its_own_node() -> None:
    narrow = dataclasses.replace(apart(), trainer_node_devices=2)
    assert {size.tensor for size in trainer_sizes(narrow)} == {1, 2}
    assert 4 in {size.tensor for size in rollout_sizes(narrow)}


def test_two_groups_are_compared_with_one_on_all_devices() -> None:
    found = compare(apart(), next(one for one in candidates(apart(), TRACE) if one.own), TRACE)
    one, two = found.placed
    assert [step.mode for step in (*one.steps, *two.steps)] == ["Sync", "ColocateAsync", "SeparateAsync"]
    assert (devices_text(one.job), devices_text(two.job)) == ("32 devices", "16 + 16 devices")
    assert (one.job.setup.replicas, one.job.trainer.micro_batches) == (8, 2)
    assert one.layout.role_shares is None
    assert found.missing == ""


def test_one_group_is_compared_with_two_halves() -> None:
    skipping = dataclasses.replace(job(), enabled=frozenset({SKIP, BALANCE}))
    own = next(one for one in candidates(skipping, TRACE) if one.own)
    one, two = compare(skipping, own, TRACE).placed
    assert (one.job, one.layout) == (skipping, own)
    assert devices_text(two.job) == "8 + 8 devices"
    # Responses of older weights need the pass of the old policy.
    assert two.job.enabled == {BALANCE}
    sync, ahead = one.steps
    assert ahead.train == pytest.approx(sync.train + own.forward_seconds)
    (step,) = two.steps
    assert step.train == two.layout.seconds.training
    assert step.transfer == two.layout.seconds.transfer
    assert step.generation is not None
    assert 0 < step.generation < step.total


@pytest.mark.parametrize(
    ("of", "missing"),
    [
        (dataclasses.replace(apart(), trainer_node_devices=4), "nodes of 4 and of 8 devices cannot be one group"),
        (job(devices=8), "1 node cannot be halved"),
        (job(devices=24), "3 nodes cannot be halved"),
        (job(devices=2), None),
    ],
    ids=["nodes differ", "one node", "three nodes", "too little memory"],
)
def test_a_placement_that_is_not_possible_is_explained(of: Job, missing: str | None) -> None:
    if missing is None:
        # Half of two devices has no room for the weights, gradients and optimizer of 7 billion parameters.
        of = dataclasses.replace(of, node_devices=1)
    any_ = next(iter(candidates(job(), TRACE)))
    found = compare(of, any_, TRACE)
    assert len(found.placed) == 1
    assert found.missing == (missing or "no layout fits into 1 + 1 devices")


# Switches.


def found_effects(of: Job) -> dict[str, Effect]:
    own: Candidate = next(one for one in candidates(of, TRACE) if one.own)
    return {effect.field: effect for effect in effects(of, own, TRACE)}


def test_skipping_a_pass_saves_one_where_a_batch_has_one_update() -> None:
    plain = found_effects(job())
    assert plain[SKIP].saved > 0
    assert not plain[SKIP].enabled
    skipping = found_effects(dataclasses.replace(job(), enabled=frozenset({SKIP})))
    assert skipping[SKIP].enabled
    assert skipping[SKIP].saved == pytest.approx(plain[SKIP].saved)
    several = found_effects(dataclasses.replace(job(), updates=2))
    assert several[SKIP].saved == 0
    assert several[SKIP].reason == "2 updates of a batch need the old log-probabilities"


def test_balance_saves_the_waiting_of_several_updates() -> None:
    several = found_effects(dataclasses.replace(job(), updates=4))
    assert several[BALANCE].saved > 100 * found_effects(job())[BALANCE].saved


def test_waiting_is_what_the_largest_rank_has_more() -> None:
    # Totals are equal, and each rank's first update is the other's second.
    assert waiting_share([4, 1, 1, 4], 2, 1) == 0
    assert waiting_share([4, 2, 3, 1], 2, 2) == pytest.approx(1 - 5 / 7)


def test_late_binding_needs_replicas_and_waiting_responses() -> None:
    assert found_effects(job())[LATE].saved > 0
    one = found_effects(job(devices=4))[LATE]
    assert one.reason == "there is one engine, so there is nothing to choose"
    wide = job()
    wide = dataclasses.replace(
        wide, setup=dataclasses.replace(wide.setup, engine=dataclasses.replace(wide.setup.engine, sequences=256))
    )
    assert found_effects(wide)[LATE].reason == "all responses of a step are decoded at a time, so none waits"


def test_more_captured_sizes_save_padding() -> None:
    plain = found_effects(job())[GEARS]
    assert plain.saved > 0
    assert plain.reason.startswith("sizes 1, 2, 4, 8, 16;")
    full = job()
    full = dataclasses.replace(full, setup=dataclasses.replace(full.setup, gears=(1, 2, 4, 8, 16)))
    assert found_effects(full)[GEARS].saved == 0


@pytest.mark.parametrize(
    ("rollout", "enabled", "saved"),
    [(100, False, 10), (100, True, 10), (95, False, 5), (85, False, 0), (85, True, 5), (70, True, 0)],
    ids=["generation waits", "on", "until training", "training waits", "on, until training", "on, training waits"],
)
def test_a_switch_saves_nothing_of_the_side_that_ends_first(rollout: float, enabled: bool, saved: float) -> None:
    seconds = layouts.Seconds(rollout=rollout, log_probabilities=20, update=65, other=5, transfer=3)
    found = _overlapped(seconds, Effect(DRAFTS, enabled, 10, Origin.PUBLISHED, "somebody"))
    assert found.saved == pytest.approx(saved)
    # A part of a published saving is not published.
    expected = (
        (Origin.PUBLISHED, "somebody") if saved == 10 else (Origin.MODELLED, "meanwhile, training takes 90 s; somebody")
    )
    assert (found.origin, found.reason) == expected


def test_a_switch_of_the_trainer_saves_nothing_while_responses_are_generated() -> None:
    seconds = layouts.Seconds(rollout=100, log_probabilities=20, update=65, other=5, transfer=3)
    found = _overlapped(seconds, Effect(BALANCE, False, 10, Origin.MODELLED, "waiting"))
    assert (found.saved, found.reason) == (0, "meanwhile, generation takes 100 s; waiting")


def test_what_is_on_comes_last_and_published_shares_are_of_the_rollout() -> None:
    drafting = dataclasses.replace(job(), enabled=frozenset({DRAFTS}))
    own = next(one for one in candidates(drafting, TRACE) if one.own)
    found = effects(drafting, own, TRACE)
    assert found[-1].field == DRAFTS
    assert found[-1].origin is Origin.PUBLISHED
    assert found[-1].saved == pytest.approx(own.seconds.rollout * 0.096 / 0.904)
    assert found_effects(job())[DRAFTS].saved == pytest.approx(own.seconds.rollout * 0.096)
