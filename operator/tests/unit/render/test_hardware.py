"""What a class adds to pods: whole cores, the driver, marks for the scheduler, its nodes, Ray's NPUs once."""

import json
from typing import Any

import pytest
from builders import IDENTITY, Json, group, merged, small_spec, typed

from rljob.render.raycluster import build_raycluster

A3 = merged(small_spec(group({"nodes": 2, "devicesPerNode": 16})), {"accelerator": {"class": "atlas-a3-superpod"}})
ONE = merged(A3, group({"nodes": 1, "devicesPerNode": 16}))


def render(spec: Json) -> Json:
    made: Json = build_raycluster(IDENTITY, typed(spec), 1, "digest")["spec"]
    return made


def worker(spec: Json) -> Any:  # noqa: ANN401 - JSON
    return render(spec)["workerGroupSpecs"][0]["template"]


def head(spec: Json) -> Any:  # noqa: ANN401 - JSON
    return render(spec)["headGroupSpec"]["template"]


def mounted(spec: Json) -> set[str]:
    pod = worker(spec)["spec"]
    volumes = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    mounts = {m["name"]: m for m in pod["containers"][0]["volumeMounts"] if m["name"].startswith("rljob-driver")}
    assert all(mount["readOnly"] and volumes[name] == mount["mountPath"] for name, mount in mounts.items())
    return set(volumes.values())


def test_a_worker_is_guaranteed_with_whole_cores_for_each_device() -> None:
    git = {"type": "Git", "git": {"url": "https://example.com/x.git", "revision": "a" * 40}}
    service = {"name": "judge", "image": "x", "port": 8999, "cpu": "4", "memory": "8Gi"}
    pod = worker(merged(A3, {"code": git, "services": [service]}))["spec"]
    for container in (*pod["containers"], *pod["initContainers"]):
        requests, limits = container["resources"]["requests"], container["resources"]["limits"]
        assert requests == limits
        assert {"cpu", "memory"} <= set(limits)
    assert int(pod["containers"][0]["resources"]["limits"]["cpu"]) % 16 == 0


def test_shared_memory_is_a_volume_whose_size_is_part_of_the_memory() -> None:
    pod = worker(A3)["spec"]
    (shared,) = [v for v in pod["volumes"] if v["name"] == "shared-memory"]
    assert shared["emptyDir"] == {"medium": "Memory", "sizeLimit": "512Gi"}
    assert pod["containers"][0]["resources"]["limits"]["memory"] == "1400Gi"


def test_what_the_template_says_goes_before_the_class() -> None:
    own = merged(A3, group({"nodes": 2, "devicesPerNode": 16, "template": {"cpu": "160", "memory": "700Gi"}}))
    limits = worker(own)["spec"]["containers"][0]["resources"]["limits"]
    assert (limits["cpu"], limits["memory"]) == ("160", "700Gi")
    assert "shared-memory" not in [volume["name"] for volume in worker(own)["spec"]["volumes"]]
    shared = merged(A3, group({"nodes": 2, "devicesPerNode": 16, "template": {"sharedMemory": "64Gi"}}))
    assert worker(shared)["spec"]["containers"][0]["resources"]["limits"]["memory"] == "1400Gi"


def test_the_driver_is_mounted_whole_from_the_node() -> None:
    assert {"/usr/local/dcmi", "/usr/local/bin/npu-smi", "/usr/local/Ascend/driver/lib64"} <= mounted(ONE)
    assert "runtimeClassName" not in worker(ONE)["spec"]
    assert "/etc/hccn.conf" not in mounted(ONE)
    assert "/etc/hccn.conf" in mounted(A3)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"accelerator": {"driverMounts": "RuntimeClass"}}, "ascend"),
        ({"runtime": {"runtimeClassName": "npu"}}, "npu"),
        ({"accelerator": {"driverMounts": "RuntimeClass"}, "runtime": {"runtimeClassName": "npu"}}, "npu"),
    ],
)
def test_ascends_runtime_mounts_the_driver_and_the_pod_what_that_leaves_out(change: Json, name: str) -> None:
    spec = merged(A3, change)
    assert worker(spec)["spec"]["runtimeClassName"] == name
    assert mounted(spec) == {
        "/usr/local/Ascend/driver/tools",
        "/usr/local/Ascend/driver/version.info",
        "/etc/ascend_install.info",
        "/etc/hccn.conf",
    }


def test_a_namespace_without_host_paths_gets_none() -> None:
    assert mounted(merged(A3, {"accelerator": {"driverMounts": "None"}})) == set()


def test_a_mount_of_the_user_goes_before_the_tables() -> None:
    volume = {"name": "smi", "hostPath": {"path": "/usr/local/sbin"}}
    mount = {"name": "smi", "mountPath": "/usr/local/bin/npu-smi"}
    template = {"volumes": [volume], "volumeMounts": [mount]}
    assert "/usr/local/bin/npu-smi" not in mounted(merged(A3, group({"devicesPerNode": 16, "template": template})))


def test_the_head_holds_no_npu_no_driver_and_is_passed_over_by_the_npu_scheduler() -> None:
    found = head(A3)
    assert not any("hostPath" in volume for volume in found["spec"]["volumes"])
    assert not any("huawei.com" in name for c in found["spec"]["containers"] for name in c["resources"]["requests"])
    assert found["metadata"]["annotations"]["huawei.com/skip-ascend-plugin"] == "enabled"
    assert "huawei.com/skip-ascend-plugin" not in worker(A3)["metadata"]["annotations"]


