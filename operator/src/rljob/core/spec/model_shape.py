"""The sizes of the model, where the job states them."""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob_runtime.planning.shapes import BUILT_IN, Shape, shape_from_config


def known_shape(spec: RLJobSpec) -> Shape | None:
    """Return the model's shape, or None where the job does not state it; ShapeError if model.config is unreadable."""
    if spec.model.config:
        return shape_from_config(spec.model.config, "model.config", "the job")
    return BUILT_IN.get(spec.model.architecture or "")
