"""Every permission of the operator's account, as data: which requests it sends, to which objects, and for what.

The chart's roles (templates/rbac.yaml) grant kinds of objects, its policies `children` and `account` restrict the
writes to single objects. Tests compare roles, policies and the API server's audit log with these rows, and
docs/reference/operator-permissions.md is generated from them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

WRITES = frozenset({"create", "update", "patch", "delete"})


class Where(enum.StrEnum):
    """Where a permission applies."""

    JOBS = "namespaces of jobs"
    """All namespaces with a ClusterRole, or one with a Role (`operator.watchNamespace`)."""
    CLUSTER = "cluster"
    """Objects without a namespace, with a ClusterRole. In an installation for one namespace, it is optional."""
    HOME = "own namespace"
    """The namespace of the operator's pod, with a Role."""
    DEVICES = "namespace of the device plug-in"
    """With a Role in an installation for one namespace, otherwise part of the ClusterRole."""


@dataclass(frozen=True)
class Permission:
    """One row: a resource of an API group, and what the operator does with it."""

    group: str
    resource: str
    """With its subresource, as RBAC writes it: `pods/log`."""
    verbs: tuple[str, ...]
    purpose: str
    where: Where = Where.JOBS
    writes_only: str = ""
    """Which objects the policies allow to be written; required if a verb writes."""
    policy: str = ""
    """The policy that restricts the writes."""


CHILDREN, ACCOUNT = "children", "account"
_OF_A_JOB = "whose controller is an RLJob"
_NAMED = f"{_OF_A_JOB}, and whose name and label contain its UID"
_MOUNT_NOTHING = "have no token of a ServiceAccount and no volume of a Secret"

