"""FP8 weights become bf16: values, files, kills, and several pods at a time, with the image's torch and safetensors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rljob_runtime.contract import ExitCode
from rljob_runtime.contract.downloads import INDEX_VARIABLE, InitializerRequest
from rljob_runtime.initializers.command import initialize

if TYPE_CHECKING:
    import torch

BLOCK = 128
SHAPES = {"up": (384, 256), "down": (200, 300), "router": (16, 256)}
"""Whole blocks, partial ones, and a weight that stays in bf16."""


def quantised(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantise a matrix as DeepSeek does: per block of 128 by 128, to the range of float8_e4m3fn."""
    import torch

    rows, columns = weight.shape
    scale = torch.zeros(-(-rows // BLOCK), -(-columns // BLOCK), dtype=torch.float32)
    value = torch.zeros(rows, columns, dtype=torch.float8_e4m3fn)
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            place = (slice(i * BLOCK, (i + 1) * BLOCK), slice(j * BLOCK, (j + 1) * BLOCK))
            scale[i, j] = weight[place].abs().max() / 448
            value[place] = (weight[place] / scale[i, j]).to(torch.float8_e4m3fn)
    return value, scale


def model(folder: Path, files: int = 3) -> dict[str, torch.Tensor]:
    """Write a model whose scales are in the file after that of their weight; return its weights in float32."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(1)
    whole: dict[str, torch.Tensor] = {}
    parts: list[dict[str, torch.Tensor]] = [{} for _ in range(files)]
    for number in range(files):
        for name, shape in SHAPES.items():
            tensor = f"model.layers.{number}.{name}.weight"
            # Blocks of very different sizes: a wrong scale would show.
            weight = torch.randn(shape, generator=generator) * torch.logspace(-3, 1, shape[1])
            if name == "router":
                whole[tensor] = weight.to(torch.bfloat16).float()
                parts[number][tensor] = weight.to(torch.bfloat16)
                continue
            whole[tensor] = weight
            value, scale = quantised(weight)
            parts[number][tensor] = value
            parts[(number + 1) % files][f"{tensor}_scale_inv"] = scale
    names = [f"model-{number + 1:05}-of-{files:05}.safetensors" for number in range(files)]
    for name, tensors in zip(names, parts, strict=True):
        save_file(tensors, folder / name)
    where = {tensor: name for name, tensors in zip(names, parts, strict=True) for tensor in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    settings = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [BLOCK, BLOCK]}
    (folder / "config.json").write_text(
        json.dumps({"model_type": "deepseek_v3", "torch_dtype": "bfloat16", "quantization_config": settings})
    )
    (folder / "tokenizer.json").write_text("{}")
    return whole


def request(folder: Path, pods: int = 1) -> InitializerRequest:
    return InitializerRequest(to=str(folder / "bf16"), source=str(folder / "fp8"), convert=True, pods=pods)


def read(folder: Path) -> dict[str, torch.Tensor]:
    """Read the converted model through its index."""
    from safetensors import safe_open

    index = json.loads((folder / "model.safetensors.index.json").read_text())
    found = {}
    for tensor, name in index["weight_map"].items():
        with safe_open(folder / name, framework="pt") as opened:
            found[tensor] = opened.get_tensor(tensor)
    stored = sum(value.numel() * value.element_size() for value in found.values())
    assert index["metadata"]["total_size"] == stored
    return found


def require_same(found: dict[str, torch.Tensor], whole: dict[str, torch.Tensor]) -> None:
    import torch

    assert set(found) == set(whole)
    for name, value in found.items():
        assert value.dtype == torch.bfloat16
        # float8_e4m3 keeps 3 bits of the mantissa, and values below 2^-9 of a block's largest are lost.
        limit = whole[name].abs() * 2**-4 + whole[name].abs().max() * 2**-9
        assert bool(((value.float() - whole[name]).abs() <= limit).all()), name


def test_the_values_are_those_before_the_quantisation(tmp_path: Path) -> None:
    whole = model(tmp_path / "fp8")
    assert initialize(request(tmp_path).to_argument(), {}) == 0
    require_same(read(tmp_path / "bf16"), whole)
    config = json.loads((tmp_path / "bf16/config.json").read_text())
    assert config == {"model_type": "deepseek_v3", "torch_dtype": "bfloat16"}
    assert (tmp_path / "bf16/tokenizer.json").exists()
    assert not list((tmp_path / "bf16/.rljob/parts").glob("*"))


def test_a_block_has_its_own_scale() -> None:
    import torch

    from rljob_runtime.initializers.convert import dequantise

    value = torch.full((3, 5), 2.0).to(torch.float8_e4m3fn)
    scale = torch.tensor([[1.0, 10.0, 100.0], [0.5, 5.0, 50.0]])
    expected = torch.tensor([[2, 2, 20, 20, 200], [2, 2, 20, 20, 200], [1, 1, 10, 10, 100]], dtype=torch.bfloat16)
    assert torch.equal(dequantise(value, scale, (2, 2), "w"), expected)


def test_pods_share_the_files(tmp_path: Path) -> None:
    whole = model(tmp_path / "fp8")
    asked = request(tmp_path, pods=2).to_argument()
    assert initialize(asked, {INDEX_VARIABLE: "0"}) == 0
    weights = sorted(path.name for path in (tmp_path / "bf16").glob("*.safetensors"))
    assert weights == ["model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"]
    assert initialize(asked, {INDEX_VARIABLE: "1"}) == 0
    require_same(read(tmp_path / "bf16"), whole)


def test_a_killed_conversion_continues_with_the_next_file(tmp_path: Path) -> None:
    whole = model(tmp_path / "fp8", files=12)
    command = [sys.executable, "-m", "rljob_runtime", "initialize", request(tmp_path).to_argument()]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ), text=True)
    assert first.stdout is not None
    lines = iter(first.stdout)
    assert "is converted, 1 of 12 files" in next(lines)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    done = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "bf16").glob("*.safetensors")}
    assert 1 <= len(done) < 12
    time.sleep(0.01)
    second = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert second.returncode == 0, second.stdout
    assert second.stdout.count("is there already") == len(done)
    assert {name: (tmp_path / "bf16" / name).stat().st_mtime_ns for name in done} == done
    require_same(read(tmp_path / "bf16"), whole)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"quantization_config": None}, "states no fp8 with a weight_block_size"),
        ({"quantization_config": {"quant_method": "fp8"}}, "states no fp8 with a weight_block_size"),
        (
            {"quantization_config": {"quant_method": "fp8", "weight_block_size": [64, 64]}},
            "needs scales of 4 by 5 for blocks of 64 by 64, and has (2, 3)",
        ),
    ],
)
def test_weights_of_another_kind_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], problem: str
) -> None:
    model(tmp_path / "fp8")
    config = json.loads((tmp_path / "fp8/config.json").read_text()) | change
    (tmp_path / "fp8/config.json").write_text(json.dumps(config))
    assert initialize(request(tmp_path).to_argument(), {}) == ExitCode.BAD_CONFIG
    assert problem in capsys.readouterr().out


def test_a_missing_file_or_scale_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model(tmp_path / "fp8")
    (tmp_path / "fp8/model-00002-of-00003.safetensors").unlink()
    assert initialize(request(tmp_path).to_argument(), {}) == ExitCode.BAD_CONFIG
    assert "names model-00002-of-00003.safetensors and 0 more, which are not there" in capsys.readouterr().out
    (tmp_path / "fp8/model.safetensors.index.json").unlink()
    assert initialize(request(tmp_path).to_argument(), {}) == ExitCode.BAD_CONFIG
    assert "down.weight is in FP8 and has no model.layers.0.down.weight_scale_inv" in capsys.readouterr().out
