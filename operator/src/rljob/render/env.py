"""Variables that the operator sets on head and workers alike, as a table with the source of each.

They are set on the pods and not on the submission, because workers inherit them from the raylet of their node. A
variable of the same name in the template's `env` takes precedence; one from `envFrom` does not, because Kubernetes
gives `env` precedence over it. Variables of the class's row in the accelerator table take precedence over the
operator's own.

Deliberately not set: PYTORCH_NPU_ALLOC_CONF (expandable segments and split limits are mutually exclusive, and verl
switches the segments itself, verl/utils/device.py), HCCL_IF_BASE_PORT (ignored with the port ranges below),
HCCL_OP_EXPANSION_MODE and HCCL_BUFFSIZE (belong in a recipe), RANK_TABLE_FILE (verl's ranks are known only at run
time), HCCL_LOGIC_SUPERPOD_ID (the driver knows it), HCCL_INTRA_* (documented for other hardware),
ASCEND_RT_VISIBLE_DEVICES (unset is correct on a whole node, and the raylet checks its value).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rljob.api.pods import PodTemplate
from rljob.api.training import TrainerBackend
from rljob.api.v1alpha1 import RLJobSpec
from rljob.render.accelerators import facts_of
from rljob_runtime.contract import Platform

CONNECT_TIMEOUT_SECONDS = 1800
"""Ranks load weights at different speeds; CANN's default of 120 s would end such starts."""
EXEC_TIMEOUT_SECONDS = 3600
"""A collective waits for the slowest rank, which may be writing a checkpoint (verl's guide for Ascend)."""

OPEN_FILES = 100_000
"""For Ray's sockets and the checkpoint's shards. Kubernetes has no field for it; KubeRay's start command has this
variable."""
ASCEND_LOGS = "/var/run/rljob/ascend-logs"
"""On the pod's own volume, because the default is the home folder in the container's writable layer."""

CANN = "CANN, environment variables"
ASCEND_GUIDE = "verl, multi-node guide for Ascend"
KUBERAY = "KubeRay v1.7.0, ray-operator/controllers/ray/common/pod.go; earlier releases always take 65536"
ANY = tuple(Platform)
NPU = (Platform.NPU,)

Value = str | dict[str, Any] | None

NO_AUTOLOAD = {"name": "TORCH_DEVICE_BACKEND_AUTOLOAD", "value": "0"}
"""torch imports torch_npu by itself (torch 2.10.0, torch/__init__.py, _import_device_backends), which fails without the
driver's libascend_hal.so (vllm-ascend, issue 1440). What needs torch_npu imports it by name, as verl does
(verl 0.9.1, plugin/platform/platform_npu.py:34)."""


@dataclass(frozen=True)
class Variable:
    """One variable."""

    name: str
    source: str
    value: Callable[[RLJobSpec], Value]
    """Value or `valueFrom`; None: not set."""
    platforms: tuple[Platform, ...] = NPU


def operator_env(spec: RLJobSpec, template: PodTemplate) -> list[dict[str, Any]]:
    """Return the operator's variables except those that the template sets."""
    facts = facts_of(spec)
    taken = {variable.name for variable in template.env}
    ours = {row.name: row.value(spec) for row in VARIABLES if facts.platform in row.platforms}
    values: dict[str, Value] = {**ours, **facts.env}
    return [_entry(name, value) for name, value in values.items() if value is not None and name not in taken]


def without_device(spec: RLJobSpec) -> list[dict[str, Any]]:
    """Return the variables of a container that holds no device and has no driver."""
    return [NO_AUTOLOAD] if facts_of(spec).is_npu else []


def operator_value(spec: RLJobSpec, name: str) -> Value:
    """Return the value that the operator would set; None: nothing."""
    facts = facts_of(spec)
    if name in facts.env:
        return facts.env[name]
    row = next((row for row in VARIABLES if row.name == name and facts.platform in row.platforms), None)
    return row.value(spec) if row is not None else None


def _entry(name: str, value: str | dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "value": value} if isinstance(value, str) else {"name": name, "valueFrom": value}


def _interface(spec: RLJobSpec) -> str | None:
    return spec.network.hccl.socket_interface


def _address(spec: RLJobSpec) -> Value:
    # It takes precedence over HCCL_SOCKET_IFNAME, so it must not be set if the user chose an interface.
    templates = (spec.head.template, *(group.template for group in spec.worker_groups))
    named = any(entry.name == "HCCL_SOCKET_IFNAME" for template in templates for entry in template.env)
    return None if named or _interface(spec) else {"fieldRef": {"fieldPath": "status.podIP"}}


def _task_queue(spec: RLJobSpec) -> str | None:
    if not spec.reads("rollout"):
        return None
    # 2 overlaps more, but cannot be captured in a graph.
    return "2" if spec.rollout.eager else "1"


def _megatron(spec: RLJobSpec) -> str | None:
    # What trains otherwise sets what its own backend needs.
    return None if not spec.reads("trainer.backend") or spec.trainer.backend is TrainerBackend.FSDP2 else "1"


def _all_devices_visible(spec: RLJobSpec) -> str | None:
    # verl selects the device of each worker itself; any other program relies on Ray, which shows a worker only its own.
    return "1" if spec.reads("verl") else None


VARIABLES = (
    # With the host's network, status.podIP is the address of the host.
    Variable("HCCL_IF_IP", f"{CANN}: takes precedence over any choice by interface", _address),
    Variable("HCCL_SOCKET_IFNAME", CANN, _interface),
    Variable("GLOO_SOCKET_IFNAME", "PyTorch, torch.distributed", _interface, ANY),
    Variable("TP_SOCKET_IFNAME", "PyTorch, TensorPipe", _interface),
    Variable(
        "HCCL_HOST_SOCKET_PORT_RANGE", "verl/trainer/constants_ppo.py: several processes per device", lambda _: "auto"
    ),
    Variable(
        "HCCL_NPU_SOCKET_PORT_RANGE", "verl/trainer/constants_ppo.py: several processes per device", lambda _: "auto"
    ),
    Variable(
        "HCCL_CONNECT_TIMEOUT",
        f"{CANN}: 120 to 7200 s",
        lambda s: str(s.network.hccl.connect_timeout_seconds or CONNECT_TIMEOUT_SECONDS),
    ),
    Variable("HCCL_EXEC_TIMEOUT", CANN, lambda s: str(s.network.hccl.exec_timeout_seconds or EXEC_TIMEOUT_SECONDS)),
    Variable("HCCL_WHITELIST_DISABLE", f"{CANN}: no list of allowed hosts", lambda _: "1"),
    Variable("TASK_QUEUE_ENABLE", "torch_npu", _task_queue),
    Variable("CUDA_DEVICE_MAX_CONNECTIONS", "Megatron-LM: order of communication and computation", _megatron),
    Variable("VLLM_ASCEND_ENABLE_NZ", "vllm_ascend/worker/worker.py: weights that are updated", lambda _: "0"),
    Variable("RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES", ASCEND_GUIDE, _all_devices_visible),
    Variable("ASCEND_PROCESS_LOG_PATH", CANN, lambda _: ASCEND_LOGS),
    Variable("RAY_START_ULIMIT_OPEN_FILES", KUBERAY, lambda _: str(OPEN_FILES)),
)