PERMISSIONS = (
    Permission(
        "rljob.dev",
        "rljobs",
        ("get", "list", "watch", "create", "patch", "delete"),
        "store; live read before destructive steps; evaluations of checkpoints; finalizer of jobs with "
        "`stop.requireCheckpoint`; deletion after `cleanup.jobAfterSeconds`",
        writes_only="create: RLJobs of mode Evaluate without evaluations of their own, whose controller is an RLJob, "
        "and whose name and label contain its UID; patch: the finalizer `rljob.dev/stop` in `metadata.finalizers`; "
        "delete: RLJobs that have finished",
        policy=ACCOUNT,
    ),
    Permission(
        "rljob.dev",
        "rljobs/status",
        ("patch",),
        "server-side apply, field manager `rljob-operator`",
        writes_only="`status`; the API server ignores everything else in such a request",
    ),
    Permission(
        "rljob.dev",
        "rljobs/finalizers",
        ("update",),
        "owner references with `blockOwnerDeletion` where the plug-in OwnerReferencesPermissionEnforcement is on",
        writes_only="nothing: no request uses it, the plug-in asks for it",
    ),
    Permission("rljob.dev", "rlrecipes", ("get", "list", "watch"), "store"),
    Permission(
        "rljob.dev",
        "clusterrlrecipes",
        ("get", "list", "watch", "create", "patch", "delete"),
        "store; built-in recipes, with `recipes.enabled`. For one namespace only reads, with `rbac.clusterRecipes`",
        Where.CLUSTER,
        "recipes whose label `rljob.dev/built-in` names this installation, before and after the request",
        ACCOUNT,
    ),
    Permission(
        "",
        "nodes",
        ("get", "list"),
        "list: whether the hardware that a job names exists, at most every 5 min, every minute while a job waits for "
        "it; get: the state of nodes that jobs hold, at most twice a minute each and 3 per second in all. For one "
        "namespace only get, with `rbac.nodeFaults`; without either, nodes are not judged",
        Where.CLUSTER,
    ),
    Permission(
        "ray.io",
        "rayclusters",
        ("get", "list", "watch", "create", "delete"),
        "the Ray cluster of each generation; never updated",
        writes_only=f"create: RayClusters {_NAMED}, whose pods {_MOUNT_NOTHING}; delete: RayClusters {_OF_A_JOB}",
        policy=CHILDREN,
    ),
    Permission(
        "kueue.x-k8s.io",
        "workloads",
        ("get", "list", "watch"),
        "what a cluster waits for in its queue; the store keeps those of RayClusters; optional",
    ),
    Permission(
        "scheduling.volcano.sh",
        "podgroups",
        ("get", "list", "watch", "create", "delete"),
        "watch only `rljob.dev/job-uid`; one for each generation with a Volcano gang, never updated; optional",
        writes_only=f"create: PodGroups {_NAMED}; delete: PodGroups {_OF_A_JOB}",
        policy=CHILDREN,
    ),
    Permission(
        "networking.k8s.io",
        "networkpolicies",
        ("get", "create", "delete"),
        "one for each generation in a closed namespace or of a Ray without token authentication, one for each shared "
        "service; never updated; those of generations before the last two are deleted",
        writes_only=f"create: NetworkPolicies {_NAMED}, which select pods of their job only; "
        f"delete: NetworkPolicies {_OF_A_JOB}",
        policy=CHILDREN,
    ),
    Permission(
        "",
        "services",
        ("get", "create", "delete"),
        "one for each shared service (`services[].placement: Shared`), never updated",
        writes_only=f"create: Services {_NAMED}, of type ClusterIP, which select pods of their job only; "
        f"delete: Services {_OF_A_JOB}",
        policy=CHILDREN,
    ),
    Permission(
        "apps",
        "deployments",
        ("get", "create", "delete"),
        "one for each shared service, before the RayCluster; deleted when the job ends or is suspended; never updated",
        writes_only=f"create: Deployments {_NAMED}, whose containers have no privileges and whose pods have no token "
        f"of a ServiceAccount, no part of a node and no volume of a Secret; delete: Deployments {_OF_A_JOB}",
        policy=CHILDREN,
    ),
    Permission(
        "",
        "pods",
        ("get", "list", "watch", "delete"),
        "watch only `rljob.dev/job,ray.io/node-type=head`; LIST by label to diagnose starts, also of shared "
        "services, and to read how exports ended; DELETE with a grace of one second where Ray never started",
        writes_only="delete: pods that are being deleted already, with the label `rljob.dev/job` and a RayCluster as "
        "their controller",
        policy=ACCOUNT,
    ),
    Permission("", "pods/log", ("get",), "the last line of a running initializer, at most every 10 s"),
    Permission(
        "",
        "configmaps",
        ("get", "list", "create", "update", "delete"),
        "snapshot, frozen configuration; the user's code, read once and copied; LIST by label of the job, once for a "
        "job without status, and when a third cluster generation begins; delete: what generations before the last two "
        "froze; update: the record of ended attempts, the only one that is not immutable; for a node that "
        "a job holds, `mindx-dl-deviceinfo-<node>` in `faults.deviceInfoNamespace` and "
        "`mindx-dl-nodeinfo-<node>` in `faults.nodeInfoNamespace`; `statistic-fault-info` in "
        "`faults.publicFaultsNamespace`",
        writes_only=f"create: ConfigMaps {_NAMED}, with labels and annotations of `rljob.dev` only; update: ConfigMaps "
        "that had the same RLJob as their controller before; delete: as create",
        policy=CHILDREN,
    ),
    Permission(
        "",
        "secrets",
        ("create", "delete"),
        "the token of a Ray cluster; never read; delete: those of generations before the last two, only with the "
        "policies",
        writes_only=f"Secrets {_NAMED}, of type Opaque with the key `auth_token`, with labels and annotations of "
        "`rljob.dev` only",
        policy=CHILDREN,
    ),
    Permission(
        "batch",
        "jobs",
        ("get", "create"),
        "initializers, exports",
        writes_only=f"Jobs {_NAMED}, whose pods {_MOUNT_NOTHING}",
        policy=CHILDREN,
    ),
    Permission(
        "events.k8s.io",
        "events",
        ("list", "create", "patch"),
        "submission, end, warnings; a repetition within ten minutes is counted in the same event; LIST of the "
        "namespace's warnings, once per ended attempt; LIST by reason, once in 30 s per namespace, of KubeRay's "
        "refusals and replaced pods and of initializers without a pod",
        writes_only="its own events (`reportingController` is `rljob.dev/rljob-operator`) about RLJobs",
        policy=ACCOUNT,
    ),
    Permission(
        "coordination.k8s.io",
        "leases",
        ("get", "create", "update"),
        "one operator at a time",
        Where.HOME,
        "the Lease with the name of the release",
        ACCOUNT,
    ),
    Permission(
        "",
        "configmaps",
        ("get", "create", "update"),
        "which job has which ports of the nodes' network, by compare and swap",
        Where.HOME,
        "`<release>-ports`",
        CHILDREN,
    ),
    Permission(
        "",
        "configmaps",
        ("get",),
        "the health of NPUs; only needed for one namespace with `rbac.nodeFaults`",
        Where.DEVICES,
    ),
)
DISCOVERY = ("/api", "/apis", "/openapi", "/version")
"""Paths without resources that every account may read (ClusterRole system:discovery), with everything below them."""
