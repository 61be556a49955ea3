"""The operator's volumes are mounted by the operator: no sidecar, init container or patch may use them.

They hold the driver of the node, the injected runtime, the code, job.json and the spool. A second mount could be
writable, or under another path, while the policies of the cluster and the runtime rely on the operator's own. Called by
`validate`. The names of volumes are reserved in `pods` and `patches`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation import fields
from rljob.core.validation.pods import OUR_PREFIX
from rljob.core.validation.violation import Check, Violation


def _volumes_of_the_operator_are_not_mounted(spec: RLJobSpec) -> Iterator[Violation]:
    for path, container in containers(spec):
        for index, name in _names(container.get("volumeMounts")):
            if name.startswith(OUR_PREFIX):
                yield Violation(
                    f"{path}.volumeMounts[{index}].name",
                    f"volume {name} belongs to the operator, which mounts it where it is needed; use a volume of your "
                    "own",
                )


def containers(spec: RLJobSpec) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the containers of templates and podSpecPatch as in core/v1, with their paths."""
    for path, container in fields.containers(spec):
        yield path, container.model_dump(by_alias=True, exclude_none=True)
    for pod, patch in (("head", spec.pod_spec_patch.head), ("workers", spec.pod_spec_patch.workers)):
        entries = (patch or {}).get("containers")
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, Mapping):
                yield f"spec.podSpecPatch.{pod}.containers[{index}]", entry


def _names(entries: object) -> Iterator[tuple[int, str]]:
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, Mapping) and isinstance(name := entry.get("name"), str):
            yield index, name


CHECKS: tuple[Check, ...] = (_volumes_of_the_operator_are_not_mounted,)
