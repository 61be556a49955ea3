"""The reward function: loaded and bound in a process of its own, as verl's reward workers load it minutes later.

verl loads it in each RewardLoopWorker, after the models (trainer/ppo/reward.py, get_custom_reward_fn; 0.9.1). A failure
there ends as "no materializable trajectories".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rljob_runtime.contract.rewards import PACKAGE

if TYPE_CHECKING:
    from omegaconf import DictConfig

KEYWORDS = ("data_source", "solution_str", "ground_truth", "extra_info")
"""How verl's reward managers call it (0.9.1, experimental/reward_loop/reward_manager/naive.py:60-80 and the others)."""
MODEL_KEYWORDS = ("reward_router_address", "reward_model_tokenizer")
"""The keywords that they add if a reward model is served (naive.py:52-59)."""
CALLED_BY = frozenset({"naive", "dapo", "gdpo", "rate_limited", "remote"})
"""verl's own reward managers. One of the user's may call the function in another way."""


@dataclass(frozen=True)
class RewardSettings:
    """The keys of verl's configuration that decide which function is called, and how."""

    PROBE: ClassVar[str] = "rljob_runtime.input_checks.reward_probe"
    FIELD: ClassVar[str] = "reward.path"
    REASON: ClassVar[str] = "Reward"

    path: str
    name: str
    keywords: tuple[str, ...]
    """Empty if a reward manager of the user's own calls the function."""

    @classmethod
    def of(cls, config: DictConfig) -> RewardSettings | None:
        """Return the settings of a run; None without a function of the user's, where the runtime brings one too."""
        reward = config.reward
        chosen: Mapping[str, Any] = reward.get("custom_reward_function") or {}
        if not chosen.get("path") or str(chosen["path"]).startswith(PACKAGE):
            return None
        manager = reward.reward_manager
        keywords: tuple[str, ...] = ()
        if manager.source == "register" and manager.name in CALLED_BY:
            served = MODEL_KEYWORDS if reward.reward_model.enable else ()
            keywords = (*KEYWORDS, *served, *(chosen.get("reward_kwargs") or {}))
        return cls(str(chosen["path"]), str(chosen["name"]), tuple(dict.fromkeys(map(str, keywords))))
