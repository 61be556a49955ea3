"""Laws of the merge, for layers drawn from the API types themselves."""

from __future__ import annotations

from typing import Any

from builders import Json
from hypothesis import given
from hypothesis import strategies as st

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.merge import EMPTY, LEAF, Layer, Shape, layer, leaves, merge, shape_of, stack, values

NAMES = st.sampled_from(["a", "b", "c"])


def of_shape(shape: Shape, depth: int = 0) -> st.SearchStrategy[Any]:
    """Draw a value of a shape; leaves can be anything, because the merge does not inspect them."""
    if shape.keys:
        item = shape.item or LEAF
        entry = of_shape(item, depth + 1) if item.is_map else st.fixed_dictionaries({"x": st.integers(0, 3)})
        keyed = st.tuples(st.tuples(*(NAMES for _ in shape.keys)), entry)
        return st.lists(keyed, max_size=3, unique_by=lambda pair: pair[0]).map(
            lambda pairs: [found | dict(zip(shape.keys, key, strict=True)) for key, found in pairs]
        )
    if shape.members and depth < 5:
        members = st.lists(st.sampled_from(sorted(shape.members)), max_size=3, unique=True)
        return members.flatmap(
            lambda names: st.fixed_dictionaries({name: of_shape(shape.members[name], depth + 1) for name in names})
        )
    if shape.is_map:
        return st.dictionaries(NAMES, st.integers(0, 3), max_size=3)
    return st.integers(0, 3)


SPECS: st.SearchStrategy[Json] = of_shape(shape_of(RLJobSpec))
PATHS = st.sampled_from(
    ["trainer", "trainer.steps", "workerGroups[a]", "workerGroups[b].template.env[a]", "verl.overrides[a]", "code"]
)
LAYERS = st.builds(layer, st.sampled_from(["x", "y", "z"]), SPECS, st.lists(PATHS, max_size=2))


@given(LAYERS, LAYERS, LAYERS)
def test_layers_may_be_joined_in_any_grouping(low: Layer, middle: Layer, high: Layer) -> None:
    assert stack(stack(low, middle), high) == stack(low, stack(middle, high))


@given(LAYERS)
def test_the_empty_layer_changes_nothing(only: Layer) -> None:
    assert stack(EMPTY, only) == only == stack(only, EMPTY)


@given(LAYERS)
def test_a_layer_over_itself_is_itself(only: Layer) -> None:
    assert stack(only, only).tree == only.tree


@given(SPECS, SPECS)
def test_a_jobs_own_value_is_never_lost(recipe: Json, job: Json) -> None:
    merged = merge([layer("recipe", recipe), layer("job", job)])
    alone = layer("job", job)
    by_job = {path for path, leaf in leaves(merged.tree) if leaf.source == "job"}
    assert by_job >= {path for path, _ in leaves(alone.tree)}
    assert values(merge([merged, alone])) == values(merged)


@given(SPECS)
def test_a_spec_without_recipe_stays_as_it_is_written(job: Json) -> None:
    assert values(layer("job", job)) == job
