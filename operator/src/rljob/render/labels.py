"""Labels and annotations of all objects of an RLJob.

They are part of the API: dashboards and scripts select by them.
"""

from __future__ import annotations

from rljob.api import group

JOB = "rljob.dev/job"
JOB_UID = "rljob.dev/job-uid"
CLUSTER_GENERATION = "rljob.dev/cluster-generation"
ROLE = "rljob.dev/role"
"""Label of a worker pod whose job trains and generates on different nodes: `trainer` or `rollout`."""
INITIALIZER = "rljob.dev/initializer"
EXPORT = "rljob.dev/export"
"""Label of an export's Job and pods: the Job's name. Annotation that users set on an RLJob, or `rljob export` does: the
step to export, `latest` or `best`; after a space anything that distinguishes one request from the next."""
SERVICE = "rljob.dev/service"
"""Label of the objects and pods of a service with placement Shared: the name of its Deployment."""
ACCELERATOR = "rljob.dev/accelerator"
"""Label of a RayCluster: its accelerator class, which determines the dies per card."""

INTENT = "rljob.dev/intent"
"""Annotation: the intent that created the object. An object with another intent is never adopted."""
ATTEMPTS = "attempts"
"""Intent of the ConfigMap of ended attempts, after the job's UID."""
BUILT_IN = "rljob.dev/built-in"
"""Label of recipes that are part of a release; its value is the installation."""
JOB_DIGEST = "rljob.dev/job-digest"
"""Annotation: SHA-256 of job.json."""
SPEC_HASH = "rljob.dev/spec-hash"
CODE_DIGEST = "rljob.dev/code-digest"
"""Annotation: SHA-256 over the sorted data of the copied ConfigMap."""
RECIPES_HASH = "rljob.dev/recipes-hash"
REFRESH = "rljob.dev/refresh"
"""Annotation that users set on an RLJob: with any new value, the next cluster generation reads its recipes again."""
PAUSED = "rljob.dev/paused"
"""Annotation that users set on an RLJob: while it is "true", the operator does nothing for the job."""
RESTART = group.RESTART
"""Annotation that users set on an RLJob: with any new value, the run saves and continues in a new cluster."""
FORCE_DELETE = "rljob.dev/force-delete"
"""Annotation that users set on an RLJob: with "true", its deletion does not wait for a checkpoint."""
STOP_FINALIZER = "rljob.dev/stop"
"""Finalizer of an RLJob whose run must save before the job is deleted."""
PORT_BLOCK = "rljob.dev/port-block"
"""Annotation of a RayCluster and its pods: the first port of the job's block, with network.mode Host."""
RENDERER = "rljob.dev/renderer"
"""Annotation: version of the renderer that created the manifest."""

RUNTIME_IMAGE = "rljob.dev/runtime-image"
"""Annotation of a RayCluster: the image whose runtime its pods get, with runtime.injection Auto."""
RENDERER_VERSION = "7"
"""Increased whenever the same spec renders to a different RayCluster or job.json."""
UNAUTHENTICATED_RAY = "rljob.dev/unauthenticated-ray"
"""Label of the pods of a Ray without token authentication, which the chart's NetworkPolicy does not open to the pods of
other jobs."""
ISOLATED = "rljob.dev/isolated"
"""Label of the pods of a cluster with a NetworkPolicy of its own, which the chart's opens to no other job either."""

HOSTNAME = "kubernetes.io/hostname"
"""https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetesiohostname"""
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
"""https://kueue.sigs.k8s.io/docs/tasks/run/rayclusters/"""
KUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"
"""https://kueue.sigs.k8s.io/docs/concepts/workload_priority_class/"""
VOLCANO_QUEUE = "volcano.sh/queue-name"
"""Label of a RayCluster that waits in a queue of Volcano; volcano.sh/apis v1.14.0, and KubeRay 1.6.2 uses the same."""
RAY_CLUSTER = "ray.io/cluster"
RAY_NODE_TYPE = "ray.io/node-type"
RAY_GROUP = "ray.io/group"
"""Set by KubeRay: ray-operator/controllers/ray/utils/constant.go, v1.6.2."""
