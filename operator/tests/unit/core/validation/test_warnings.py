"""Warnings about hardware and HCCL."""

import pytest
from builders import Json, apart, group, merged, saving, small_spec, typed, validate

from rljob.core.validation.validate import VIOLATIONS_MAX, WARNINGS_MAX, warnings_of
from rljob.launchers import LAUNCHER

A2 = merged(small_spec(group({"devicesPerNode": 8})), {"accelerator": {"class": "atlas-a2"}})

SERVICE = {"name": "s", "image": "x", "port": 8999}


def env(*variables: tuple[str, str], **head: str) -> Json:
    entries = [{"name": name, "value": value} for name, value in variables]
    own = [{"name": name, "value": value} for name, value in head.items()]
    return merged(A2, group({"devicesPerNode": 8, "template": {"env": entries}})) | {"head": {"template": {"env": own}}}


DISCARDS: Json = {"optimizations": {"sleepLevel": 2}}
EXPERTS: Json = {"rollout": {"parallelism": {"tensor": 16, "expert": 16}}}


def on_a3(*variables: tuple[str, str]) -> Json:
    entries = [{"name": name, "value": value} for name, value in variables]
    spec = merged(
        small_spec(group({"devicesPerNode": 16, "template": {"env": entries}})), {"trainer": {"globalBatchSize": 64}}
    )
    return merged(spec, {"accelerator": {"class": "atlas-a3"}})


def warning_lines(spec: Json) -> list[str]:
    assert validate("sums", spec).violations == ()
    return [str(warning) for warning in warnings_of(typed(spec), LAUNCHER)]


def test_a_plain_job_has_no_warnings() -> None:
    assert warning_lines(A2) == []
    assert warning_lines(small_spec({"network": {"mode": "Host"}})) == []


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (env(("HCCL_BUFFSIZE", "300")), None),
        (env(("TASK_QUEUE_ENABLE", "1")), None),
        (
            env(("HCCL_OP_EXPANSION_MODE", "AIV")),
            "a collective times out after 1091 s, regardless of HCCL_EXEC_TIMEOUT 3600",
        ),
        (env(("HCCL_OP_EXPANSION_MODE", "AI_CPU")), None),
        (env(("VLLM_ASCEND_ENABLE_MATMUL_ALLREDUCE", "1")), "which A2 does not support with port ranges"),
        (env(("VLLM_ASCEND_ENABLE_MATMUL_ALLREDUCE", "0")), None),
        (env(("VLLM_ASCEND_ENABLE_FUSED_MC2", "2")), "VLLM_ASCEND_ENABLE_FUSED_MC2 fuses computation"),
        (on_a3(("VLLM_ASCEND_ENABLE_FUSED_MC2", "2")), None),
        (env(("HCCL_IF_BASE_PORT", "64021")), "HCCL_IF_BASE_PORT has no effect"),
        (env(("RANK_TABLE_FILE", "/x")), "RANK_TABLE_FILE sets static ranks"),
        (merged(A2, {"network": {"mode": "Host"}}), "spec.network.hccl.socketInterface: is not set with network.mode"),
        (merged(A2, {"network": {"mode": "Host", "hccl": {"socketInterface": "bond0"}}}), None),
        (merged(A2, {"runtime": {"image": "x/y/cann:9.1.0-a3-ubuntu"}}), "its tag contains a3, but images for class"),
        (merged(A2, {"runtime": {"image": "x:5/y/cann:9.1.0-910b-a3"}}), None),
        (merged(A2, {"runtime": {"image": "x:5/a3/cann"}}), None),
        (small_spec({"network": {"mode": "Host"}, "services": [SERVICE]}), "8999 is a port of the node with network"),
        (merged(A2, {"services": [{"name": "s", "image": "x", "port": 8999}]}), "spec.services[0]: without cpu and"),
        (merged(on_a3(), DISCARDS), None),
        (merged(on_a3(), merged(DISCARDS, EXPERTS)), "2 with rollout.parallelism.expert 16 is not proven on NPUs"),
    ],
)
def test_a_doubtful_setting_is_one_warning(spec: Json, words: str | None) -> None:
    lines = warning_lines(spec)
    assert len(lines) == (0 if words is None else 1), lines
    assert all(str(words) in line for line in lines)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("HCCL_EXEC_TIMEOUT", "7200", "HCCL_EXEC_TIMEOUT replaces the operator's value 3600"),
        ("HCCL_IF_IP", "10.0.0.1", "HCCL_IF_IP replaces the value that the operator reads from the pod"),
    ],
)
def test_the_users_variable_wins_with_a_warning_about_both_values(name: str, value: str, words: str) -> None:
    lines = warning_lines(env((name, value), **{name: value}))
    assert [line.partition(": ")[2] for line in lines] == [words, words]


def test_variables_that_differ_between_head_and_workers_are_a_warning() -> None:
    lines = warning_lines(env(("HCCL_EXEC_TIMEOUT", "7200")))
    assert "HCCL_EXEC_TIMEOUT is 7200 on the workers and 3600 on the head; set it on both" in lines[-1]


