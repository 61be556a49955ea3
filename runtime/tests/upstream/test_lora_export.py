"""A checkpoint with a LoRA adapter, saved by verl's own manager: the export is the model with the adapter merged."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rljob_runtime.contract import ExitCode, ExportPlace, ExportRequest, ExportResult
from rljob_runtime.export import command
from rljob_runtime.export.adapter import has_adapter, lacks_base
from rljob_runtime.export.convert import convert
from rljob_runtime.export.errors import ExportError

SAVE = """
import copy, sys, torch, torch.distributed
from pathlib import Path
from peft import LoraConfig, TaskType, get_peft_model
from torch.distributed._composable.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config
from tokenizers import Tokenizer, models
from verl.trainer.config import CheckpointConfig
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

step, base, alone = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
torch.manual_seed(0)
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
shape = Qwen2Config(vocab_size=16, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                    num_key_value_heads=1, tie_word_embeddings=False, architectures=["Qwen2ForCausalLM"])
model = AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16)
model.save_pretrained(base)
tuned = get_peft_model(model, LoraConfig(task_type=TaskType.CAUSAL_LM, r=2, lora_alpha=4, target_modules="all-linear"))
for name, value in tuned.named_parameters():
    if "lora_" in name:
        # The converter rounds the adapter to bfloat16, as the engines of trainer and rollout do.
        value.data = torch.randn_like(value).mul(0.02).bfloat16().to(value.dtype)
with torch.no_grad():
    tokens = torch.arange(16).unsqueeze(0)
    torch.save(copy.deepcopy(tuned).float()(tokens).logits.log_softmax(-1), f"{base}/log-probabilities.pt")
tuned = fully_shard(tuned, mesh=init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",)))
words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({str(n): n for n in range(16)}, "0")))
for folder, contents, only in ((step, ["model", "hf_model"], False), (alone, ["model"], True)):
    settings = CheckpointConfig(save_contents=contents, load_contents=["model"], save_lora_only=only)
    FSDPCheckpointManager(tuned, None, None, words, settings).save_checkpoint(str(folder / "actor"), global_step=1)
    torch.save({}, folder / "data.pt")
"""

COMPARE = """
import sys, torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
base, made = (load_file(f"{folder}/model.safetensors") for folder in sys.argv[1:])
adapter = load_file(f"{sys.argv[2]}/lora_adapter/adapter_model.safetensors")
assert base.keys() == made.keys(), (base.keys(), made.keys())
exact = {}
for name, weight in base.items():
    low, high = (adapter.get(f"base_model.model.{name.removesuffix('weight')}lora_{part}.weight") for part in "AB")
    exact[name] = weight.float() if low is None else weight.float() + 4 / 2 * (high.float() @ low.float())
    assert torch.equal(exact[name].bfloat16(), made[name]), name
assert sum(not torch.equal(base[name], made[name]) for name in base) == len(adapter) // 2 == 14
model, trained = AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.float32), sys.argv[1]
def apart():
    with torch.no_grad():
        found = model(torch.arange(16).unsqueeze(0)).logits.log_softmax(-1)
    return (found - torch.load(f"{trained}/log-probabilities.pt")).abs().max()
rounded = apart()
model.load_state_dict(exact)
print(f"log-probabilities differ by {apart():.1e} before rounding to bfloat16, and by {rounded:.1e} after it")
assert apart() < 1e-4
assert rounded < 1e-2
"""


def python(code: str, *words: object) -> None:
    told = [sys.executable, "-c", code, *map(str, words)]
    done = subprocess.run(told, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


STEP = "ckpt/global_step_1"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model in `base`, a step with an adapter in `whole`, and one of the adapter `alone`."""
    folder = tmp_path_factory.mktemp("saved")
    python(SAVE, folder / "whole" / STEP, folder / "base", folder / "alone" / STEP)
    return folder


def export(folder: Path) -> tuple[int, ExportResult]:
    request = ExportRequest("", "j", "u", str(folder / "ckpt"), 1, ExportPlace.FOLDER, folder=str(folder / "out"))
    code = command.export(request.to_json().decode(), folder / "report")
    return code, ExportResult.from_json((folder / "report").read_bytes())


def test_the_export_is_the_base_and_the_adapter_in_float32_rounded_once(saved: Path) -> None:
    assert has_adapter(saved / "whole" / STEP / "actor")
    code, result = export(saved / "whole")
    assert (code, result.message) == (0, "")
    python(COMPARE, saved / "base", saved / "whole" / "out" / "global_step_1")


@pytest.mark.long
def test_an_adapter_of_unknown_scale_is_refused(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "whole" / "ckpt", tmp_path / "ckpt")
    actor = tmp_path / STEP / "actor"
    (actor / "lora_train_meta.json").unlink()
    assert has_adapter(actor)
    code, result = export(tmp_path)
    assert (code, result.reason) == (ExitCode.BAD_CONFIG, "AdapterNotMerged")
    assert "does not say alpha" in result.message
    assert not (tmp_path / "out" / "global_step_1").exists()


def test_an_adapter_alone_is_not_converted(saved: Path, tmp_path: Path) -> None:
    actor = saved / "alone" / STEP / "actor"
    assert lacks_base(actor)
    with pytest.raises(ExportError, match="without its base model") as error:
        convert(actor, tmp_path / "model", trust_remote_code=False)
    assert (error.value.code, error.value.reason) == (ExitCode.BAD_CONFIG, "NotConvertible")
