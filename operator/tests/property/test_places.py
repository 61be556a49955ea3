"""How many workers of two groups find devices: never more than fit, whatever the sizes, nodes and labels are."""

from __future__ import annotations

from builders import apart, small_spec, typed
from hypothesis import given
from hypothesis import strategies as st

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.scheduling.places import Site, places

NAMES = ("train", "generate")
SITES = st.lists(
    st.builds(Site, st.integers(0, 16), st.sets(st.sampled_from(NAMES)).map(frozenset)), min_size=0, max_size=5
)
SIZES = st.tuples(st.integers(1, 4), st.sampled_from((1, 2, 3, 4, 6, 8, 16)))


def spec_of(train: tuple[int, int], generate: tuple[int, int]) -> RLJobSpec:
    groups = [{"nodes": nodes, "devicesPerNode": devices} for nodes, devices in (train, generate)]
    return typed(small_spec(apart(*groups)))


def most(spec: RLJobSpec, sites: list[Site]) -> int:
    """Return the largest number of workers that fit, by trying everything."""
    first, second = spec.worker_groups
    reached = {(0, 0)}
    for site in sites:
        ways = [
            (one, two)
            for one in range(site.room(first) + 1)
            for two in range(site.without(one, first).room(second) + 1)
        ]
        reached = {(min(a + one, first.nodes), min(b + two, second.nodes)) for a, b in reached for one, two in ways}
    return max(a + b for a, b in reached)


@given(SIZES, SIZES, SITES)
def test_no_device_counts_twice_and_none_is_missed(
    train: tuple[int, int], generate: tuple[int, int], sites: list[Site]
) -> None:
    spec = spec_of(train, generate)
    found, best = places(spec, sites), most(spec, sites)
    assert found <= best
    large, small = sorted((train[1], generate[1]), reverse=True)
    if best == spec.nodes and large % small == 0:
        assert found == best


@given(SIZES, SIZES, SITES)
def test_more_devices_never_take_a_place_away(
    train: tuple[int, int], generate: tuple[int, int], sites: list[Site]
) -> None:
    spec = spec_of(train, generate)
    assert places(spec, [*sites, Site(16, frozenset(NAMES))]) >= places(spec, sites)
