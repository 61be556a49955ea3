"""Entry point of group `vllm.general_plugins`: vLLM calls `register` in each of its processes.

Each process registers for stack traces, binds to the CPUs of its devices, and freezes what its start made. Engine
processes are children of vLLM, not workers of Ray. If the job drafts tokens, their gate is installed (drafts.py), on
CPUs with a repair of the sampler (cpu_sampler.py).

On CPUs there are two more changes. After loading, vLLM packs a linear layer's weight for oneDNN and drops the original,
so the weights of the next step have no target to load into. Keeping the original is sufficient: verl calls
`process_weights_after_loading` after each update, which packs again. This costs a second copy of the linear weights.
Also, vLLM's workers spin for a second after each message, which occupies cores that other processes compute on; here
they sleep immediately.
"""

from __future__ import annotations

import functools
import inspect
import os
from typing import Any

from rljob_runtime import gc_freeze
from rljob_runtime.contract import DRAFTS_VARIABLE, Drafts
from rljob_runtime.fork_server import start as fork_server
from rljob_runtime.node import core_binding
from rljob_runtime.stacks import register as stack_register

MARK = "_rljob"
LOST_PING_MS = 10
"""Maximum sleep of a reader between two checks of its queue."""


def register() -> None:
    """Register for stack traces and keep weights reloadable on CPUs. vLLM may call this more than once."""
    stack_register.register()
    fork_server.install_spawn()
    if os.environ.get(core_binding.VARIABLE):
        from rljob_runtime.vllm_plugin import engine_binding

        engine_binding.install()
    if os.environ.get(gc_freeze.VARIABLE):
        from rljob_runtime.vllm_plugin import worker_freeze

        worker_freeze.install()
    from vllm.platforms import current_platform

    drafts = os.environ.get(DRAFTS_VARIABLE)
    if drafts:
        from rljob_runtime.vllm_plugin import drafts as draft_plugin

        draft_plugin.install(Drafts.from_variable(drafts))
    if not current_platform.is_cpu():
        return
    if drafts:
        from rljob_runtime.vllm_plugin import cpu_sampler

        cpu_sampler.install()
    _keep_weights()
    _sleep_between_messages()


def _keep_weights() -> None:
    from vllm.model_executor.layers import utils

    original = utils.dispatch_cpu_unquantized_gemm
    if hasattr(original, MARK):
        return
    found = list(inspect.signature(original).parameters)
    if found != ["layer", "remove_weight"]:
        raise TypeError(f"vllm's dispatch_cpu_unquantized_gemm has unexpected parameters: {found}")

    @functools.wraps(original)
    def keep_weight(layer: Any, remove_weight: bool) -> None:  # noqa: ANN401, FBT001, ARG001 - vLLM's signature
        original(layer, remove_weight=False)

    setattr(keep_weight, MARK, True)
    utils.dispatch_cpu_unquantized_gemm = keep_weight


def _sleep_between_messages() -> None:
    """Let readers of vLLM's message queue (shm_broadcast.py, 0.23.0) sleep until the ping that ends their idle mode.

    A ping that is sent before the reader has subscribed is lost, so the sleep is limited.
    """
    from vllm.distributed.device_communicators.shm_broadcast import SpinCondition

    original = SpinCondition.wait
    if hasattr(original, MARK):
        return
    found = [*inspect.signature(SpinCondition.__init__).parameters, *inspect.signature(original).parameters]
    if found != ["self", "is_reader", "context", "notify_address", "busy_loop_s", "self", "timeout_ms"]:
        raise TypeError(f"vllm's SpinCondition has unexpected parameters: {found}")

    @functools.wraps(original)
    def wait(self: Any, timeout_ms: int | None = None) -> None:  # noqa: ANN401 - vLLM's class
        self.busy_loop_s = 0
        original(self, LOST_PING_MS if timeout_ms is None else min(timeout_ms, LOST_PING_MS))

    setattr(wait, MARK, True)
    SpinCondition.wait = wait
