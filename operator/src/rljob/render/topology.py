"""Which nodes belong together, as Kueue is asked: annotations of the workers' pods that its Workload is made from.

Words of Kueue 0.14 and newer (apis/kueue/v1beta2/topology_types.go); it reads them where its RayCluster integration
makes a PodSet of a worker group (pkg/controller/jobs/raycluster). The head asks for nothing and stands anywhere: Kueue
lets a PodSet with a request into flavors with a Topology only, and one without a request into the others only
(pkg/scheduler/flavorassigner/tas_flavorassigner.go), and processors without NPUs have no place in a super-pod.
"""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.render.accelerators import facts_of

REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
ANYWHERE = "kueue.x-k8s.io/podset-unconstrained-topology"
BLOCK_LEVEL = "kueue.x-k8s.io/podset-slice-required-topology"
BLOCK_SIZE = "kueue.x-k8s.io/podset-slice-size"


def level_of(spec: RLJobSpec) -> str | None:
    """Give the node label of the domain that should hold the whole job; None: no domain need hold it.

    A job that says Required and nothing else means the super-pod: there is no other domain that the class knows.
    """
    topology = spec.scheduling.topology
    if topology.level is not None:
        return topology.level
    means_super_pod = topology.mode == "Required" and topology.nodes_per_super_pod_block is None
    return facts_of(spec).super_pod_label if means_super_pod else None


def kueue_annotations(spec: RLJobSpec) -> dict[str, str]:
    """Annotations of worker pods; empty without a queue of Kueue's, or where neither job nor class speaks of places."""
    if spec.scheduling.queue_name is None or spec.scheduling.gang == "Volcano":
        return {}
    topology, facts = spec.scheduling.topology, facts_of(spec)
    level, block = level_of(spec), topology.nodes_per_super_pod_block
    asked: dict[str, str] = {}
    if level is not None:
        asked[REQUIRED if topology.mode == "Required" else PREFERRED] = level
    if block is not None and facts.super_pod_label is not None:
        asked |= {BLOCK_LEVEL: facts.super_pod_label, BLOCK_SIZE: str(block)}
    if (
        not asked
        and facts.topology_levels
        and not {REQUIRED, PREFERRED} & set(spec.worker_groups[0].template.annotations)
    ):
        # Without a request of any kind, Kueue lets no pod on nodes whose flavor has a Topology; with two it refuses.
        return {ANYWHERE: "true"}
    return asked
