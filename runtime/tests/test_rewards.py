"""The built-in rewards without verl: where they are, and how they are called."""

from __future__ import annotations

import importlib
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from rljob_runtime.contract.rewards import PACKAGE, BuiltinReward
from rljob_runtime.input_checks.reward import KEYWORDS, MODEL_KEYWORDS, RewardSettings

SCORES = {"gsm8k": 1, "math_reward": True, "math_dapo": {"score": 1.0, "acc": True, "pred": "4"}}


def function(reward: BuiltinReward) -> Any:  # noqa: ANN401 - a function
    assert reward.location.startswith(PACKAGE)
    return importlib.import_module(reward.location.removeprefix("pkg://")).compute_score


@pytest.fixture
def verl(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Stand in for verl's functions and return their calls."""
    calls: list[tuple[object, ...]] = []
    package = types.ModuleType("verl.utils.reward_score")

    def of(name: str, result: object) -> types.ModuleType:
        module = types.ModuleType(f"verl.utils.reward_score.{name}")
        setattr(module, "compute_score", recorded(name, result))  # noqa: B010 - mypy knows no such attribute
        return module

    def recorded(name: str, result: object) -> Callable[..., object]:
        def score(*given: object) -> object:
            calls.append((name, *given))
            return result

        return score

    for name, result in SCORES.items():
        setattr(package, name, of(name, result))
    setattr(package, "default_compute_score", recorded("default", 0.5))  # noqa: B010 - as above
    for name, module in {"verl": types.ModuleType("verl"), "verl.utils": types.ModuleType("verl.utils")}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "verl.utils.reward_score", package)
    return calls


@pytest.mark.parametrize("reward", BuiltinReward)
def test_verl_can_call_it_also_with_a_reward_model(reward: BuiltinReward) -> None:
    inspect.signature(function(reward)).bind(**dict.fromkeys((*KEYWORDS, *MODEL_KEYWORDS)))


def test_answer_and_truth_reach_verl(verl: list[tuple[object, ...]]) -> None:
    scores = [function(reward)("source", "response", "truth", {"index": 1}) for reward in BuiltinReward]
    assert scores == [1.0, 1.0, SCORES["math_dapo"], 0.5]
    assert verl == [
        ("gsm8k", "response", "truth"),
        ("math_reward", "response", "truth"),
        ("math_dapo", "response", "truth"),
        ("default", "source", "response", "truth", {"index": 1}),
    ]


@pytest.mark.parametrize(("path", "checked"), [(BuiltinReward.MATH.location, False), ("/code/reward.py", True)])
def test_only_a_function_of_the_users_is_loaded_before_the_run(path: str, checked: bool) -> None:
    manager = types.SimpleNamespace(source="register", name="naive")
    reward = types.SimpleNamespace(reward_manager=manager, reward_model=types.SimpleNamespace(enable=False))
    reward.get = {"custom_reward_function": {"path": path, "name": "compute_score"}}.get
    config: Any = types.SimpleNamespace(reward=reward)
    assert (RewardSettings.of(config) is not None) is checked
