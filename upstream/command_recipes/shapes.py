"""What the scripts' hosts had and a script does not state: hardware, memory, image, sandbox, and notes. Data."""

from __future__ import annotations

from dataclasses import dataclass

SANDBOX_PORT = 9080
SCALEBOX_TOOLS = """\
tools:
  - class_name: verl.tools.scalebox_tool.ScaleBoxTool
    config:
      scalebox_url: "http://localhost:9080/run_code"
      default_timeout: 30
      default_language: python
      type: native
    tool_schema:
      type: function
      function:
        name: code_interpreter
        description: Execute code in the sandbox.
        parameters:
          type: object
          properties:
            code: {type: string, description: The code to execute.}
            language: {type: string, description: The programming language.}
            timeout: {type: integer, description: Execution timeout in seconds.}
          required: [code]
"""
"""agent_rl/qwen3_code_toolcall/tool_config/scalebox_tool_config.yaml of the script's commit, with the port of the pod.
The descriptions are part of the prompts."""
FUSION_TOOLS = """\
tools:
  - class_name: recipe.retool.retool.CustomSandboxFusionTool
    config:
      sandbox_fusion_url: "http://localhost:9080/run_code"
      num_workers: 128
      enable_global_rate_limit: true
      rate_limit: 128
      default_timeout: 30
      default_language: python
      memory_limit_mb: 1024
      type: native
    tool_schema:
      type: function
      function:
        name: code_interpreter
        description: A tool for executing code.
        parameters:
          type: object
          properties:
            code: {type: string, description: The code to execute.}
          required: [code]
"""
"""recipe/retool/sandbox_fusion_tool_config.yaml of verl at 95470480, the commit that the recipe uses, with the port of
the pod. The descriptions are part of the prompts."""


@dataclass(frozen=True)
class Sandbox:
    """The service that runs generated code beside Ray in every pod."""

    name: str
    image: str
    start: str
    """Line for bash that starts it and does not return."""
    env: tuple[tuple[str, str], ...]
    cpu: str = "48"
    memory: str = "128Gi"


@dataclass(frozen=True)
class Shape:
    """What a manifest states beside the script's command and variables."""

    title: str
    """First line of the manifest."""
    image: str
    accelerator: str
    shared_memory: str
    head_memory: str = "128Gi"
    head_shared_memory: str = "32Gi"
    cpu: str = ""
    """Request of a worker. Unset, that of the class."""
    memory: str = ""
    start_seconds: int = 3600
    sandbox: Sandbox | None = None
    tools: tuple[str, str] | None = None
    """File below `differences.TOOLS` and its content."""
    notes: tuple[str, ...] = ()
    """Lines after the title."""


QWEN3_IMAGE = "registry.example/cann-recipes/qwen3:93819a74"
DEEPSEEK_IMAGE = "registry.example/cann-recipes/deepseek:93819a74"
CODE_RL_IMAGE = "registry.example/cann-recipes/code-rl:93819a74"
HOST_SHM = "512Gi"
"""run_container.sh and the README mount /dev/shm of the host, which is half of its memory."""
SCALEBOX = Sandbox(
    "scalebox",
    "registry.example/cann-recipes/scalebox:93819a74",
    "source /home/ma-user/miniconda3/bin/activate sandbox-base && cd /root/sandbox && exec make run-online",
    (("HOST", "0.0.0.0"), ("PORT", str(SANDBOX_PORT)), ("WORKERS", "32"), ("MAX_MEM", "unlimited")),  # noqa: S104
)
TOOL_SCALEBOX = Sandbox(SCALEBOX.name, SCALEBOX.image, SCALEBOX.start, (*SCALEBOX.env[:3], ("MAX_MEM", "50000000")))
FUSION = Sandbox(
    "sandbox-fusion",
    "registry.example/cann-recipes/sandbox-fusion:93819a74",
    "source activate sandbox && cd SandboxFusion && exec make run-online",
    (("HOST", "0.0.0.0"), ("PORT", str(SANDBOX_PORT))),  # noqa: S104
)
BESIDE_A2, BESIDE_A3 = "128", "240"
"""Cores of a worker that leaves those of the sandbox to it."""
BESIDE_MEMORY = "1200Gi"
DP_SIZE = (
    "The README asks for VLLM_DP_SIZE, here 32, in the script of switches, which lacks it; this job lacks it as well."
)
SP = "The script divides by the variable SP, which it does not set; the lengths here are those with 1."


def _large(title: str, *, big: bool, image: str = QWEN3_IMAGE, notes: tuple[str, ...] = ()) -> Shape:
    heads = ("256Gi", "64Gi") if big else ("128Gi", "32Gi")
    return Shape(title, image, "atlas-a3-superpod", HOST_SHM, *heads, notes=notes)


def _deepseek(title: str, *notes: str) -> Shape:
    return Shape(title, DEEPSEEK_IMAGE, "atlas-a3-superpod", HOST_SHM, "256Gi", "64Gi", start_seconds=7200, notes=notes)


