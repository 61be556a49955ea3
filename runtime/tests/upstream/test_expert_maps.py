"""Expert maps of ours in the hands of vllm-ascend and beside vLLM's own planner.

vllm-ascend does not import without NPUs, so the one file that reads maps is loaded from the folder of the released
wheel that RLJOB_VLLM_ASCEND names.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from rljob.planner.experts.expert_maps import map_text, routed_loads
from rljob.planner.experts.placement import Loads, device_loads, imbalance, place
from rljob.planner.experts.relocation import arrivals, relocate

LAYERS, EXPERTS, DEVICES, REPLICAS = 58, 256, 32, 288
GENERATOR = np.random.default_rng(0)
READER = "vllm_ascend/eplb/core/eplb_utils.py"


@pytest.fixture(scope="module")
def reader() -> Iterator[ModuleType]:
    torch = pytest.importorskip("torch")
    folder = os.environ.get("RLJOB_VLLM_ASCEND")
    if folder is None:
        pytest.skip("RLJOB_VLLM_ASCEND names no folder with vllm-ascend; `make test-image` installs it")
    specification = importlib.util.spec_from_file_location("vllm_ascend_reader", Path(folder) / READER)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    with pytest.MonkeyPatch.context() as patch:
        # The table of replicas is moved to the device at the end.
        patch.setattr(torch.Tensor, "npu", lambda self: self, raising=False)
        yield module


def lognormal(sigma: float, layers: int = LAYERS) -> Loads:
    found: Loads = (GENERATOR.lognormal(0, sigma, (layers, EXPERTS)) * 1e5).astype(np.int64)
    return found


def zipf() -> Loads:
    found: Loads = GENERATOR.permuted(np.tile(1e6 / np.arange(1, EXPERTS + 1), (LAYERS, 1)), axis=1).astype(np.int64)
    return found


def test_vllm_ascend_reads_the_map(reader: ModuleType, tmp_path: Path) -> None:
    placement = place(lognormal(0.5, 3), DEVICES, REPLICAS)
    path = tmp_path / "map.json"
    path.write_text(map_text(placement))
    for layer in range(3):
        found, physical = reader.expert_file_to_tensor(str(path), layer)
        assert physical == REPLICAS
        assert found.tolist() == placement[layer].tolist()
    # The layer after the last is that of a draft model.
    assert reader.expert_file_to_tensor(str(path), 3) == (None, REPLICAS)


def test_each_rank_sends_tokens_to_a_device_that_has_the_expert(reader: ModuleType, tmp_path: Path) -> None:
    loads = lognormal(0.5, 1)
    placement = place(loads, DEVICES, REPLICAS)
    path = tmp_path / "map.json"
    path.write_text(map_text(placement))
    slots, served = REPLICAS // DEVICES, np.zeros((1, DEVICES))
    for rank in range(DEVICES):
        config = SimpleNamespace(expert_map_path=str(path), dynamic_eplb=False, num_redundant_experts=0)
        layer = SimpleNamespace(num_experts=EXPERTS, ep_size=DEVICES, ep_rank=rank)
        every, own, chosen, redundant = reader.init_eplb_config(config, 0, layer)
        assert redundant == REPLICAS - EXPERTS
        assert every.shape == (DEVICES, EXPERTS)
        assert [int(own[expert]) for expert in placement[0, rank]] == list(range(slots))
        flat = placement[0].reshape(-1)
        assert flat[chosen.numpy()].tolist() == list(range(EXPERTS))
        np.add.at(served[0], chosen.numpy() // slots, loads[0] / DEVICES)
    assert routed_loads(loads, placement) == pytest.approx(served)


@pytest.mark.parametrize("loads", [lognormal(0.5), lognormal(1.0), zipf()], ids=["sigma 0.5", "sigma 1", "zipf"])
def test_no_layer_is_worse_than_by_vllms_planner(loads: Loads) -> None:
    torch = pytest.importorskip("torch")
    from vllm.distributed.eplb.policy.default import DefaultEplbPolicy

    def theirs(counts: Loads, old: object = None) -> Loads:
        found = DefaultEplbPolicy.rebalance_experts(torch.from_numpy(counts), REPLICAS, 1, 1, DEVICES, old)
        placement: Loads = found.numpy().reshape(LAYERS, DEVICES, -1)
        return placement

    ours, upstream = place(loads, DEVICES, REPLICAS), theirs(loads)
    balance = imbalance(device_loads(loads, ours))
    assert (balance <= imbalance(device_loads(loads, upstream)) + 1e-9).all()
    assert balance.max() <= 1.001
    # After a change of the loads, both from the same placement.
    later = (loads * GENERATOR.lognormal(0, 0.2, loads.shape)).astype(np.int64)
    again = theirs(later, torch.from_numpy(upstream.reshape(LAYERS, -1)))
    moved = relocate(later, upstream)
    assert (imbalance(device_loads(later, moved)) <= imbalance(device_loads(later, again)) + 1e-9).all()
    assert arrivals(upstream, moved) <= arrivals(upstream, again) / 2