def test_the_head_wishes_for_a_node_that_no_worker_of_any_job_wants() -> None:
    own = {"preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}, "weight": 1}
    name = "preferredDuringSchedulingIgnoredDuringExecution"
    spec = merged(A3, {"head": {"template": {"affinity": {"nodeAffinity": {name: [own]}}}}})
    families = ["Ascend910A3-20", "Ascend910A3-24", "Ascend910B-20", "Ascend910B-24", "Ascend910B-25"]
    expressions = [
        {"key": "accelerator/huawei-npu", "operator": "DoesNotExist"},
        {"key": "huawei.com/topotree.superpodid", "operator": "DoesNotExist"},
        {"key": "servertype", "operator": "NotIn", "values": families},
    ]
    wish = {"weight": 100, "preference": {"matchExpressions": expressions}}
    assert head(spec)["spec"]["affinity"] == {"nodeAffinity": {name: [own, wish]}}
    assert head(A3)["spec"]["affinity"] == {"nodeAffinity": {name: [wish]}}
    assert "affinity" not in head(small_spec())["spec"]


def test_the_scheduler_reads_the_same_from_every_pod_and_from_the_cluster() -> None:
    made = build_raycluster(IDENTITY, typed(A3), 1, "digest")
    policy = {"huawei.com/schedule_policy": "chip2-node16-sp"}
    assert policy.items() <= made["metadata"]["annotations"].items()
    for template in (head(A3), worker(A3)):
        assert policy.items() <= template["metadata"]["annotations"].items()
        assert template["metadata"]["labels"]["ring-controller.atlas"] == "ascend-910b"


def terms(spec: Json) -> list[Json]:
    affinity = worker(spec)["spec"]["affinity"]["nodeAffinity"]
    found: list[Json] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return found


def test_a_worker_fits_nodes_of_its_class_only() -> None:
    assert terms(A3) == [
        {
            "matchExpressions": [
                {"key": "servertype", "operator": "In", "values": ["Ascend910A3-20", "Ascend910A3-24"]},
                {"key": "huawei.com/topotree.superpodid", "operator": "Exists"},
            ]
        }
    ]


def test_a_selector_of_the_user_takes_the_place_of_the_classs() -> None:
    template = {"nodeSelector": {"servertype": "Ascend910A3-28"}}
    (term,) = terms(merged(A3, group({"devicesPerNode": 16, "template": template})))
    assert [entry["key"] for entry in term["matchExpressions"]] == ["huawei.com/topotree.superpodid"]


def test_each_alternative_of_the_users_affinity_keeps_the_class() -> None:
    own = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in ("a", "b")]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": own}}}
    found = terms(merged(A3, group({"devicesPerNode": 16, "template": {"affinity": affinity}})))
    keys = [[entry["key"] for entry in term["matchExpressions"]] for term in found]
    assert keys == [["zone", "servertype", "huawei.com/topotree.superpodid"]] * 2


def ray_resources(group_spec: Json, mapping: bool) -> dict[str, float]:
    """Return the resources of `ray start` as addWellKnownAcceleratorResources of KubeRay's common/pod.go computes them.

    v1.5.1 and v1.6.2 only map other vendors' resources. With Ascend's prefixes (kuberay pull request 5071) an explicit
    NPU resource is kept.
    """
    params = group_spec["rayStartParams"]
    # The shell removes one layer of quotes.
    given: dict[str, float] = json.loads(json.loads(params["resources"]))
    limits = group_spec["template"]["spec"]["containers"][0]["resources"]["limits"]
    for name, count in limits.items():
        ours = name.lower().startswith("huawei.com/ascend") or name == "huawei.com/npu"
        if mapping and ours and "NPU" not in given:
            given["NPU"] = float(count)
    return given


@pytest.mark.parametrize("mapping", [False, True], ids=["KubeRay 1.5.1 and 1.6.2", "with Ascend's mapping"])
@pytest.mark.parametrize("name", ["atlas-a3-superpod", "cce-a3"])
def test_ray_hears_of_the_npus_exactly_once(mapping: bool, name: str) -> None:
    spec = merged(A3, {"accelerator": {"class": name}})
    (workers,) = render(spec)["workerGroupSpecs"]
    assert ray_resources(workers, mapping) == {"NPU": 16}
    # The group's own map would replace rayStartParams, and KubeRay rejects both together.
    assert "resources" not in workers
    # A head without this setting asks CANN, whose driver stubs may report anything.
    assert ray_resources(render(spec)["headGroupSpec"], mapping) == {"NPU": 0}


def test_another_vendors_name_is_asked_for() -> None:
    spec = merged(A3, {"accelerator": {"class": "cce-a3"}})
    assert worker(spec)["spec"]["containers"][0]["resources"]["limits"]["huawei.com/ascend-1980"] == "16"
    assert terms(spec)[0]["matchExpressions"] == [{"key": "accelerator/huawei-npu", "operator": "Exists"}]


def test_processors_are_as_they_were() -> None:
    pod = worker(small_spec())
    assert "affinity" not in pod["spec"]
    assert pod["metadata"]["annotations"] == {}
    assert mounted(small_spec()) == set()
