"""CPU plans, for the topologies of known machines and for arbitrary cpusets."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rljob_runtime.node.affinity import (
    DEVICE_CPUS_MIN,
    Locality,
    Plan,
    PlanError,
    Topology,
    cpu_text,
    make_plan,
    parse_cpus,
    torch_npu_setting,
)
from runtime.tests.fake_ascend import HOSTS, blocks, topology


def node_of(host: Topology, cpus: tuple[int, ...]) -> set[int]:
    return {node for node, own in host.nodes.items() if own.intersection(cpus)}


def assert_sound(host: Topology, plan: Plan, minimum: int = DEVICE_CPUS_MIN) -> None:
    """Check the properties of every plan."""
    assert sorted(plan.devices) == list(host.devices)
    pools = [set(cpus) for cpus in plan.devices.values()]
    for one, other in itertools.combinations([*pools, set(plan.system)], 2):
        assert not one & other
    assert all(not pool & set(plan.data) for pool in pools)
    assert plan.data == plan.system or not set(plan.data) & set(plan.system)
    everything = set().union(*pools, plan.system, plan.data)
    assert everything == set(host.allowed)
    assert plan.system
    assert min(map(len, pools)) >= minimum


@pytest.mark.parametrize("name", HOSTS)
def test_a_whole_host_is_planned_with_equal_pools_on_one_numa_node_each(name: str) -> None:
    host = HOSTS[name]
    plan = make_plan(host)
    assert_sound(host, plan)
    assert len({len(cpus) for cpus in plan.devices.values()}) == 1
    assert all(len(node_of(host, cpus)) == 1 for cpus in plan.devices.values())
    assert plan.notes == ()


@pytest.mark.parametrize("name", [name for name in HOSTS if name.startswith("A2")])
def test_a_pool_is_among_the_cpus_that_its_device_is_attached_to(name: str) -> None:
    host = HOSTS[name]
    plan = make_plan(host)
    assert plan.locality is Locality.NEAR
    assert all(set(cpus) <= host.affinity[device] for device, cpus in plan.devices.items())


def test_dies_of_a3_are_spread_evenly_and_those_of_a_card_stay_together() -> None:
    host = HOSTS["A3, 640 CPUs"]
    plan = make_plan(host)
    assert plan.locality is Locality.SPREAD
    assert [node_of(host, plan.devices[die]) for die in range(16)] == [{die // 2} for die in range(16)]


def test_both_threads_of_a_core_are_in_one_pool() -> None:
    host = HOSTS["A2, x86 with SMT"]
    plan = make_plan(host)
    groups = [*plan.devices.values(), plan.system, plan.data]
    for core in host.cores:
        assert sum(bool(core.intersection(group)) for group in groups) == 1


def test_the_figures_of_an_a2_host_are_those_of_the_documentation() -> None:
    plan = make_plan(HOSTS["A2, Kunpeng, 8 NUMA nodes"])
    # Two NPUs share 24 cores of a node. Four nodes have no NPU and serve the processes without a device.
    assert {len(cpus) for cpus in plan.devices.values()} == {12}
    four = make_plan(HOSTS["A2, Kunpeng, 4 NUMA nodes"])
    assert four.devices[4] == tuple(range(1, 21))
    assert (cpu_text(four.system), len(four.data)) == ("0,48,96,144", 28)


def test_the_kubelets_reserved_cores_make_the_pools_smaller_but_equal() -> None:
    host = HOSTS["A3, 640 CPUs"]
    cut = dataclasses.replace(host, allowed=host.allowed - set(range(16)))
    plan = make_plan(cut)
    assert_sound(cut, plan)
    assert len({len(cpus) for cpus in plan.devices.values()}) == 1
    assert all(len(node_of(cut, cpus)) == 1 for cpus in plan.devices.values())


def test_a_cpuset_far_from_the_devices_is_reported() -> None:
    host = HOSTS["A2, Kunpeng, 4 NUMA nodes"]
    cut = dataclasses.replace(host, allowed=frozenset(range(96)))
    plan = make_plan(cut)
    assert_sound(cut, plan)
    assert plan.locality is Locality.SPREAD
    assert "too few CPUs near the devices" in plan.notes[0]


def test_pools_cross_numa_nodes_only_where_the_cpuset_leaves_no_other_way() -> None:
    host = topology(blocks(8, 8), 4, ())
    cut = dataclasses.replace(host, allowed=frozenset(cpu for cpu in host.allowed if cpu % 8 < 3))
    plan = make_plan(cut)
    assert_sound(cut, plan)
    assert plan.locality is Locality.ACROSS
    assert "cross NUMA nodes" in plan.notes[-1]


def test_too_few_cpus_are_refused_with_the_field_that_gives_more() -> None:
    host = dataclasses.replace(HOSTS["A3, 640 CPUs"], allowed=frozenset(range(48)))
    with pytest.raises(PlanError, match=r"48 CPUs .* too few for 16 devices .* raise workerGroups\[\]\.template\.cpu"):
        make_plan(host)


def test_a_pod_without_npus_on_three_cpus_gets_one_for_each_device() -> None:
    plan = make_plan(topology(blocks(1, 3), 2, ()), minimum=1)
    assert (plan.devices, plan.system, plan.data) == ({0: (1,), 1: (2,)}, (0,), (0,))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_cpuset_gives_a_sound_and_stable_plan_or_a_refusal(data: st.DataObject) -> None:
    host = HOSTS[data.draw(st.sampled_from(sorted(HOSTS)))]
    left_out = data.draw(st.sets(st.sampled_from(sorted(host.allowed)), max_size=len(host.allowed) - 1))
    cut = dataclasses.replace(host, allowed=host.allowed - left_out)
    minimum = data.draw(st.sampled_from([1, DEVICE_CPUS_MIN]))
    try:
        plan = make_plan(cut, minimum)
    except PlanError:
        # Refused only if there is really too little: cores may lack a thread, and pools count cores.
        threads = max(len(core) for core in host.cores)
        assert len(cut.allowed) < (len(cut.devices) * minimum + 1) * threads + len(cut.devices)
        return
    assert_sound(cut, plan, minimum)
    shuffled = Topology(
        frozenset(sorted(cut.allowed, reverse=True)),
        dict(sorted(cut.nodes.items(), reverse=True)),
        cut.cores[::-1],
        cut.devices,
        dict(sorted(cut.affinity.items(), reverse=True)),
    )
    assert make_plan(shuffled, minimum) == plan


@given(st.sets(st.integers(0, 2000)))
def test_cpus_are_written_as_the_kernel_reads_them(cpus: set[int]) -> None:
    assert parse_cpus(cpu_text(cpus)) == cpus


def test_torch_npu_is_given_the_own_pool_for_every_visible_device() -> None:
    assert torch_npu_setting(range(1, 20), 2) == "2,force:1,npu0:1-19,npu1:1-19"


def test_releases_that_keep_the_last_range_keep_the_longest() -> None:
    assert torch_npu_setting([1, 2, 40, 41, 42, 9], 1) == "2,force:1,npu0:9-9,npu0:1-2,npu0:40-42"


def test_few_cpus_are_bound_coarsely() -> None:
    assert torch_npu_setting([3, 4], 1).startswith("1,")
