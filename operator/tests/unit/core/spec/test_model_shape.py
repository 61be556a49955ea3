"""What a job states about its model, and that everything else asks here for it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from builders import Json, merged, small_spec, typed
from corpus.memory import CONFIG

import rljob
from rljob.core.spec.model_shape import contradictions, known_shape, layer_kinds, model_facts, unreadable
from rljob_runtime.planning.architectures import BUILT_IN
from rljob_runtime.planning.model_facts import FACTS, ModelFacts
from rljob_runtime.planning.shapes import ShapeError

STATED = {"layers", "attention_heads", "experts", "architecture", "config"}
READERS = {"core/spec/model_shape.py", "api/training.py"}


def facts(model: Json) -> ModelFacts:
    return model_facts(typed(small_spec({"model": model})))


def contradictions_of(model: Json) -> list[tuple[str, str]]:
    return list(contradictions(typed(small_spec({"model": model}))))


def test_a_field_comes_before_the_config_and_the_config_before_the_architecture() -> None:
    found = facts({"attentionHeads": 64, "config": CONFIG, "architecture": "Qwen3-32B"})
    assert [str(found.heads), str(found.layers), str(found.positions)] == [
        "model.attentionHeads 64",
        "num_hidden_layers 64 of model.config",
        "max_position_embeddings 40960 of model.architecture Qwen3-32B",
    ]


def test_a_job_that_states_nothing_has_no_facts() -> None:
    assert facts({}) == ModelFacts()
    assert known_shape(typed(small_spec({}))) is None


def test_layers_of_several_kinds_are_named_by_the_config() -> None:
    kinds = ["linear_attention", "full_attention", "linear_attention", 3]
    for config in ({"layer_types": kinds}, {"text_config": {"layer_types": kinds}}):
        found = layer_kinds(typed(small_spec({"model": {"config": config}})))
        assert found == {"linear_attention", "full_attention"}
    assert layer_kinds(typed(small_spec({"model": {"config": {"layer_types": "all"}}}))) == frozenset()
    assert layer_kinds(typed(small_spec({}))) == frozenset()


def test_positions_of_an_architecture_are_not_sure() -> None:
    found = facts({"architecture": "Qwen3-32B"})
    assert found.positions is not None
    assert not found.positions.sure
    assert all(fact.sure for name, fact in found.items() if name != "positions")


def test_places_that_agree_are_accepted() -> None:
    model = {"layers": 64, "attentionHeads": 64, "architecture": "Qwen3-32B"}
    assert contradictions_of(model | {"config": CONFIG | {"max_position_embeddings": 131072}}) == []


def test_a_field_is_compared_with_every_other_place() -> None:
    assert contradictions_of({"layers": 65, "config": CONFIG}) == [
        ("model.layers", "65, but model.config has num_hidden_layers 64; correct the field or remove it")
    ]
    assert contradictions_of({"experts": 8, "architecture": "Qwen3-32B"}) == [
        ("model.experts", "8, but model.architecture Qwen3-32B has no experts; correct the field or remove it")
    ]


def test_a_config_is_compared_with_the_architecture() -> None:
    assert contradictions_of({"architecture": "Qwen3-235B-A22B", "config": CONFIG}) == [
        (
            "model.architecture",
            "has num_experts 128, but model.config has no experts; remove one of them",
        )
    ]


def test_what_is_not_understood_is_named() -> None:
    spec = typed(small_spec({"model": {"architecture": "GPT-2", "config": {"model_type": "qwen3"}}}))
    assert [field for field, _ in unreadable(spec)] == ["model.architecture", "model.config"]
    with pytest.raises(ShapeError):
        known_shape(spec)


@pytest.mark.parametrize("name", BUILT_IN)
def test_facts_and_shape_of_an_architecture_have_the_same_sizes(name: str) -> None:
    spec = typed(merged(small_spec(), {"model": {"architecture": name}}))
    found, shape = model_facts(spec), known_shape(spec)
    assert shape is not None
    values = {key: fact.value for key, fact in found.items()}
    assert (values["layers"], values["heads"], values["vocabulary"]) == (shape.layers, shape.heads, shape.vocabulary)
    assert values["experts"] == (shape.experts.count if shape.experts else 0)
    assert found.latent == (shape.latent is not None)
    assert set(values) <= FACTS


def test_nothing_else_reads_what_a_job_states_about_its_model() -> None:
    """A check that reads a single field knows less than its siblings."""
    root = Path(rljob.__file__).parent
    readers = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in STATED and _is_model(node.value)
    }
    assert readers <= READERS


def _is_model(node: ast.expr) -> bool:
    """Report whether an expression is `….model`, or a name for it."""
    return (isinstance(node, ast.Attribute) and node.attr == "model") or (
        isinstance(node, ast.Name) and node.id == "model"
    )
