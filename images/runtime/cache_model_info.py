"""Fill vLLM's cache of model information for the models that jobs on CPUs train.

Before a replica starts, vLLM inspects the model's class in a separate process, which imports all of vLLM, and caches
the result until the class's file changes (model_executor/models/registry.py, 0.23.0). A pod starts with an empty cache
folder, so each replica of each attempt would repeat the inspection if the image did not contain the results.
"""

from __future__ import annotations

from vllm.model_executor.models import ModelRegistry

ARCHITECTURES = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Other models work too; vLLM inspects them when the replica starts."""


def main() -> None:
    """Fill the cache folder below HOME."""
    for name in ARCHITECTURES:
        info = ModelRegistry.models[name].inspect_model_cls()
        print(f"cache_model_info: {info.architecture} is cached", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
