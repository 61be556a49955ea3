"""What verl does for each algorithm: one row each, which the rows of verl's keys and the checks read.

A new algorithm is a value of `AlgorithmName` and a row here. What a run does beside it, such as ReMax's greedy
responses, follows in the runtime from verl's own configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rljob.api.training import AlgorithmName
from rljob.api.v1alpha1 import RLJobSpec


@dataclass(frozen=True)
class Algorithm:
    """What an algorithm needs of verl."""

    estimator: str
    """verl/trainer/ppo/core_algos.py, AdvantageEstimator (0.9.1)."""
    critic: bool = False
    """A value model is trained beside the actor. Only GAE has one, and reads lambda: trainer/ppo/utils.py:96-107,
    trainer/ppo/core_algos.py:215-263."""
    compares: bool = False
    """The baseline of a response comes from the other responses to its prompt:
    trainer/ppo/core_algos.py:267-331,587-636."""
    filters: bool = False
    """Prompts whose responses all score alike are replaced; the upper clip and the loss are DAPO's."""


ALGORITHMS: Mapping[AlgorithmName, Algorithm] = {
    AlgorithmName.GRPO: Algorithm("grpo", compares=True),
    AlgorithmName.DAPO: Algorithm("grpo", compares=True, filters=True),
    AlgorithmName.PPO: Algorithm("gae", critic=True),
    AlgorithmName.REINFORCE_PLUS_PLUS: Algorithm("reinforce_plus_plus"),
    AlgorithmName.RLOO: Algorithm("rloo", compares=True),
    AlgorithmName.REMAX: Algorithm("remax"),
}
WITH_CRITIC = " or ".join(name for name, row in ALGORITHMS.items() if row.critic)
WITH_FILTER = " or ".join(name for name, row in ALGORITHMS.items() if row.filters)
"""Names for messages and the reference."""


def algorithm_of(spec: RLJobSpec) -> Algorithm:
    """Return the row of a job's algorithm."""
    return ALGORITHMS[spec.algorithm.name]


def has_critic(spec: RLJobSpec) -> bool:
    """Report whether the job trains a value model."""
    return algorithm_of(spec).critic
