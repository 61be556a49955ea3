"""Topology requests to Kueue: annotations of the workers' pods, from which Kueue creates its Workload.

The terms are those of Kueue 0.14 and newer (apis/kueue/v1beta2/topology_types.go), which reads them when its RayCluster
integration creates a PodSet of a worker group (pkg/controller/jobs/raycluster). The head requests nothing: Kueue admits
a PodSet with a request only to flavors with a Topology, and one without a request only to the others
(pkg/scheduler/flavorassigner/tas_flavorassigner.go), and CPUs without NPUs do not belong in a super-pod.
"""

from __future__ import annotations

from rljob.api.pods import PodTemplate
from rljob.api.v1alpha1 import RLJobSpec
from rljob.render.accelerators import facts_of

REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
ANYWHERE = "kueue.x-k8s.io/podset-unconstrained-topology"
BLOCK_LEVEL = "kueue.x-k8s.io/podset-slice-required-topology"
BLOCK_SIZE = "kueue.x-k8s.io/podset-slice-size"


def level_of(spec: RLJobSpec) -> str | None:
    """Return the node label of the domain that should hold the whole job; None if there is no such requirement.

    A job that sets only Required refers to the super-pod, which is the only domain that the class knows.
    """
    topology = spec.scheduling.topology
    if topology.level is not None:
        return topology.level
    means_super_pod = topology.mode == "Required" and topology.nodes_per_super_pod_block is None
    return facts_of(spec).super_pod_label if means_super_pod else None


def kueue_annotations(spec: RLJobSpec, template: PodTemplate) -> dict[str, str]:
    """Return annotations of the worker pods of a template.

    Kueue places each PodSet by itself, so a domain holds all workers of one group. Empty without a Kueue queue, or if
    neither job nor class has topology settings.
    """
    if spec.scheduling.queue_name is None or spec.scheduling.gang == "Volcano":
        return {}
    topology, facts = spec.scheduling.topology, facts_of(spec)
    level, block = level_of(spec), topology.nodes_per_super_pod_block
    asked: dict[str, str] = {}
    if level is not None:
        asked[REQUIRED if topology.mode == "Required" else PREFERRED] = level
    if block is not None and facts.super_pod_label is not None:
        asked |= {BLOCK_LEVEL: facts.super_pod_label, BLOCK_SIZE: str(block)}
    if not asked and facts.topology_levels and not {REQUIRED, PREFERRED} & set(template.annotations):
        # Without any request, Kueue admits no pod to nodes whose flavor has a Topology; it rejects two requests.
        return {ANYWHERE: "true"}
    return asked
