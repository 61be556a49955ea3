"""What Kubernetes does with the Deployments of shared services: their pods become available."""

from __future__ import annotations

from doubles.fake import FakeCluster

from rljob.cluster.kinds import DEPLOYMENT


def serve(cluster: FakeCluster) -> None:
    """Make the pods of every Deployment available."""
    served = {"observedGeneration": 1, "availableReplicas": 1}
    for found in cluster.objects(DEPLOYMENT):
        metadata = found["metadata"]
        if "status" not in found:
            cluster.edit(DEPLOYMENT, metadata["namespace"], metadata["name"], lambda each: each.update(status=served))
