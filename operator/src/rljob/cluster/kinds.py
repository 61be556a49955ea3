"""The kinds of objects that the operator uses, as data: enough to build URLs without asking the API server.

Every layer refers to a kind by these constants, and the adapters know no others. `WATCHED` lists what the store holds.
A kind whose CRD is not installed answers LIST with 404, which is how its absence is detected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from rljob.api.v1alpha1 import RecipeKind

if TYPE_CHECKING:
    from rljob.core.observed import Manifest


@dataclass(frozen=True)
class Kind:
    """One row of the REST mapping."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        group, _, version = self.api_version.rpartition("/")
        return group if version else ""

    @property
    def version(self) -> str:
        """The version within the group."""
        return self.api_version.rpartition("/")[2]

    @property
    def resource(self) -> str:
        """The name that RBAC and metrics use: `rayclusters.ray.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of a collection, an object or its subresource."""
        parts = ["apis" if self.group else "api", self.api_version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        parts += [quote(part, safe="") for part in (name, subresource) if part]
        return "/" + "/".join(parts)


RLJOB = Kind("rljob.dev/v1alpha1", "RLJob", "rljobs")
RL_RECIPE = Kind("rljob.dev/v1alpha1", "RLRecipe", "rlrecipes")
CLUSTER_RL_RECIPE = Kind("rljob.dev/v1alpha1", "ClusterRLRecipe", "clusterrlrecipes", namespaced=False)
RAY_CLUSTER = Kind("ray.io/v1", "RayCluster", "rayclusters")
POD = Kind("v1", "Pod", "pods")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SECRET = Kind("v1", "Secret", "secrets")
JOB = Kind("batch/v1", "Job", "jobs")
NODE = Kind("v1", "Node", "nodes", namespaced=False)
EVENT = Kind("events.k8s.io/v1", "Event", "events")
WORKLOAD = Kind("kueue.x-k8s.io/v1beta2", "Workload", "workloads")
POD_GROUP = Kind("scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups")
NETWORK_POLICY = Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
SERVICE = Kind("v1", "Service", "services")
DEPLOYMENT = Kind("apps/v1", "Deployment", "deployments")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")

RECIPES = {RecipeKind(kind.kind): kind for kind in (RL_RECIPE, CLUSTER_RL_RECIPE)}

KINDS = {
    (kind.api_version, kind.kind): kind
    for kind in (
        *(RLJOB, *RECIPES.values(), RAY_CLUSTER, WORKLOAD, POD_GROUP, NETWORK_POLICY),
        *(POD, NODE, CONFIG_MAP, SECRET, SERVICE, DEPLOYMENT, JOB, EVENT, LEASE),
    )
}


Path = tuple[str, ...]
"""Path from the root of a manifest to a field; `*` stands for every entry of a list."""


@dataclass(frozen=True)
class Watch:
    """A kind that the store holds, restricted by labels on the server."""

    kind: Kind
    label_selector: str = ""
    optional: bool = False
    """Whether the operator works without permission to read it, which an installation for one namespace may lack."""
    addition: bool = False
    """Whether it belongs to an optional component; it is not reported if such a kind is not served."""
    unread: tuple[Path, ...] = ()
    """Fields that no decision reads. They are dropped, because for a thousand jobs they would use most of the memory.
    """


_BOOKKEEPING: tuple[Path, ...] = (
    ("metadata", "managedFields"),
    ("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"),
)

_OF_GROUPS = ("template", "rayStartParams", "headService", "scaleStrategy")
"""Parts of a RayCluster's groups without a bound (KubeRay v1.6.2, apis/ray/v1/raycluster_types.go)."""
_OF_PODS = (
    *("containers", "initContainers", "ephemeralContainers", "volumes", "imagePullSecrets", "hostAliases"),
    *("tolerations", "affinity", "nodeSelector", "topologySpreadConstraints", "readinessGates", "schedulingGates"),
    *("resourceClaims", "securityContext", "dnsConfig"),
)
"""Lists and maps of core/v1 PodSpec."""

WATCHED = (
    # Recipes come first, so that they are known when the first jobs are.
    Watch(RL_RECIPE, optional=True, unread=_BOOKKEEPING),
    Watch(CLUSTER_RL_RECIPE, optional=True, unread=_BOOKKEEPING),
    Watch(RLJOB, unread=_BOOKKEEPING),
    Watch(
        RAY_CLUSTER,
        "rljob.dev/job-uid",
        # Users may create RayClusters and pods with these labels too, so every part without a bound is dropped.
        unread=(
            *_BOOKKEEPING,
            *(("spec", "headGroupSpec", name) for name in _OF_GROUPS),
            *(("spec", "workerGroupSpecs", "*", name) for name in _OF_GROUPS),
            *(("spec", name) for name in ("autoscalerOptions", "historyServerOptions", "gcsFaultToleranceOptions")),
            ("spec", "headServiceAnnotations"),
        ),
    ),
    # Kueue creates Workloads for everything that waits in a queue; the store keeps those of RayClusters.
    Watch(
        WORKLOAD,
        optional=True,
        addition=True,
        unread=(
            *_BOOKKEEPING,
            ("spec", "podSets"),
            ("status", "admission", "podSetAssignments"),
            *(("status", name) for name in ("admissionChecks", "reclaimablePods", "resourceRequests")),
        ),
    ),
    # The PodGroups that this operator creates for Volcano.
    Watch(
        POD_GROUP,
        "rljob.dev/job-uid",
        optional=True,
        addition=True,
        # Who may update PodGroups could make these as large as the API server allows.
        unread=(*_BOOKKEEPING, *(("spec", name) for name in ("minTaskMember", "minResources", "subGroupPolicy"))),
    ),
    Watch(
        POD,
        "rljob.dev/job,ray.io/node-type=head",
        unread=(*_BOOKKEEPING, *(("spec", name) for name in _OF_PODS)),
    ),
)
UNREAD = {watch.kind: watch.unread for watch in WATCHED} | {
    # A thousand nodes with the names of all their images would need tens of megabytes.
    NODE: (
        ("metadata", "managedFields"),
        ("metadata", "annotations"),
        *(("status", name) for name in ("images", "conditions", "nodeInfo", "addresses", "volumesAttached")),
    ),
    # Any tenant may create events; these parts have no bound.
    EVENT: (
        *(("metadata", name) for name in ("managedFields", "annotations", "labels")),
        ("regarding", "fieldPath"),
        ("related",),
    ),
}


def kind_of(manifest: Manifest) -> Kind:
    """Return the kind of a manifest. An unknown kind is a bug of the caller."""
    return kind_named(str(manifest.get("apiVersion")), str(manifest.get("kind")))


def kind_named(api_version: str, kind: str) -> Kind:
    """Return the kind by its names."""
    try:
        return KINDS[api_version, kind]
    except KeyError:
        raise ValueError(f"{api_version} {kind} is not in rljob.cluster.kinds; add a row") from None
