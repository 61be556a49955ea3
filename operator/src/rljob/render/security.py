"""The security context of every container that the operator makes, as Pod Security's `restricted` asks for.

https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted

Our own programs never need more. A container of a user's image gets the same on a class of CPUs. Images for Ascend run
as root, and their pods need what the standard forbids (docs/guides/pod-security.md), so on an NPU class such a
container gets it only if the pod's securityContext states `runAsNonRoot: true`. Sidecars and init containers of a
template are the user's and are not changed. KubeRay's own init container copies the context of the Ray container
(v1.6.2, ray-operator/controllers/ray/common/pod.go, line 393).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from rljob.api.pods import PodTemplate
from rljob.api.v1alpha1 import RLJobSpec
from rljob.render.accelerators import facts_of

ROOT = 0


@dataclass(frozen=True)
class ContainerSecurity:
    """A container without privileges. Whether it may be root is the only question that its image decides."""

    non_root: bool = True
    """Whether the kubelet verifies that the container does not run as root."""
    read_only_root: bool = False
    """Whether the container cannot write to its image's file system."""

    def manifest(self) -> dict[str, Any]:
        """Return the securityContext of the container."""
        return {
            **({"runAsNonRoot": True} if self.non_root else {}),
            "allowPrivilegeEscalation": False,
            **({"readOnlyRootFilesystem": True} if self.read_only_root else {}),
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }


@dataclass(frozen=True)
class PodSecurity:
    """What the containers of one pod get."""

    restricted: bool
    """Whether containers of the user's images are restricted."""
    as_root: bool
    """Whether the pod states that its containers run as root, unless they state another user themselves."""
    injected: bool
    """Whether our own programs run from the operator's image, which has a user of its own."""

    @classmethod
    def of(cls, spec: RLJobSpec, template: PodTemplate, patch: Mapping[str, Any] | None = None) -> Self:
        """Return the security of a pod with this template and this patch of the rendered pod."""
        stated: dict[str, Any] = {}
        if template.security_context is not None:
            stated |= template.security_context.model_dump(by_alias=True, exclude_none=True)
        stated |= dict((patch or {}).get("securityContext") or {})
        as_root, non_root = stated.get("runAsUser") == ROOT, stated.get("runAsNonRoot")
        restricted = not facts_of(spec).is_npu if non_root is None else bool(non_root)
        return cls(restricted and not as_root, as_root, spec.runtime.injected_image is not None)

    def user_image(self) -> dict[str, Any]:
        """Return the field of a container of a user's image: nothing if the image may need privileges."""
        return {"securityContext": ContainerSecurity().manifest()} if self.restricted else {}

    def own_program(self, *, read_only_root: bool = False) -> dict[str, Any]:
        """Return the field of a container that runs a program of ours."""
        non_root = not self.as_root and (self.injected or self.restricted)
        return {"securityContext": ContainerSecurity(non_root, read_only_root).manifest()}

    def user_image_with_own_program(self) -> dict[str, Any]:
        """Return the field of a container that runs a program of ours in a user's image, possibly as root."""
        return {"securityContext": ContainerSecurity(self.restricted).manifest()}


def settle(pod: dict[str, Any]) -> dict[str, Any]:
    """Return a patched pod without contradictions between our context and privileges that the patch adds.

    The API server refuses a container that is privileged, or has CAP_SYS_ADMIN, and may not escalate privileges
    (kubernetes v1.36.2, pkg/apis/core/validation/validation.go, ValidateSecurityContext).
    """
    lists = {name: [_settled(each) for each in pod[name]] for name in ("initContainers", "containers") if name in pod}
    return pod | lists


def _settled(container: dict[str, Any]) -> dict[str, Any]:
    context = container.get("securityContext") or {}
    added = (context.get("capabilities") or {}).get("add") or ()
    if not context.get("privileged") and not {"SYS_ADMIN", "CAP_SYS_ADMIN"} & set(added):
        return container
    kept = {name: value for name, value in context.items() if name != "allowPrivilegeEscalation" or value}
    return container | {"securityContext": kept}
