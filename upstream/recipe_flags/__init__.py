"""Every flag and variable of the published Ascend recipes, with its counterpart in this project's recipes. Data.

The published ones are the training scripts of cann-recipes-train for DeepSeek-V3, Qwen3-235B-A22B (GRPO and DAPO) and
Qwen3-32B. A row with a key or variable states what our recipes render; tests/house/test_recipe_flags.py compares each
with job.json and with the pods. A row without one states why verl 0.9.1 does not use the flag. `scripts.verl_reference`
generates the page.
"""

from upstream.recipe_flags.environment import ENVIRONMENT
from upstream.recipe_flags.flags import FLAGS, SECTIONS
from upstream.recipe_flags.rows import DAPO, DEEPSEEK, FLAGSHIPS, QWEN32, QWEN235, WORDS, EnvironmentFlag, Flag
from upstream.recipe_flags.tried import TRAINS, Tried, load_tried

__all__ = [
    "DAPO",
    "DEEPSEEK",
    "ENVIRONMENT",
    "FLAGS",
    "FLAGSHIPS",
    "QWEN32",
    "QWEN235",
    "SECTIONS",
    "TRAINS",
    "WORDS",
    "EnvironmentFlag",
    "Flag",
    "Tried",
    "load_tried",
]
