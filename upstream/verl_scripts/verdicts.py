"""What the operator says of each script, and the reason with its source for each refusal. Data, and the comparison.

A refusal that no reason explains, a reason that is no longer used, and a script whose refusals changed all fail
tests/house/test_verl_scripts.py: a change of the checks is a change of this table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rljob.api.texts import write_texts
from rljob.core.validation.validate import validate
from rljob.core.validation.violation import Violation
from rljob.launchers import LAUNCHER
from rljob.render.accelerators import BUILT_IN
from upstream.verl_scripts.table import Script
from upstream.verl_scripts.translate import Translation, translate


@dataclass(frozen=True)
class Reason:
    """Why some scripts are refused."""

    matches: str
    """Pattern of the violation's line."""
    why: str
    source: str
    """File and line of the upstream that makes it so, or of this project's limit."""


REASONS = {
    "engine": Reason(
        r"spec\.rollout\.engine: 'sglang'",
        "SGLang: rollouts run on vLLM only; router, metrics and node checks are written for it",
        "operator/src/rljob/api/training.py, Rollout.engine",
    ),
    "backend": Reason(
        r"spec\.trainer\.backend: '(veomni|fsdp_turbo)'",
        "VeOmni and FSDP-Turbo: the trainers are FSDP2, Megatron and MindSpeed; the image has no other",
        "operator/src/rljob/api/training.py, TrainerBackend; verl 0.9.1, workers/engine/fsdp/fsdp_turbo_impl.py:30",
    ),
    "resumable": Reason(
        r"checkpoint\.save_contents\]: saves checkpoints without",
        "the script saves the model for export only; a restart could not continue from it",
        "verl 0.9.1, utils/checkpoint/checkpoint_manager.py:76-126",
    ),
    "queue": Reason(
        r"TASK_QUEUE_ENABLE 2 cannot be captured",
        "level 2 of torch_npu's task queue cannot be captured in a graph, and the script's rollout captures graphs; "
        "verl has a variable for a level of the rollout's own",
        "verl, docs/ascend_tutorial/model_support/examples/gspo_optimization_practice.md:248; verl 0.9.1, "
        "plugin/platform/platform_npu.py:154-157",
    ),
    "memory": Reason(
        r"spec\.trainer\.parallelism: update takes [\d.]+ of a die's",
        "with responses of full length an update does not fit; the script's data sets have shorter ones. "
        "model.memoryCheck: Warn accepts the job",
        "docs/reference/memory.md",
    ),
    "resident": Reason(
        r"spec\.rollout\.memoryFraction: generate takes [\d.]+ of a die's",
        "actor and critic stay on the devices while vLLM takes 60 % of them: values for devices with more than 64 GiB; "
        "the script has no others for NPUs",
        "docs/reference/memory.md",
    ),
    "passes": Reason(
        r"spec\.rollout\.chunkedPrefill: \d+ tokens per pass cannot hold a sequence of \d+",
        "without chunked prefill a pass must hold the model's longest sequence. verl 0.9.1, newer than the scripts, "
        "would raise the bound, but its frozen configuration refuses that",
        "verl 0.9.1, workers/rollout/vllm_rollout/vllm_async_server.py:1113-1119, base_config.py:36, "
        "workers/config/rollout.py:146",
    ),
}

EXTRAS = "examples/ascend_extras"
GRPO, NIGHTLY = "examples/grpo_trainer", "tests/special_npu/nightly_ci_ascend"
QUICK = "tests/special_npu/quick_start"
REFUSED = {
    f"{EXTRAS}/grpo_trainer/run_qwen3_30b_a3b_megatron.sh": ("engine",),
    f"{EXTRAS}/grpo_trainer/run_qwen3_5_122b_a10b_32k_megatron.sh": ("resumable",),
    f"{GRPO}/run_qwen3_30b_veomni.sh": ("backend",),
    f"{GRPO}/run_qwen3_4b_fsdp.sh": ("queue",),
    f"{GRPO}/run_qwen3_5_27b_fsdp_turbo.sh": ("backend",),
    f"{GRPO}/run_qwen3_5_35b_fsdp_turbo.sh": ("backend",),
    f"{NIGHTLY}/run_grpo_qwen3_30b_megatron_sglang_npu.sh": ("engine",),
    f"{NIGHTLY}/run_grpo_qwen3_30b_veomni_fsdp.sh": ("backend",),
    f"{NIGHTLY}/run_grpo_qwen3_5_2b_fsdp_turbo_npu.sh": ("backend",),
    f"{NIGHTLY}/run_gspo_qwen3_30b_megatron_npu.sh": ("memory",),
    "examples/ppo_trainer/run_qwen3_8b_fsdp.sh": ("memory", "resident"),
    "examples/profile/run_qwen3_8b_npu_profile_discrete.sh": ("passes",),
    "examples/profile/run_qwen3_8b_npu_profile_e2e.sh": ("passes",),
    f"{QUICK}/run_qwen3_0_6b_fsdp2_vllm_ascend.sh": ("passes",),
    f"{QUICK}/run_qwen3_0_6b_megatron_vllm_ascend.sh": ("passes",),
    "tests/special_npu/run_qwen3_06b_grpo_mindspeed.sh": ("passes",),
    f"{QUICK}/run_qwen3_0_6b_fsdp2_sglang_ascend.sh": ("engine",),
    f"{QUICK}/run_qwen3_0_6b_megatron_sglang_ascend.sh": ("engine",),
}
"""Script -> its reasons. Every other script is accepted."""


@dataclass(frozen=True)
class Verdict:
    """What the operator says of a script."""

    script: Script
    job: Translation
    violations: tuple[Violation, ...]
    warnings: tuple[Violation, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return the names of the reasons that explain the violations, each once, in the order of the table."""
        lines = [str(violation) for violation in self.violations]
        return tuple(name for name, row in REASONS.items() if any(re.search(row.matches, line) for line in lines))

    @property
    def unexplained(self) -> tuple[str, ...]:
        """Return the violations that no reason explains."""
        lines = (str(violation) for violation in self.violations)
        return tuple(line for line in lines if not any(re.search(row.matches, line) for row in REASONS.values()))


def judge(script: Script) -> Verdict:
    """Translate a script and check the RLJob as the operator does.

    A value that a field's type does not have ends the checks: the others would judge another engine.
    """
    job = translate(script)
    checked = validate("script", write_texts(job.manifest), launcher=LAUNCHER, accelerators=BUILT_IN)
    return Verdict(script, job, checked.violations, checked.warnings)
