"""Labels and annotations of all that belongs to an RLJob. Part of the API: dashboards and scripts select by them."""

from __future__ import annotations

JOB = "rljob.dev/job"
JOB_UID = "rljob.dev/job-uid"
CLUSTER_GENERATION = "rljob.dev/cluster-generation"
INITIALIZER = "rljob.dev/initializer"

INTENT = "rljob.dev/intent"
"""Annotation: which intent made the object; an object with another one is never adopted."""
BUILT_IN = "rljob.dev/built-in"
"""Label of recipes that come with a release; its value is the installation."""
JOB_DIGEST = "rljob.dev/job-digest"
"""Annotation: SHA-256 of job.json."""
SPEC_HASH = "rljob.dev/spec-hash"
CODE_DIGEST = "rljob.dev/code-digest"
"""Annotation: SHA-256 over the sorted data of the copied ConfigMap."""
RECIPES_HASH = "rljob.dev/recipes-hash"
REFRESH = "rljob.dev/refresh"
"""Annotation that users set on an RLJob: with any new value, the next cluster generation reads its recipes anew."""
RENDERER = "rljob.dev/renderer"
"""Annotation: version of the renderer that made the manifest."""

RENDERER_VERSION = "1"
"""Raised whenever the same spec renders to another RayCluster or job.json."""

HOSTNAME = "kubernetes.io/hostname"
"""https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetesiohostname"""
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
"""https://kueue.sigs.k8s.io/docs/tasks/run/rayclusters/"""
RAY_CLUSTER = "ray.io/cluster"
RAY_NODE_TYPE = "ray.io/node-type"
"""Set by KubeRay: ray-operator/controllers/ray/utils/constant.go, v1.6.2."""