def apart_on_a2(*values: str | None, head: str | None = None) -> Json:
    """Return a job whose trainer, rollout and head have a variable of HCCL."""
    env = [[] if value is None else [{"name": "HCCL_BUFFSIZE", "value": value}] for value in (*values, head)]
    groups = apart(*({"devicesPerNode": 8, "template": {"env": entries}} for entries in env[:2]))
    return merged(small_spec(groups), {"accelerator": {"class": "atlas-a2"}, "head": {"template": {"env": env[2]}}})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (("300", "300", "300"), None),
        (("300", None, None), None),
        (
            ("300", "400", None),
            "HCCL_BUFFSIZE is 400 on the workers of workerGroups[1] and 300 on those of workerGroups[0]; set it",
        ),
        (
            (None, "400", "300"),
            "HCCL_BUFFSIZE is 400 on the workers of workerGroups[1] and 300 on the head; set it on both",
        ),
    ],
)
def test_trainer_and_rollout_communicate_by_the_same_variables(
    values: tuple[str | None, ...], words: str | None
) -> None:
    *groups, head = values
    lines = warning_lines(apart_on_a2(*groups, head=head))
    assert len(lines) == (words is not None)
    assert all(str(words) in line for line in lines)


ANY = "the {} nodes may be in any super-pods; set scheduling.queueName to a queue of Kueue, {}"
BLOCKS: Json = {
    "accelerator": {"class": "atlas-a3-superpod"},
    "scheduling": {"topology": {"nodesPerSuperPodBlock": 2}},
}


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (group({"nodes": 2, "devicesPerNode": 16}), None),
        (
            group({"nodes": 4, "devicesPerNode": 16}),
            ANY.format(4, "set scheduling.gang to Volcano, or request one super-pod with 4"),
        ),
        (
            apart({"nodes": 2, "devicesPerNode": 16}, {"nodes": 4, "devicesPerNode": 16}),
            ANY.format(6, "or set scheduling.gang to Volcano"),
        ),
    ],
)
def test_blocks_that_nobody_gives_out_are_a_warning(groups: Json, words: str | None) -> None:
    spec = merged(small_spec(groups), BLOCKS, {"trainer": {"globalBatchSize": 64}})
    lines = warning_lines(spec)
    assert [line.partition("without Volcano ")[2] for line in lines] == ([] if words is None else [words])


def test_using_part_of_a_node_is_a_warning() -> None:
    (line,) = warning_lines(merged(A2, group({"devicesPerNode": 2})))
    assert "2 of 8 devices of a node" in line


@pytest.mark.parametrize(
    ("change", "advised"),
    [({}, True), ({"queueName": "team"}, True), ({"gang": "Volcano"}, False), ({"gang": "None"}, True)],
)
def test_part_of_a_node_without_volcano_may_be_refused_by_the_device_plug_in(change: Json, advised: bool) -> None:
    (line,) = warning_lines(merged(A2, group({"devicesPerNode": 2})) | {"scheduling": change})
    assert ("set scheduling.gang to Volcano" in line) == advised


@pytest.mark.parametrize(
    ("resources", "is_warned"),
    [
        (None, True),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, False),
        ({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}, True),
        ({"requests": {"cpu": "1"}}, True),
    ],
)
def test_a_sidecar_that_costs_the_pod_its_exclusive_cores_is_a_warning(resources: object, is_warned: bool) -> None:
    sidecar = {"name": "proxy", "image": "x"} | ({"resources": resources} if resources else {})
    spec = merged(A2, group({"devicesPerNode": 8, "template": {"sidecars": [sidecar]}}))
    assert [line.split(":")[0] for line in warning_lines(spec)] == (
        ["spec.workerGroups[0].template.sidecars[0].resources"] if is_warned else []
    )


def test_conversions_that_do_not_get_the_packages_are_a_warning() -> None:
    packages = {"packages": {"requirements": [f"regex==2025.9.1 --hash=sha256:{'0' * 64}"]}}
    converted = {
        "checkpoint": {"path": "/data/ckpt", "everySteps": 2},
        "export": {"to": {"path": "/data/models"}},
        "evaluation": {},
        "data": {"validation": ["/data/test.parquet"]},
    }
    spec = small_spec(saving(converted))
    assert warning_lines(spec) == []
    warned = warning_lines(merged(spec, {"runtime": packages}))
    assert [line.split(":")[0] for line in warned] == ["spec.export", "spec.evaluation"]


def test_a_queue_of_two_levels_is_fine() -> None:
    spec = env(("TASK_QUEUE_ENABLE", "2"), ("VLLM_ASCEND_TASK_QUEUE_ENABLE", "1"))
    assert validate("sums", spec).violations == ()


def test_all_devices_of_the_pod_may_be_named() -> None:
    assert warning_lines(env(("ASCEND_RT_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7"))) == []


def test_warnings_and_violations_are_few_and_what_is_left_out_is_counted() -> None:
    warned = warning_lines(
        small_spec({"verl": {"overrides": {f"+mine{number}.key": 1 for number in range(WARNINGS_MAX + 5)}}})
    )
    assert len(warned) == WARNINGS_MAX + 1
    assert warned[0].startswith("spec.verl.overrides[+mine0.key]: ")
    assert warned[-1] == "spec: and 5 more warnings"
    wrong = {"verl": {"overrides": {f"mine{number}": [[1]] for number in range(VIOLATIONS_MAX + 5)}}}
    found = validate("sums", small_spec(wrong)).violations
    assert len(found) == VIOLATIONS_MAX + 1
    assert str(found[-1]) == "spec: and 5 more violations"
