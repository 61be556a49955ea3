"""The pinned Megatron-Core cannot change the size of context-parallel groups, and verl asks for what we say."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from rljob_runtime.planning import dynamic_context

STATE = "megatron/core/parallel_state.py"


def test_the_pinned_megatron_lacks_the_parameter() -> None:
    folder = os.environ.get("RLJOB_MEGATRON")
    if folder is None:
        pytest.skip("RLJOB_MEGATRON names no folder with Megatron-Core; `make test-image` installs it")
    tree = ast.parse((Path(folder) / STATE).read_text())
    (function,) = (
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "initialize_model_parallel"
    )
    parameters = [argument.arg for argument in function.args.args]
    assert "context_parallel_size" in parameters
    # If this fails, the pin has moved: the rules dynamic-context* refuse what works.
    assert dynamic_context.SETTING not in parameters


def test_verl_asks_for_the_parameter_and_names_the_change() -> None:
    import verl

    assert verl.__file__ is not None
    package = Path(verl.__file__).parent
    engine = (package / "workers/engine/megatron/transformer_impl.py").read_text()
    assert (
        f'assert "{dynamic_context.SETTING}" in inspect.signature(mpu.initialize_model_parallel).parameters' in engine
    )
    scheduler = (package / "utils/dynamic_cp_scheduler.py").read_text()
    assert "NVIDIA/Megatron-LM#5154 (merge commit d2e7ec5b)" in scheduler
    assert all(name in dynamic_context.NEEDS for name in ("NVIDIA/Megatron-LM#5154", "d2e7ec5b"))
