"""What is derived of a job is computed once, and again when one of its inputs changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import Json, job, merged, small_spec, snapshot, status_begun

from rljob.api.v1alpha1 import RecipeKind
from rljob.core.derived import Once, inputs_of
from rljob.core.observed import UNSEEN, Manifest, Observed, RecipeId

RECIPE = RecipeId(RecipeKind.CLUSTER_RL_RECIPE, "base")
FOUND: Json = {"metadata": {"name": "base", "uid": "recipe-uid", "resourceVersion": "3"}}
WORLD = Observed(job(small_spec()), snapshot=snapshot(), base_snapshot=None, recipes={RECIPE: FOUND})


def changed(manifest: Manifest, **metadata: object) -> Json:
    return merged(manifest, {"metadata": metadata})


def test_a_value_is_computed_once_even_if_it_is_none() -> None:
    asked: list[None] = []
    kept: Once[None] = Once()
    assert kept.get(lambda: asked.append(None)) is None
    assert kept.get(lambda: asked.append(None)) is None
    assert len(asked) == 1


@pytest.mark.parametrize(
    "other",
    [
        replace(WORLD, job=changed(WORLD.job, generation=2)),
        replace(WORLD, job=changed(WORLD.job, annotations={"rljob.dev/refresh": "1"})),
        replace(WORLD, snapshot=None),
        replace(WORLD, snapshot=UNSEEN),
        replace(WORLD, snapshot=changed(snapshot(), resourceVersion="7")),
        replace(WORLD, base_snapshot=snapshot()),
        replace(WORLD, recipes={RECIPE: changed(FOUND, resourceVersion="4")}),
        replace(WORLD, recipes={RECIPE: changed(FOUND, uid="another")}),
        replace(WORLD, recipes={}),
    ],
)
def test_it_is_computed_again_when_an_input_changes(other: Observed) -> None:
    assert inputs_of(other) != inputs_of(WORLD)


def test_the_status_is_no_input() -> None:
    assert inputs_of(replace(WORLD, job=job(small_spec(), status_begun()))) == inputs_of(WORLD)
