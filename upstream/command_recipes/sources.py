"""Which scripts of cann-recipes-train have a manifest, and where their facts come from. Data."""

from __future__ import annotations

from dataclasses import dataclass

REPOSITORY = "hicann/cann-recipes-train"
COMMIT = "93819a74531c19c5c6089a5a916519ae20cf28fb"
"""Of the main branch, 2026-02-14."""
DYNAMIC = "0c14b44ab2587e7ac913dfb743983fe1709a6309"
"""The commit that adds the drafts from earlier responses."""
REBALANCE = "7294b1ab15b9cac8935115feeca53dd4443ffabf"
"""The tag v0.1.0, the last with a rollout rebalance of llm_rl/qwen3 that works."""
RESAMPLER = "ba7be60788b6d443dabcd1cf8a52a27fc7452499"
"""The commit that adds the example of the length-aware order."""
QWEN3 = "llm_rl/qwen3"
DEEPSEEK = "llm_rl/deepseek"
CODE_RL = "agent_rl/qwen2_code_rl"
TOOL_CALL = "agent_rl/qwen3_code_toolcall"
QWEN3_WRAPPER = f"{QWEN3}/ray_start_npu.sh"
QWEN3_ENV = f"{QWEN3}/internal/qwen3_235b_env.sh"
RETOOL = "agent_rl/qwen3_tool_agent/verl/recipe/retool"
MINDSPEED = "llm_rl/qwen3/verl-mindspeed"
MINDSPEED_WRAPPER = f"{MINDSPEED}/ray_start_npu.sh"
WRAPPER_COMMIT = "96b1ba2e0bb6e224256eb8ed5f0eae9e7abd4563"
"""The commit that adds the folder of the dynamic drafts; the wrapper is unchanged up to DYNAMIC."""
COPIED = {
    (WRAPPER_COMMIT, MINDSPEED_WRAPPER): 6286,
    (DYNAMIC, f"{MINDSPEED}/internal/train_grpo_qwen3_30b_16die_dynamic_rl.sh"): 7580,
    (RESAMPLER, f"{QWEN3}/internal/train_grpo_qwen3_resampler_example.sh"): 11940,
}
"""Files of commits that a clone of the main branch of 2026-02-14 lacks -> their length in characters, which the index
that has them states. A copy is read only if it has this length."""


@dataclass(frozen=True)
class Source:
    """One script."""

    name: str
    """Name of the manifest and of its table."""
    path: str
    """Path of the training script in the repository."""
    commit: str = COMMIT
    before: tuple[str, ...] = ()
    """Scripts whose variables are exported before it: the one that starts Ray, then the file of switches."""
    before_commit: str = ""
    """Commit of these scripts. Defaults to the script's."""
    given: tuple[tuple[str, str], ...] = ()
    """Variables that the script needs and does not set."""
    folder: str = ""
    """Folder of the repository in which the recipe is built and started. Defaults to the script's folder."""
    code: str = ""
    """Folder of the repository with the reward function. Unset, the image has it."""

    @property
    def started_in(self) -> str:
        """Return the folder in which the script is started."""
        return self.folder or self.path.rpartition("/")[0]


SP = (("SP", "1"),)


def _qwen3(name: str, script: str, *, switches: bool, commit: str = COMMIT) -> Source:
    before = (QWEN3_WRAPPER, QWEN3_ENV) if switches else (QWEN3_WRAPPER,)
    code = "" if "dapo" in name else QWEN3
    return Source(name, f"{QWEN3}/internal/{script}.sh", commit=commit, before=before, folder=QWEN3, code=code)


def _deepseek(name: str, weights: str) -> Source:
    scripts = f"{DEEPSEEK}/verl_patches/scripts"
    inner = f"{scripts}/internal/train_grpo_deepseekv3_256die_{weights}.sh"
    return Source(name, inner, before=(f"{scripts}/train_deepseekv3_256die_{weights}.sh",), folder=DEEPSEEK)


SOURCES = (
    _qwen3("qwen3-235b-grpo", "train_grpo_qwen3_235b_128die_true_weight", switches=True),
    _qwen3("qwen3-235b-grpo-random", "train_grpo_qwen3_235b_128die_random_init", switches=True),
    _qwen3("qwen3-235b-grpo-rebalance", "train_grpo_qwen3_235b_128die_true_weight", switches=True, commit=REBALANCE),
    _qwen3("qwen3-235b-dapo", "train_dapo_qwen3_235b_128die_true_weight", switches=True),
    _qwen3("qwen3-32b-grpo", "train_grpo_qwen3_32b_32die_true_weight", switches=False),
    _qwen3("qwen3-32b-dapo", "train_dapo_qwen3_32b_32die_true_weight", switches=False),
    _deepseek("deepseek-v3-grpo", "true_weight"),
    _deepseek("deepseek-v3-grpo-random", "random_init"),
    Source(
        "qwen2-5-1-5b-grpo",
        "llm_rl/qwen2_5/verl_npu_demo/run_qwen2_5_1_5b.sh",
        folder="llm_rl/qwen2_5/verl_npu_demo/verl",
        code="llm_rl/qwen2_5/verl_npu_demo",
    ),
    Source(
        "qwen3-30b-a3b-dynamic-drafts",
        f"{MINDSPEED}/internal/train_grpo_qwen3_30b_16die_dynamic_rl.sh",
        commit=DYNAMIC,
        before=(MINDSPEED_WRAPPER,),
        before_commit=WRAPPER_COMMIT,
        folder=MINDSPEED,
        code=MINDSPEED,
    ),
    Source(
        "qwen3-30b-a3b-length-aware",
        f"{QWEN3}/internal/train_grpo_qwen3_resampler_example.sh",
        commit=RESAMPLER,
        folder=QWEN3,
        code=QWEN3,
    ),
    Source("code-rl-1-5b", f"{CODE_RL}/run_code_rl_qwen2_5_1_5b.sh", given=SP, code=CODE_RL),
    Source("code-rl-4b", f"{CODE_RL}/run_code_rl_qwen3_4b.sh", given=SP, code=CODE_RL),
    Source("code-rl-30b-a3b", f"{CODE_RL}/run_code_rl_qwen3_30b_a3b.sh", given=SP, code=CODE_RL),
    Source("code-tool-call-1-7b", f"{TOOL_CALL}/run_code_rl_demo.sh", code=TOOL_CALL),
    Source("tool-agent-4b", "agent_rl/qwen3_tool_agent/run_qwen3_4b_dapo_npu.sh", folder=RETOOL),
)
BY_NAME = {source.name: source for source in SOURCES}
