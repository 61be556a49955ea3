"""Which code a job runs: what is known before anything is copied, and what is still to be copied."""

from __future__ import annotations

from rljob.api.status import Resolved, ResolvedCode
from rljob.api.v1alpha1 import RLJobSpec


def resolve_code(spec: RLJobSpec) -> ResolvedCode:
    """Return what is known before the copy; the digest of code in a volume or an image stays unknown."""
    return ResolvedCode(
        type=spec.code.type,
        config_map=spec.code.config_map.name if spec.code.config_map else None,
        digest=spec.code.git.revision if spec.code.git else None,
    )


def code_to_copy(resolved: Resolved) -> str | None:
    """Return the name of the user's ConfigMap that is still to be copied."""
    return resolved.code.config_map if resolved.code is not None and resolved.code.digest is None else None
