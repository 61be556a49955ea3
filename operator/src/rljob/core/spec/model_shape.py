"""What a job states about its model: single fields, the content of config.json, and the name of an architecture.

Everything that computes with the model reads it here, so that no check knows a size that another one lacks.
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.nearest import nearest_model
from rljob_runtime.planning.architectures import BUILT_IN
from rljob_runtime.planning.export_memory import conversion_bytes, conversion_bytes_of_checkpoint
from rljob_runtime.planning.model_facts import Fact, ModelFacts, facts_of_config, facts_of_shape
from rljob_runtime.planning.shapes import Shape, ShapeError, UnknownFamilyError, decoder_keys, shape_from_config
from rljob_runtime.planning.weights import Cut, model_elements

CHECKPOINT_BYTES = 16
"""Of a parameter: weights and two moments in fp32, and weights in bfloat16 where an engine saves both."""
MEMORY_MAX = 4 << 40
"""No node has more memory. The bound is needed because the size of a checkpoint is reported by the run."""


def known_shape(spec: RLJobSpec) -> Shape | None:
    """Return the model's shape, or None where the job does not state it; ShapeError if model.config is unreadable.

    A config.json of a family without a known shape states only facts.
    """
    if spec.model.config:
        try:
            return shape_from_config(spec.model.config, "model.config", "the job")
        except UnknownFamilyError:
            return None
    return BUILT_IN.get(spec.model.architecture or "")


def checkpoint_size(spec: RLJobSpec) -> int | None:
    """Return the bytes of a checkpoint with the optimizer's state, the most that a start loads; None if not known."""
    try:
        shape = known_shape(spec)
    except ShapeError:
        return None
    return None if shape is None else int(model_elements(shape, Cut()).total) * CHECKPOINT_BYTES


def conversion_memory(spec: RLJobSpec, checkpoint_bytes: int | None) -> int | None:
    """Return what the conversion of a checkpoint needs, by the model's shape or else by the size of the checkpoint."""
    shape = known_shape(spec)
    if shape is not None:
        return conversion_bytes(shape, spec.trainer_group.devices)
    return min(conversion_bytes_of_checkpoint(checkpoint_bytes), MEMORY_MAX) if checkpoint_bytes else None


def model_facts(spec: RLJobSpec) -> ModelFacts:
    """Return every fact that the job states: by a field, else by model.config, else by its architecture."""
    return _of_fields(spec).over(_of_config(spec)).over(_of_architecture(spec))


def layer_kinds(spec: RLJobSpec) -> frozenset[str]:
    """Return the kinds of layers that model.config names, such as linear_attention; empty if it names none."""
    named = decoder_keys(spec.model.config).get("layer_types")
    return frozenset(kind for kind in named if isinstance(kind, str)) if isinstance(named, list) else frozenset()


def linear_heads(spec: RLJobSpec, name: str) -> int:
    """Return the key or value heads of layers with linear attention; 0 where model.config does not state them."""
    found = decoder_keys(spec.model.config).get(f"linear_num_{name}_heads")
    return found if isinstance(found, int) else 0


def unreadable(spec: RLJobSpec) -> Iterator[tuple[str, str]]:
    """Yield the fields that state the model in a way that is not understood, each with the problem and the fix."""
    name = spec.model.architecture
    if name is not None and name not in BUILT_IN:
        near, listed = nearest_model(name, BUILT_IN), ", ".join(sorted(BUILT_IN))
        meant = f"built in; did you mean {near}? The names are {listed}" if near else f"one of {listed}"
        yield "model.architecture", f"{name!r} is not {meant}; use model.config for others"
    try:
        known_shape(spec)
    except ShapeError as error:
        yield "model.config", f"{error}"


def shapeless(spec: RLJobSpec) -> Iterator[tuple[str, str]]:
    """Yield model.config if memory is not planned for its family."""
    try:
        if spec.model.config:
            shape_from_config(spec.model.config, "model.config", "the job")
    except UnknownFamilyError as error:
        yield (
            "model.config",
            f"{error}; of this model only heads, layers and positions are sure, and memory is not planned",
        )
    except ShapeError:
        return  # An error, which `unreadable` yields.


def contradictions(spec: RLJobSpec) -> Iterator[tuple[str, str]]:
    """Yield the facts that two places state differently, each with the field and both values."""
    config, architecture = _of_config(spec), _of_architecture(spec)
    for name, field in _of_fields(spec).items():
        for place in (config, architecture):
            other: Fact | None = getattr(place, name)
            if other is not None and other.value != field.value:
                yield (
                    field.name,
                    f"{field.value}, but {other.place} has {_shown(other)}; correct the field or remove it",
                )
                break
    for name, stated in config.items():
        other = getattr(architecture, name)
        if other is not None and other.sure and other.value != stated.value:
            yield (
                "model.architecture",
                f"has {_shown(other)}, but {stated.place} has {_shown(stated)}; remove one of them",
            )
            return


def _shown(fact: Fact) -> str:
    return f"{fact.name} {fact.value}" if fact.value else "no experts"


def _of_fields(spec: RLJobSpec) -> ModelFacts:
    model = spec.model

    def fact(name: str, value: int | None) -> Fact | None:
        return None if value is None else Fact(value, f"model.{name}")

    return ModelFacts(
        layers=fact("layers", model.layers),
        heads=fact("attentionHeads", model.attention_heads),
        experts=fact("experts", model.experts),
    )


def _of_config(spec: RLJobSpec) -> ModelFacts:
    return facts_of_config(spec.model.config, "model.config") if spec.model.config else ModelFacts()


def _of_architecture(spec: RLJobSpec) -> ModelFacts:
    shape = BUILT_IN.get(spec.model.architecture or "")
    return facts_of_shape(shape, f"model.architecture {shape.name}", family=True) if shape else ModelFacts()
