"""Blocks of ports: reading and writing the ConfigMap, choosing, losses.

Property/test_ports tests several jobs at once.
"""

from builders import IDENTITY, UID, Json

from rljob.core.scheduling.port_blocks import Allocations, Holder, PortPool, read_allocations, recorded_block
from rljob.render.ports import BLOCK_SIZE, PORTS, PortBlock, Role, container_ports, port_variables, start_params

POOL = PortPool("rljob", "ports", 20_000, 3)
OTHER = Holder("u2", "team", "other")


def config_map(**data: str) -> Json:
    return {"metadata": {"name": "ports", "namespace": "rljob", "resourceVersion": "7"}, "data": data}


def test_what_was_written_is_read() -> None:
    made = Allocations(POOL).with_block(IDENTITY, 20_032).manifest()
    assert made["data"] == {"20032": f"{UID} team/sums"}
    assert "resourceVersion" not in made["metadata"]
    read = read_allocations(POOL, made | {"metadata": made["metadata"] | {"resourceVersion": "7"}})
    assert (read.block_of(UID), read.resource_version) == (20_032, "7")
    assert read.manifest()["metadata"]["resourceVersion"] == "7"


def test_an_entry_that_nobody_can_read_is_passed_over() -> None:
    read = read_allocations(POOL, config_map(**{"20000": "nonsense", "many": "u team/a", "20032": "u2 team/other"}))
    assert read.held == {20_032: OTHER}
    assert read_allocations(POOL, {"metadata": {}}).held == {}
    assert read_allocations(POOL, None).resource_version is None


def test_the_lowest_free_block_is_given() -> None:
    assert Allocations(POOL).free("team") == 20_000
    assert Allocations(POOL, {20_000: OTHER}).free("team") == 20_032
    full = Allocations(POOL, {first: Holder(f"u{first}", "n", "j") for first in POOL.candidates()})
    assert full.free("team") is None


def test_a_namespace_has_no_more_than_its_share() -> None:
    assert PortPool().share * 4 <= PortPool().blocks
    held = Allocations(PortPool("rljob", "ports", 20_000, 3, share=1), {20_000: OTHER})
    assert (held.has_its_share("team"), held.free("team")) == (True, None)
    assert held.free("another") == 20_032
    # What a job had before stays its own.
    assert held.can_have("u3", 20_032)


def test_blocks_of_a_pool_that_was_moved_do_not_overlap() -> None:
    assert Allocations(POOL, {20_010: OTHER}).free("team") == 20_064


def test_a_job_has_one_block() -> None:
    moved = Allocations(POOL).with_block(IDENTITY, 20_000).with_block(IDENTITY, 20_032)
    assert list(moved.held) == [20_032]
    assert moved.without({UID}).held == {}


def test_a_block_that_was_ones_own_is_taken_again_unless_another_has_it() -> None:
    assert Allocations(POOL).can_have(UID, 20_032)
    assert Allocations(POOL).with_block(IDENTITY, 20_032).can_have(UID, 20_032)
    assert not Allocations(POOL, {20_032: OTHER}).can_have(UID, 20_032)
    assert not Allocations(POOL).can_have(UID, 19_000)


def test_what_statuses_say_counts_where_the_config_map_does_not_know() -> None:
    known = Allocations(POOL, {20_000: OTHER})
    third, fourth = Holder("u3", "team", "c"), Holder("u4", "team", "d")
    joined = known.with_recorded([(20_064, OTHER), (20_000, third), (20_032, third), (20_032, fourth)])
    assert joined.held == {20_000: OTHER, 20_032: third}


def test_the_block_of_a_status() -> None:
    assert recorded_block({"network": {"portBlock": 20_000}}) == 20_000
    assert [recorded_block(s) for s in ({}, {"network": 3}, {"network": {"portBlock": True}})] == [None] * 3


def test_no_two_ports_of_a_block_are_the_same() -> None:
    assert len({row.place for row in PORTS}) == len(PORTS)
    assert max(row.place for row in PORTS) < BLOCK_SIZE
    assert len(PortBlock(20_000).all_ports & PortBlock(20_000 + BLOCK_SIZE).all_ports) == 0


def test_head_and_worker_may_stand_on_one_node() -> None:
    block = PortBlock(20_000)
    head, worker = (set(start_params(role, block).values()) - {"0"} for role in (Role.HEAD, Role.WORKER))
    declared = {port["containerPort"] for role in Role for port in container_ports(role, block)}
    assert not head & worker
    assert len(declared) == 9
    assert {int(each["value"]) for role in Role for each in port_variables(role, block)} <= declared
    assert declared | set(map(int, head | worker)) == block.all_ports


def test_each_process_hears_of_the_ports_that_it_opens_or_asks() -> None:
    heard = {role: {each["name"] for each in port_variables(role, PortBlock(20_000))} for role in Role}
    assert heard[Role.WORKER] == heard[Role.EXPORTER] == {"RLJOB_METRICS_PORT", "RLJOB_API_PORT"}
    assert heard[Role.HEAD] - heard[Role.WORKER] == {"AUTOSCALER_METRIC_PORT", "DASHBOARD_METRIC_PORT"}


def test_on_a_network_of_its_own_a_pod_has_the_usual_ports() -> None:
    assert start_params(Role.HEAD, None) == {}
    assert container_ports(Role.HEAD, None) == []
    assert container_ports(Role.EXPORTER, None) == [
        {"name": "rljob-metrics", "containerPort": 8090},
        {"name": "rljob-api", "containerPort": 8091},
    ]
    assert [port_variables(role, None) for role in Role] == [[]] * 3
