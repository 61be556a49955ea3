"""Published rollouts that the simulator is checked against, and what was fitted to them.

All are of cann-recipes-train on Atlas A3 (`REPORT`); a card has two dies. The lengths of responses were not published
one by one. What is published are curves of their distribution and times of ranks; the order of the responses in the
batch is drawn, and each constant that was chosen to agree with the published times says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from rljob.planner.rollout.policies import Placement
from rljob.planner.rollout.replica import Engine
from rljob.planner.rollout.step_time import LinearStepTime, TableStepTime
from rljob.planner.rollout.traces import TraceRecipe, from_survival, lognormal

REPORT = "cann-recipes-train, report on Qwen3-235B with 32K tokens"
KIB = 1024
LINK_BYTES_A_SECOND = 20e9
"""Between two dies, for moving caches: an assumption, because no value is published."""
CHECK_SECONDS = 2e-3
"""Exchange of the loads of all ranks: published as less than 2 ms."""

LONGEST = 32_768
"""Largest number of response tokens in all published runs but DAPO's."""

# DeepSeek-V3, 128 ranks of 2 dies, one engine; 512 prompts of openr1-220k with 16 responses each.
DEEPSEEK_RANKS, DEEPSEEK_SEQUENCES = 128, 64
DEEPSEEK_PROMPTS, SAMPLES = 512, 16
DEEPSEEK_GEARS = (4, 8, 16, 32, 64)
_ALIVE = (
    *(8192, 3550, 1756, 1036, 647, 393, 242, 159, 99, 67, 50, 35, 27, 16, 11, 11, 8),
    *(7, 7, 7, 7, 7, 5, 4, 4, 3, 3, 2, 2, 2, 2, 2, 1),
)
"""Responses that are not finished after 0, 1,000, 2,000, ... steps (figure 19)."""
_LARGEST_GEAR = (
    *(125, 160, 173, 183, 191, 188, 192, 188, 189, 187, 186, 191, 187, 187, 188, 189, 189),
    *(191, 196, 193, 193, 195, 196, 197, 198, 200, 200, 202, 203, 204, 206, 205, 205),
)
"""Milliseconds of a step with 64 rows after 0, 1,000, 2,000, ... steps (figure 19)."""
_SMALLEST = 64.5 * 54 / 55
"""Milliseconds with 2 and 1 rows: another run of the same report has 55, 54 and 54 ms for 4, 2 and 1."""
DEEPSEEK_STEP_TIME = TableStepTime(
    small=((1, _SMALLEST), (2, _SMALLEST), (4, 64.5), (8, 67.0), (16, 75.0), (32, 94.0)),
    largest=64,
    by_context=_LARGEST_GEAR,
    source=f"{REPORT}, figure 19, DeepSeek-V3 on 128 cards; sizes between the published ones are interpolated",
)
DEEPSEEK_CACHE_BYTES = int(68.6 * KIB)
"""Cache of a token on each die: 61 layers of 512 + 64 values in bf16."""
DEEPSEEK = Engine(
    ranks=DEEPSEEK_RANKS,
    sequences=DEEPSEEK_SEQUENCES,
    step_time=DEEPSEEK_STEP_TIME,
    move_seconds=DEEPSEEK_CACHE_BYTES / LINK_BYTES_A_SECOND,
    check_seconds=CHECK_SECONDS,
)
"""The published run. It does not say the size of the cache or the time of prompts, so both are left out."""
OPENR1 = TraceRecipe(
    name="openr1-32k",
    quantiles=from_survival(_ALIVE, 1000, LONGEST),
    group_correlation=0.8,
    neighbour_correlation=0.4,
    neighbours=4,
    seed=2835,
    source=f"{REPORT}, figure 19, DeepSeek-V3 with openr1-220k: the published curve of unfinished responses. Their "
    "order is drawn: correlation 0.8 within a prompt and, because the data set is not shuffled, 0.4 between "
    "neighbouring prompts, with which the mean of many seeds agrees with the published time of adjacent placement. The "
    "seed was searched for one with which that placement also drops its gears in the published thousands of steps",
)


@dataclass(frozen=True)
class DeepSeekRow:
    """A published total of the run with DeepSeek-V3."""

    policy: str
    seconds: float
    drops: tuple[int, ...]
    """Thousands of steps after which 32, 16, 8 and 4 rows suffice."""


DEEPSEEK_ROWS = (
    DeepSeekRow("adjacent", 6482, ()),
    DeepSeekRow("adjacent + gears", 2861, (5, 7, 12, 19)),
    DeepSeekRow("two-stage rebalance", 2291, (1, 2, 3, 6)),
)

