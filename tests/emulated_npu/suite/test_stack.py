"""The stack of the Ascend image by itself: what is loaded, and what RLJob's check says of it."""

from __future__ import annotations

import subprocess
import sys

import pytest


def test_the_image_fits() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rljob_runtime", "check-image"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "seams are as expected" in done.stdout


def test_an_operator_that_is_not_emulated_fails_by_its_name() -> None:
    """Over the empty libraries it would return without an error and leave its result as it was."""
    import torch
    import torch_npu

    rows = torch.ones(2, 4, device="npu")
    with pytest.raises(NotImplementedError, match="the emulated NPU has no npu::npu_fast_gelu"):
        torch_npu.npu_fast_gelu(rows)


def test_tensors_of_two_devices_share_nothing_but_the_host() -> None:
    import torch

    assert torch.npu.device_count() == 2
    first, second = (torch.arange(4.0, device=f"npu:{device}") for device in (0, 1))
    first += 1
    assert (first.device.index, second.device.index) == (0, 1)
    assert (first.tolist(), second.tolist()) == ([1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 2.0, 3.0])
    generator = torch.Generator(device="npu").manual_seed(3)
    state = generator.get_state()
    drawn = torch.rand(3, device="npu", generator=generator)
    generator.set_state(state)
    assert torch.equal(torch.rand(3, device="npu", generator=generator).cpu(), drawn.cpu())
