"""The job against the accelerator table, and invalid variables of HCCL."""

from corpus.bad import Bad, Json, group, merged, template
from corpus.pods import patch

WORKERS = "spec.workerGroups[0].template"
A2 = {"accelerator": {"class": "atlas-a2"}, "trainer": {"globalBatchSize": 64}}
WHOLE = merged(A2, group({"devicesPerNode": 8}))


def env(*variables: tuple[str, str]) -> Json:
    return merged(
        A2, group({"devicesPerNode": 8, "template": {"env": [{"name": n, "value": v} for n, v in variables]}})
    )


BAD = {
    "halves of several nodes": Bad(
        merged(A2, group({"nodes": 2, "devicesPerNode": 4})),
        "spec.workerGroups[0].devicesPerNode",
        "4 on 2 nodes, but a pod must take a whole node: class atlas-a2 has 8 devices per node; use that, or set nodes",
    ),
    "cores that cannot be shared": Bad(
        merged(WHOLE, group({"devicesPerNode": 8, "template": {"cpu": "100"}})),
        f"{WORKERS}.cpu",
        "100 cores cannot be divided evenly among 8 devices; use 96 or 104",
    ),
    "cores in parts": Bad(
        merged(WHOLE, group({"devicesPerNode": 8, "template": {"cpu": "95500m"}})),
        f"{WORKERS}.cpu",
        "use 96",
    ),
    "more shared memory than the class has": Bad(
        merged(
            WHOLE, template({"sharedMemory": "2Ti"}) | group({"devicesPerNode": 8, "template": {"sharedMemory": "2Ti"}})
        ),
        f"{WORKERS}.sharedMemory",
        "2Ti counts as memory, but template.memory is 1400Gi",
    ),
    "a patch of a Guaranteed pod's cores": Bad(
        merged(WHOLE, patch(containers=[{"name": "ray-worker", "resources": {"limits": {"cpu": "200"}}}])),
        "spec.podSpecPatch.workers.containers[0].resources.limits.cpu",
        "cannot be patched: use template.cpu",
    ),
    "a group of Volcano": Bad(
        template({"annotations": {"scheduling.k8s.io/group-name": "b"}}),
        f"{WORKERS}.annotations[scheduling.k8s.io/group-name]",
        "perhaps that of another job; use scheduling.gang",
    ),
    "the plug-in's variable": Bad(
        env(("ASCEND_VISIBLE_DEVICES", "0,1")),
        f"{WORKERS}.env[0]",
        "ASCEND_VISIBLE_DEVICES is set by the device plug-in",
    ),
    "other devices than the pod's": Bad(
        env(("ASCEND_RT_VISIBLE_DEVICES", "0,1,2,3")), f"{WORKERS}.env[0]", "names other devices than the pod's 0 to 7"
    ),
    "two links within a node": Bad(
        env(("HCCL_INTRA_PCIE_ENABLE", "1"), ("HCCL_INTRA_ROCE_ENABLE", "1")),
        f"{WORKERS}.env[1]",
        "are both 1; keep one",
    ),
    "no link within a node": Bad(env(("HCCL_INTRA_PCIE_ENABLE", "0")), f"{WORKERS}.env[0]", "no link is left"),
    "a time that HCCL does not know": Bad(
        env(("HCCL_CONNECT_TIMEOUT", "60")), f"{WORKERS}.env[0]", "'60': HCCL_CONNECT_TIMEOUT must be from 120 to 7200"
    ),
    "a port that HCCL does not know": Bad(
        env(("HCCL_IF_BASE_PORT", "65530")), f"{WORKERS}.env[0]", "HCCL_IF_BASE_PORT must be from 1024 to 65520"
    ),
    "a list of hosts that is none": Bad(
        env(("HCCL_WHITELIST_DISABLE", "0")), f"{WORKERS}.env[0]", "without HCCL_WHITELIST_FILE"
    ),
    "a queue that cannot be captured": Bad(
        env(("TASK_QUEUE_ENABLE", "2")), f"{WORKERS}.env[0]", "cannot be captured in the rollout's graphs"
    ),
}
