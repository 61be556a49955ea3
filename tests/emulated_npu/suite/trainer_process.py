"""verl's engine on emulated NPUs: train, save, load in a fresh engine, train on: `torchrun … MODEL FOLDER JSON`.

The JSON has `strategy` (megatron, which is MindSpeed's on NPUs, or fsdp2), `tensor`, `pipeline`, `expert`, `context`,
`override`, the fields of the transformer's configuration, and `trust`, to use the code of the model's folder. Each rank
prints a line of JSON.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import re
import sys
from pathlib import Path
from typing import Any

CONTENTS = ["model", "optimizer", "extra"]
SEQUENCES = 8
PROCESSOR = re.compile(r"transformers\.models\.(?!auto\.).*\.image_processing_")
"""Modules that no text model needs."""


def batch(step: int) -> Any:
    """Return the sequences of a step."""
    import torch
    from verl.utils import tensordict_utils

    generator = torch.Generator().manual_seed(step)
    lengths = torch.randint(8, 24, (SEQUENCES,), generator=generator).tolist()
    nested = functools.partial(torch.nested.nested_tensor, layout=torch.jagged)
    fields = {
        "input_ids": nested([torch.randint(4, 300, (length,), generator=generator) for length in lengths]),
        "position_ids": nested([torch.arange(length) for length in lengths]),
        "loss_mask": nested([torch.ones(length, dtype=torch.long) for length in lengths]),
    }
    settings = {
        "global_batch_size": SEQUENCES,
        "use_dynamic_bsz": True,
        "max_token_len_per_gpu": 64,
        "micro_batch_size_per_gpu": 2,
        "temperature": 1.0,
        "use_remove_padding": True,
        "use_fused_kernels": False,
        "calculate_entropy": True,
        "compute_loss": True,
    }
    return tensordict_utils.get_tensordict(fields, non_tensor_dict=settings)


def configs(wish: dict[str, Any]) -> tuple[Any, Any]:
    """Return the configurations of the engine and of the optimizer."""
    from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, McoreEngineConfig, McoreOptimizerConfig

    steps = {"lr": 1e-2, "total_training_steps": 10}
    if wish["strategy"] == "fsdp2":
        return FSDPEngineConfig(strategy="fsdp2", use_remove_padding=True), FSDPOptimizerConfig(**steps)
    tensor = wish.get("tensor", 1)
    engine = McoreEngineConfig(
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=wish.get("pipeline", 1),
        expert_model_parallel_size=wish.get("expert", 1),
        context_parallel_size=wish.get("context", 1),
        sequence_parallel=tensor > 1,
        use_mbridge=True,
        vanilla_mbridge=True,
        use_remove_padding=True,
        override_transformer_config=wish.get("override", {}),
    )
    # As the launcher sets it for a schedule; otherwise a loaded engine begins its schedule again.
    return engine, McoreOptimizerConfig(lr_decay_steps=10, use_checkpoint_opt_param_scheduler=True, **steps)


def make(model: str, wish: dict[str, Any]) -> Any:
    """Return a new engine with the model's weights."""
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import HFModelConfig
    from verl.workers.engine import EngineRegistry

    engine_config, optimizer_config = configs(wish)
    engine = EngineRegistry.new(
        model_type="language_model",
        backend=wish["strategy"],
        model_config=HFModelConfig(path=model, use_remove_padding=True, trust_remote_code=wish.get("trust", False)),
        engine_config=engine_config,
        optimizer_config=optimizer_config,
        checkpoint_config=CheckpointConfig(save_contents=CONTENTS, load_contents=CONTENTS),
    )
    engine.initialize()
    return engine


def train(engine: Any, step: int) -> float | None:
    """Return the norm of the gradient of a step; None where the rank has none."""
    from verl.utils import tensordict_utils
    from verl.workers.utils.losses import sft_loss

    own = list(range(engine.get_data_parallel_rank(), SEQUENCES, engine.get_data_parallel_size()))
    with engine.train_mode():
        output = engine.train_batch(
            tensordict_utils.index_select_tensor_dict(batch(step % 2), own), functools.partial(sft_loss, None)
        )
        engine.lr_scheduler_step()
    return (output.get("metrics") or {}).get("grad_norm")


def digest(engine: Any) -> tuple[int, str]:
    """Return the number of weights by Hugging Face's names, as the rollout gets them, and a digest of all."""
    import hashlib

    import torch

    found = hashlib.sha256()
    count = 0
    with engine.eval_mode():
        for name, value in engine.get_per_tensor_param()[0]:
            whole = value.full_tensor() if hasattr(value, "full_tensor") else value
            found.update(name.encode() + whole.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
            count += 1
    return count, found.hexdigest()


def main(model: str, folder: str, text: str) -> None:
    """Run it."""
    wish = json.loads(text)
    import torch
    import torch.distributed as dist
    import verl.workers.engine_workers  # noqa: F401 - the order of imports of verl's workers
    from verl.utils.device import get_device_name, get_nccl_backend, get_torch_device

    get_torch_device().set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(f"cpu:gloo,{get_device_name()}:{get_nccl_backend()}")
    engine = make(model, wish)
    norms = [train(engine, step) for step in range(3)]
    engine.save_checkpoint(folder, global_step=3)
    weights, saved = digest(engine)
    after_saving = [train(engine, step) for step in (3, 4)]
    fresh = make(model, wish)
    fresh.load_checkpoint(folder)
    loaded = digest(fresh)[1]
    after_loading = [train(fresh, step) for step in (3, 4)]
    from emulated_npu.operators import USED

    found = {
        "engine": type(engine).__name__,
        "device": get_device_name(),
        "norms": norms,
        "weights": weights,
        "saved": saved,
        "loaded": loaded,
        "after saving": after_saving,
        "after loading": after_loading,
        "same": digest(engine)[1] == digest(fresh)[1],
        "operators": sorted(USED),
        "memory": torch.npu.max_memory_allocated(),
        "image processors": [
            name for name, module in sys.modules.items() if PROCESSOR.match(name) and module.__spec__ is not None
        ],
    }
    Path(folder, f"rank-{dist.get_rank()}.json").write_text(json.dumps(found))
    sys.stdout.flush()
    for child in multiprocessing.active_children():
        child.terminate()  # Megatron's, for saves: it would keep this process's output open.
    os._exit(0)  # as the launcher does, without the libraries' exit handlers


if __name__ == "__main__":  # Megatron spawns a process when it saves.
    main(*sys.argv[1:])