SHAPES = {
    "qwen3-235b-grpo": _large(
        "Qwen3-235B-A22B, GRPO with true weights on 8 nodes of Atlas A3.", big=True, notes=(DP_SIZE,)
    ),
    "qwen3-235b-grpo-random": _large(
        "Qwen3-235B-A22B, GRPO with random weights on 8 nodes of Atlas A3.", big=True, notes=(DP_SIZE,)
    ),
    "qwen3-235b-grpo-rebalance": _large(
        "Qwen3-235B-A22B, GRPO with true weights and the rollout rebalance on 8 nodes of Atlas A3.",
        big=True,
        image="registry.example/cann-recipes/qwen3:v0.1.0",
        notes=("The script has the switch ROLLOUT_REBALANCE_ENABLE at 0; this job sets 1.",),
    ),
    "qwen3-235b-dapo": _large("Qwen3-235B-A22B, DAPO on 8 nodes of Atlas A3.", big=True, notes=(DP_SIZE,)),
    "qwen3-32b-grpo": _large("Qwen3-32B, GRPO on 2 nodes of Atlas A3.", big=False),
    "qwen3-32b-dapo": _large("Qwen3-32B, DAPO on 2 nodes of Atlas A3.", big=False),
    "deepseek-v3-grpo": _deepseek(
        "DeepSeek-V3 or R1, GRPO with true weights on 16 nodes of Atlas A3 (256 dies).",
        "Weights of R1 take the place of V3's in both folders; the architecture is the same.",
        "ROLLOUT_REBALANCE_ENABLE is not set, as in the script: the rollout's two instances could block each other.",
    ),
    "deepseek-v3-grpo-random": _deepseek(
        "DeepSeek-V3 or R1, GRPO with random weights on 16 nodes of Atlas A3 (256 dies).",
        "Only configuration and tokenizer are read from the model's folder.",
        "The image has the rollout rebalance: the variable ROLLOUT_REBALANCE_ENABLE, with the value 1, switches it on.",
    ),
    "qwen2-5-1-5b-grpo": Shape(
        "Qwen2.5-1.5B, GRPO on 4 devices of an Atlas A2 node.",
        "registry.example/cann-recipes/qwen2-5:93819a74",
        "atlas-a2",
        "100Gi",
        cpu="92",
        memory="700Gi",
    ),
    "qwen3-30b-a3b-dynamic-drafts": Shape(
        "Qwen3-30B-A3B, GRPO with drafts from earlier responses and EAGLE3 on one node of Atlas A3.",
        "registry.example/cann-recipes/qwen3:0c14b44a",
        "atlas-a3",
        HOST_SHM,
    ),
    "qwen3-30b-a3b-length-aware": Shape(
        "Qwen3-30B-A3B, GRPO with prompts in the order of expected lengths on one node of Atlas A3.",
        "registry.example/cann-recipes/qwen3:ba7be607",
        "atlas-a3",
        HOST_SHM,
    ),
    "code-rl-1-5b": Shape(
        "DeepSeek-R1-Distill-Qwen-1.5B, code RL with a sandbox on one node of Atlas A2.",
        CODE_RL_IMAGE,
        "atlas-a2",
        "500Gi",
        sandbox=SCALEBOX,
        notes=(SP,),
        cpu=BESIDE_A2,
        memory=BESIDE_MEMORY,
    ),
    "code-rl-4b": Shape(
        "Qwen3-4B-Instruct, code RL with a sandbox on one node of Atlas A3.",
        CODE_RL_IMAGE,
        "atlas-a3",
        "500Gi",
        sandbox=SCALEBOX,
        notes=(SP,),
        cpu=BESIDE_A3,
        memory=BESIDE_MEMORY,
    ),
    "code-rl-30b-a3b": Shape(
        "Qwen3-30B-A3B-Instruct, code RL with a sandbox on 2 nodes of Atlas A3.",
        CODE_RL_IMAGE,
        "atlas-a3",
        "500Gi",
        sandbox=SCALEBOX,
        notes=(SP,),
        cpu=BESIDE_A3,
        memory=BESIDE_MEMORY,
    ),
    "code-tool-call-1-7b": Shape(
        "Qwen3-1.7B, code RL with calls of a code tool on one node of Atlas A2.",
        "registry.example/cann-recipes/code-tool-call:93819a74",
        "atlas-a2",
        "500Gi",
        sandbox=TOOL_SCALEBOX,
        tools=("scalebox_tool_config.yaml", SCALEBOX_TOOLS),
        notes=("It starts from the model that the recipe's supervised fine-tuning makes.",),
        cpu=BESIDE_A2,
        memory=BESIDE_MEMORY,
    ),
    "tool-agent-4b": Shape(
        "Qwen3-4B-Instruct as an agent with a code tool (ReTool), DAPO's clipping, on one node of Atlas A3.",
        "registry.example/cann-recipes/tool-agent:93819a74",
        "atlas-a3",
        "100Gi",
        sandbox=FUSION,
        tools=("sandbox_fusion_tool_config.yaml", FUSION_TOOLS),
        notes=("It starts from the model that the recipe's supervised fine-tuning makes.",),
        cpu=BESIDE_A3,
        memory=BESIDE_MEMORY,
    ),
}
