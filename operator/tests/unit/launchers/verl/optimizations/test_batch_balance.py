"""When a job may ask that samples are balanced over ranks and updates."""

from __future__ import annotations

import pytest
from builders import Json, merged, small_spec, typed, validate

from rljob.launchers import LAUNCHER
from rljob.render.names import JobIdentity

SHUFFLED: Json = {"verl": {"overrides": {"actor_rollout_ref.actor.shuffle": True}}}
ENABLED: Json = {"optimizations": {"batchBalance": "Enabled"}}


def spec(*changes: Json) -> Json:
    made = small_spec()
    for change in changes:
        made = merged(made, change)
    return made


def test_it_cannot_be_had_with_ranks_that_shuffle() -> None:
    (found,) = validate("sums", spec(ENABLED, SHUFFLED)).violations
    assert found.field == "spec.optimizations.batchBalance"
    assert "remove spec.verl.overrides[actor_rollout_ref.actor.shuffle], or set batchBalance to Auto" in found.message


@pytest.mark.parametrize("changes", [(ENABLED,), (SHUFFLED,), ()])
def test_nothing_else_is_refused(changes: tuple[Json, ...]) -> None:
    assert validate("sums", spec(*changes)).violations == ()


@pytest.mark.parametrize(("changes", "balances"), [((), True), ((SHUFFLED,), False), ((ENABLED,), True)])
def test_job_json_contains_the_decision(changes: tuple[Json, ...], balances: bool) -> None:
    made = typed(spec(*changes))
    job = LAUNCHER(made).job_config(JobIdentity("team-a", "sums", "uid-1"), made, 1)
    assert job.optimizations.batch_balance is balances
