"""Let vLLM look at the models that jobs on CPUs train, once for every pod of the image.

Before a replica starts, vLLM asks a process of its own, which imports all of vLLM, what the model's class can do, and
keeps the answer in its cache folder, valid while the class's file is the same (model_executor/models/registry.py,
0.23.0). A pod begins with an empty folder, so each replica of each attempt asks anew, unless the image has the answers.
"""

from __future__ import annotations

from vllm.model_executor.models import ModelRegistry

ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Any other model trains too; vLLM looks at it when the replica starts."""


def main() -> None:
    """Fill the cache folder below the home; raises what vLLM raises about a model."""
    for name in ARCHITECTURES:
        told = ModelRegistry.models[name].inspect_model_cls()
        print(f"cache_model_info: {told.architecture} is known", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