# Qwen3-235B-A22B, 32 ranks of 4 dies, one engine; deepscaler with 16 responses a prompt.
QWEN_RANKS, QWEN_DIES_A_RANK = 32, 4
QWEN_CACHE_TOKENS = 900_608
"""Of a rank, from the curve that the report draws."""
QWEN_CACHE_BYTES = 47 * KIB
"""Cache of a token on each of 4 dies: 94 layers, keys and values of one head with 128 values in bf16."""
QWEN_STEP_TIME = LinearStepTime(
    fixed=72.3,
    row=0.80,
    cached_million=0.0,
    source=f"{REPORT}, Qwen3-235B on 64 cards: 72.3 ms and 0.80 ms for each row of the captured batch, fitted by least "
    "squares to six published rollouts, which do not separate the cost of the cache from that of the rows",
)
DEEPSCALER = TraceRecipe(
    name="deepscaler-32k",
    quantiles=lognormal(7345, 0.7, LONGEST),
    group_correlation=0.86,
    neighbour_correlation=0.2,
    neighbours=8,
    prompt_tokens=74,
    source=f"{REPORT}, Qwen3-235B with deepscaler: mean 7,345 response and 74 prompt tokens, at most 32,768. The "
    "distribution is assumed lognormal with sigma 0.7; correlation 0.86 within a prompt and 0.2 between neighbouring "
    "ones are fitted to the published idle shares of the rank that finishes first",
)


@dataclass(frozen=True)
class QwenRow:
    """A published rollout of Qwen3-235B."""

    prompts: int
    sequences: int
    placement: Placement
    seconds: float
    first: float
    """When the first rank was finished."""

    @property
    def gears(self) -> tuple[int, ...]:
        """Captured sizes by the recipes' rule: an eighth, a quarter, a half and the whole of max_num_seqs."""
        return tuple(self.sequences // part for part in (8, 4, 2, 1))

    @property
    def first_idle(self) -> float:
        """Idle share of the first rank."""
        return 1 - self.first / self.seconds


QWEN_ROWS = (
    QwenRow(256, 24, Placement.ADJACENT, 8831, 4133),
    QwenRow(256, 64, Placement.ADJACENT, 4952, 2457),
    QwenRow(512, 256, Placement.INTERLEAVED, 4914, 4113),
    QwenRow(256, 128, Placement.ADJACENT, 4698, 1652),
    QwenRow(384, 192, Placement.INTERLEAVED, 4200, 3437),
    QwenRow(256, 128, Placement.INTERLEAVED, 3483, 2618),
)


def qwen_engine(sequences: int) -> Engine:
    """Return the engine of the published rows with Qwen3-235B."""
    return Engine(
        ranks=QWEN_RANKS,
        sequences=sequences,
        step_time=QWEN_STEP_TIME,
        cache_tokens=QWEN_CACHE_TOKENS,
        move_seconds=QWEN_CACHE_BYTES / LINK_BYTES_A_SECOND,
        check_seconds=CHECK_SECONDS,
    )


# Further traces. Their distributions are lognormal by assumption.
DAPO = TraceRecipe(
    name="dapo-34k",
    quantiles=lognormal(10_119, 0.7, 34_816),
    group_correlation=0.86,
    prompt_tokens=133,
    source=f"{REPORT}, Qwen3-235B with dapo-math-17k: mean 10,119 response and 133 prompt tokens, at most 34,816; "
    "lognormal with the sigma and the correlation of deepscaler",
)
DEEPSCALER_3K = TraceRecipe(
    name="deepscaler-3k",
    quantiles=lognormal(1576.6, 0.9, 3072),
    group_correlation=0.8,
    prompt_tokens=75,
    source="cann-recipes-train, DeepSeek-R1 with deepscaler: mean 1,576.6 response and 75 prompt tokens, at most "
    "3,072; lognormal with the sigma of the run with openr1-220k, about 0.9",
)
UNIFORM = TraceRecipe(
    name="uniform",
    quantiles=lambda count: [1 + 2048 * index // count for index in range(count)],
    group_correlation=0.0,
    source="every length from 1 to 2,048 alike; for comparison",
)
BIMODAL = TraceRecipe(
    name="bimodal",
    quantiles=lambda count: [512 if index < 9 * count // 10 else 8192 for index in range(count)],
    group_correlation=0.9,
    source="nine tenths with 512 tokens, one tenth with 8,192; for comparison",
)
RECIPES = {recipe.name: recipe for recipe in (OPENR1, DEEPSCALER, DAPO, DEEPSCALER_3K, UNIFORM, BIMODAL)}
"""The traces by name."""
