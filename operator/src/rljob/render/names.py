"""Names of child objects. They contain the job's UID, so that a re-created job never finds objects of its predecessor.

A job's name has at most 40 characters; KubeRay allows 53 for a RayCluster (validation.go of v1.6.2).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

UID_CHARACTERS = 5
LABEL_CHARACTERS = 63
EVALUATED_CHARACTERS = 22
"""Characters of the job's name in the name of an evaluation, which has 40 characters with a step of ten digits. See
policy account.
"""
_LABEL_WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*")
SUBDOMAIN_CHARACTERS = 253


@dataclass(frozen=True)
class JobIdentity:
    """The RLJob that every child refers to."""

    namespace: str
    name: str
    uid: str

    @property
    def prefix(self) -> str:
        """Common prefix of the children's names."""
        return f"{self.name}-{self.uid.replace('-', '')[:UID_CHARACTERS]}"

    @property
    def clusters(self) -> str:
        """Shell pattern of the names of its RayClusters; those of its evaluations begin with the same prefix."""
        return f"{self.prefix}-[0-9]*"


def cluster_name(job: JobIdentity, generation: int) -> str:
    """Return the name of the RayCluster, its Secret and its ConfigMap."""
    return f"{job.prefix}-{generation}"


def submission_id(cluster: str, attempt: int) -> str:
    """Return the ID of an attempt's Ray job."""
    return f"{cluster}-{attempt}"


def snapshot_name(job: JobIdentity, generation: int) -> str:
    """Return the name of the ConfigMap with spec and recipes.

    It contains the first cluster generation that uses the snapshot.
    """
    return f"{job.prefix}-spec-{generation}"


def code_name(job: JobIdentity) -> str:
    """Return the name of the ConfigMap with the frozen copy of the user's code."""
    return f"{job.prefix}-code"


def evidence_name(job: JobIdentity) -> str:
    """Return the name of the ConfigMap with the records of ended attempts."""
    return f"{job.prefix}-attempts"


def initializer_name(job: JobIdentity, initializer: str) -> str:
    """Return the name of an initializer's Job.

    Kubernetes allows 63 characters because it becomes a label of the pods.
    """
    return _shortened(f"{job.prefix}-{initializer}", initializer)


def shared_service_name(job: JobIdentity, generation: int, service: str) -> str:
    """Return the name of a shared service's Deployment, Service and NetworkPolicy.

    It contains the first cluster generation that uses the spec: a restart keeps the service, an edited spec gets
    another one. A Service's name is a DNS label; KubeRay's Services have the generation right after the prefix.
    """
    full = f"{job.prefix}-svc-{generation}-{service}"
    return _shortened(full, full)


def generation_in(name: str) -> int:
    """Return the generation at the end of the name of a cluster or a snapshot."""
    return int(name.rpartition("-")[2])


def export_name(job: JobIdentity, step: int, occasion: str) -> str:
    """Return the name of an export's Job. An occasion is one target, one request and one try after a refusal."""
    return f"{job.prefix}-export-{step}-{_hash(occasion)}"


def evaluation_name(job: JobIdentity, step: int) -> str:
    """Return the name of the RLJob that evaluates a step. A name of an RLJob has at most 40 characters."""
    return f"{job.name[:EVALUATED_CHARACTERS]}-{job.uid.replace('-', '')[:UID_CHARACTERS]}-e{step}"


def _shortened(full: str, distinct: str) -> str:
    """Return a name that fits into a label. Cut without a hash, two long names could be equal."""
    if len(full) <= LABEL_CHARACTERS:
        return full
    return f"{full[: LABEL_CHARACTERS - UID_CHARACTERS - 1].rstrip('-')}-{_hash(distinct)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:UID_CHARACTERS]


def is_label_name(name: str) -> bool:
    """Return whether a label or annotation may have this name (apimachinery, util/validation: IsQualifiedName)."""
    prefix, slash, last = name.rpartition("/")
    return bool(re.fullmatch(_LABEL_WORD, last) and (not slash or is_subdomain(prefix)))


def is_subdomain(name: str) -> bool:
    """Return whether a name is an RFC 1123 subdomain (the same: IsDNS1123Subdomain)."""
    return len(name) <= SUBDOMAIN_CHARACTERS and bool(_SUBDOMAIN.fullmatch(name))


def is_label_value(value: str) -> bool:
    """Return whether a label may have this value (the same: IsValidLabelValue)."""
    return not value or bool(re.fullmatch(_LABEL_WORD, value))
