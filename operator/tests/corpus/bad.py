"""An invalid manifest, and helpers to write it as a change of a valid one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from builders import Json, group, merged, small_spec

from rljob.api.texts import write_texts


@dataclass(frozen=True)
class Bad:
    """An invalid manifest and its report: one violation, at this field."""

    change: Json
    field: str
    message: str

    @property
    def spec(self) -> Json:
        """The whole spec, as a manifest has it."""
        return write_texts(small_spec(self.change))


def template(change: Mapping[str, Any]) -> Json:
    """Change the workers' pods."""
    return group({"template": change})


def head(change: Mapping[str, Any]) -> Json:
    """Change the head pod."""
    return {"head": {"template": dict(change)}}


def override(**values: Any) -> Json:  # noqa: ANN401 - JSON
    """Set overrides; two underscores stand for a dot."""
    return {"verl": {"overrides": {key.replace("__", "."): value for key, value in values.items()}}}


def key(name: str, value: object) -> Json:
    """Set one override."""
    return {"verl": {"overrides": {name: value}}}


def trainer(**values: object) -> Json:
    """Change the trainer."""
    return {"trainer": values}


def megatron(sizes: Mapping[str, int], nodes: int = 1, **model: int) -> Json:
    """Train with Megatron on whole nodes of Atlas A3."""
    return {
        "accelerator": {"class": "atlas-a3-superpod"},
        "workerGroups": [{"name": "trainer", "nodes": nodes, "devicesPerNode": 16}],
        "trainer": {"backend": "Megatron", "parallelism": dict(sizes)},
        "model": model,
    }


def volume(mount: str = "/data", **source: Any) -> Json:  # noqa: ANN401 - JSON
    """Mount a volume in every pod."""
    kind = source or {"persistentVolumeClaim": {"claimName": "data"}}
    return {"volumes": [{"name": "data", **kind}], "volumeMounts": [{"name": "data", "mountPath": mount}]}


def saved(change: Mapping[str, Any] | None = None, **source: Any) -> Json:  # noqa: ANN401 - JSON
    """Save checkpoints on a volume."""
    return template(volume(**source)) | {
        "checkpoint": {"path": "/data/checkpoints", "everySteps": 5} | dict(change or {})
    }


__all__ = [
    "Bad", "Json", "group", "head", "key", "megatron", "merged", "override", "saved", "template", "trainer", "volume",
]  # fmt: skip
