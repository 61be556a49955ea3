"""Ranks that save an FSDP2 model with verl's checkpoint manager: `FOLDER RANK`, one process each.

Each saves once as verl does, and once behind; right after that it changes its model, and reports before it writes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import distributed
from torch.distributed.fsdp import fully_shard
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

from rljob_runtime.verl_plugin.trainer import background_save

RANKS = 2


def manager(tokenizer: str) -> Any:
    """Return verl's manager of a model that has made a step."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 260}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
    model = Qwen2ForCausalLM(Qwen2Config(**sizes, **heads))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step(model, optimizer)
    contents = SimpleNamespace(save=["model", "optimizer", "extra"], load=["model", "optimizer", "extra"])
    return FSDPCheckpointManager(
        model=model,
        optimizer=optimizer,
        lr_scheduler=None,
        processing_class=AutoTokenizer.from_pretrained(tokenizer),
        checkpoint_config={"save_contents": contents.save, "load_contents": contents.load},
    )


def step(model: Any, optimizer: Any) -> None:
    """Train on something."""
    model(input_ids=torch.arange(8)[None], labels=torch.arange(8)[None]).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    """Save twice."""
    folder, rank = Path(sys.argv[1]), int(sys.argv[2])
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    saves = manager(str(folder / "model"))
    saves.save_checkpoint(str(folder / "plain/global_step_4/actor"), global_step=4)
    background_save.install_in_rank(None)
    write = background_save.Writer.write

    def held(self: background_save.Writer) -> None:
        while not (folder / "go").exists():
            time.sleep(0.01)
        write(self)

    background_save.Writer.write = held  # type: ignore[method-assign]
    saves.save_checkpoint(str(folder / "behind/global_step_4/actor"), global_step=4)
    names = background_save.begun_in_rank(None)
    step(saves.model, saves.optimizer)
    print(*names, flush=True)
    # As the one before it, this one waits until that has ended.
    saves.save_checkpoint(str(folder / "next/global_step_6/actor"), global_step=6)
    background_save._finish_writers()
    print("done", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
