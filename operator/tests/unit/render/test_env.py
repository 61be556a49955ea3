"""Variables that the operator sets, and their precedence."""

from typing import Any

import pytest
from builders import IDENTITY, Json, group, merged, small_spec, typed

from rljob.render.env import VARIABLES, operator_env
from rljob.render.export import build_export
from rljob.render.initializer import build_initializer
from rljob.render.raycluster import build_raycluster

ATLAS = merged(small_spec(group({"nodes": 2, "devicesPerNode": 16})), {"accelerator": {"class": "atlas-a3-superpod"}})


def env(spec: Json, **change: Json) -> dict[str, Any]:
    typed_spec = typed(merged(spec, change))
    entries = operator_env(typed_spec, typed_spec.worker_groups[0].template)
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in entries}


def test_ascend_gets_addresses_ports_and_timeouts() -> None:
    assert env(ATLAS) == {
        "HCCL_IF_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "HCCL_HOST_SOCKET_PORT_RANGE": "auto",
        "HCCL_NPU_SOCKET_PORT_RANGE": "auto",
        "HCCL_CONNECT_TIMEOUT": "1800",
        "HCCL_EXEC_TIMEOUT": "3600",
        "HCCL_WHITELIST_DISABLE": "1",
        "TASK_QUEUE_ENABLE": "1",
        "VLLM_ASCEND_ENABLE_NZ": "0",
        "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES": "1",
        "ASCEND_PROCESS_LOG_PATH": "/var/run/rljob/ascend-logs",
        "RAY_START_ULIMIT_OPEN_FILES": "100000",
    }


def test_a_named_interface_goes_before_the_address() -> None:
    hccl = {"socketInterface": "eth1", "connectTimeoutSeconds": 7200, "execTimeoutSeconds": 7200}
    found = env(ATLAS, network={"hccl": hccl})
    assert "HCCL_IF_IP" not in found
    assert {found[name] for name in ("HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")} == {"eth1"}
    assert (found["HCCL_CONNECT_TIMEOUT"], found["HCCL_EXEC_TIMEOUT"]) == ("7200", "7200")


def test_an_interface_that_the_user_sets_as_a_variable_goes_before_the_address_too() -> None:
    chosen = {"template": {"env": [{"name": "HCCL_SOCKET_IFNAME", "value": "net1"}]}}
    assert "HCCL_IF_IP" not in env(ATLAS, head=chosen)


@pytest.mark.parametrize(("eager", "expected"), [(None, "1"), (False, "1"), (True, "2")])
def test_a_captured_graph_takes_the_simple_task_queue(eager: bool | None, expected: str) -> None:
    assert env(ATLAS, rollout={} if eager is None else {"eager": eager})["TASK_QUEUE_ENABLE"] == expected


@pytest.mark.parametrize(("backend", "expected"), [("FSDP2", None), ("Megatron", "1"), ("MindSpeed", "1")])
def test_megatron_has_one_connection(backend: str, expected: str | None) -> None:
    assert env(ATLAS, trainer={"backend": backend}).get("CUDA_DEVICE_MAX_CONNECTIONS") == expected


def test_processors_get_only_what_gloo_reads() -> None:
    assert env(small_spec()) == {}
    assert env(small_spec(), network={"hccl": {"socketInterface": "eth0"}}) == {"GLOO_SOCKET_IFNAME": "eth0"}


def test_the_users_own_variable_wins() -> None:
    own = [{"name": "HCCL_CONNECT_TIMEOUT", "value": "7200"}]
    change = group({"nodes": 2, "devicesPerNode": 16, "template": {"env": own}})
    cluster = build_raycluster(IDENTITY, typed(merged(ATLAS, change)), 1, "digest")
    head = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["env"]
    worker = cluster["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["env"]
    assert [entry["value"] for entry in head if entry["name"] == "HCCL_CONNECT_TIMEOUT"] == ["1800"]
    assert [entry["value"] for entry in worker if entry["name"] == "HCCL_CONNECT_TIMEOUT"] == ["7200"]


AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def autoload(spec: Json) -> list[str | None]:
    """Return the variable's value in head, worker, initializer and export."""
    job = typed(merged(spec, WITH_JOBS))
    assert job.export is not None
    cluster = build_raycluster(IDENTITY, job, 1, "digest")["spec"]
    pods = [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    jobs = [
        build_initializer(IDENTITY, job, job.initializers[0]),
        build_export(IDENTITY, job, job.export, "an-export", 2, None),
    ]
    pods += [made["spec"]["template"]["spec"] for made in jobs]
    variables = [{entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]} for pod in pods]
    return [each.get(AUTOLOAD) for each in variables]


WITH_JOBS: Json = {
    "initializers": [{"name": "prepare", "command": ["true"]}],
    "checkpoint": {"path": "/data/checkpoints", "everySteps": 2},
    "export": {"to": {"type": "Path", "path": "/data/export"}},
}


def test_torch_does_not_look_for_a_driver_where_no_device_is_held() -> None:
    assert autoload(ATLAS) == ["0", None, "0", "0"]
    assert autoload(small_spec()) == [None] * 4
    own = {"template": {"env": [{"name": AUTOLOAD, "value": "1"}]}}
    assert autoload(merged(ATLAS, group({"nodes": 2, "devicesPerNode": 16, **own}), {"head": own})) == ["1"] * 4


def test_each_variable_stands_once_and_has_a_source() -> None:
    names = [row.name for row in VARIABLES]
    assert len(names) == len(set(names))
    assert all(row.source for row in VARIABLES)
