"""A checkpoint with a LoRA adapter, saved by verl's own manager: the export has the base model and the adapter.

When verl merges the adapter, the first test fails, and evaluations of such jobs need not be refused any more.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rljob_runtime.contract import ExitCode, ExportPlace, ExportRequest, ExportResult
from rljob_runtime.export import command
from rljob_runtime.export.adapter import has_adapter, lacks_base

SAVE = """
import sys, torch, torch.distributed
from pathlib import Path
from peft import LoraConfig, TaskType, get_peft_model
from torch.distributed._composable.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config
from tokenizers import Tokenizer, models
from verl.trainer.config import CheckpointConfig
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

step, base, contents, only = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(","), sys.argv[4] == "only"
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
shape = Qwen2Config(vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
                    num_key_value_heads=1, tie_word_embeddings=False, architectures=["Qwen2ForCausalLM"])
model = AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16)
model.save_pretrained(base)
tuned = get_peft_model(model, LoraConfig(task_type=TaskType.CAUSAL_LM, r=2, lora_alpha=4, target_modules="all-linear"))
for name, value in tuned.named_parameters():
    if "lora_B" in name:
        torch.nn.init.ones_(value)
tuned = fully_shard(tuned, mesh=init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",)))
words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({str(n): n for n in range(16)}, "0")))
settings = CheckpointConfig(save_contents=contents, load_contents=["model"], save_lora_only=only)
FSDPCheckpointManager(tuned, None, None, words, settings).save_checkpoint(str(step / "actor"), global_step=1)
torch.save({}, step / "data.pt")
"""

COMPARE = """
import sys, torch
from safetensors.torch import load_file
base, made = (load_file(f"{folder}/model.safetensors") for folder in sys.argv[1:])
assert base.keys() == made.keys(), (base.keys(), made.keys())
assert all(torch.equal(base[name], made[name]) for name in base)
"""


def python(code: str, *words: object) -> None:
    told = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(told, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


def save(folder: Path, contents: str, only: str = "all") -> Path:
    """Save a step with an adapter; return the actor's folder."""
    step = folder / "ckpt" / "global_step_1"
    python(SAVE, step, folder / "base", contents, only)
    return step / "actor"


def export(folder: Path) -> tuple[int, ExportResult]:
    request = ExportRequest("", "j", "u", str(folder / "ckpt"), 1, ExportPlace.FOLDER, folder=str(folder / "out"))
    code = command.export(request.to_json().decode(), folder / "report")
    return code, ExportResult.from_json((folder / "report").read_bytes())


def test_the_export_is_the_base_model_beside_the_adapter(tmp_path: Path) -> None:
    actor = save(tmp_path, "model,hf_model")
    (actor / "lora_train_meta.json").rename(tmp_path / "meta")
    assert has_adapter(actor)
    (tmp_path / "meta").rename(actor / "lora_train_meta.json")
    code, result = export(tmp_path)
    assert code == 0, result.message
    made = tmp_path / "out" / "global_step_1"
    python(COMPARE, tmp_path / "base", made)
    assert sorted(file.name for file in (made / "lora_adapter").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    assert result.message.startswith("is the base model")


def test_an_adapter_alone_is_not_exported(tmp_path: Path) -> None:
    assert lacks_base(save(tmp_path, "model", "only"))
    code, result = export(tmp_path)
    assert (code, result.reason) == (ExitCode.BAD_CONFIG, "NotConvertible")
