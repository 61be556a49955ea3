"""Variables of HCCL and related components that a user sets: refused where they cannot work, else warned about.

A variable of the user takes precedence over the operator's; a warning names the value that it replaces, and a variable
that only the workers or only the head have. Sources: CANN 9.1, environment variables (maintenance reference), and
issues of vllm-ascend where named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation import fields
from rljob.core.validation.violation import Check, Violation
from rljob.render.accelerators import facts_of
from rljob.render.env import operator_value

AIV_SECONDS_MAX = 1091
"""CANN, HCCL_EXEC_TIMEOUT: operators in AIV mode never wait longer, whatever is set."""
CONNECT_SECONDS = range(120, 7201)
"""CANN, HCCL_CONNECT_TIMEOUT."""
BASE_PORTS = range(1024, 65521)
"""CANN, HCCL_IF_BASE_PORT: the first of 32 consecutive ports."""
FUSED = ("VLLM_ASCEND_ENABLE_MATMUL_ALLREDUCE", "VLLM_ASCEND_ENABLE_FUSED_MC2")
"""Operators that fuse computation and communication (MC2): vllm_ascend/envs.py:71,102 of vllm-ascend 0.23.0."""

A2 = "910b"
"""Image suffix of the classes of Atlas A2."""

Variables = Mapping[str, str]


@dataclass(frozen=True)
class Pods:
    """The variables of the worker pods or of the head pod."""

    path: str
    own: Mapping[str, tuple[int, str | None]]
    """Name -> index in the template's env and literal value; None where valueFrom sets it."""
    seen: Variables
    """Every literal value, including those of the operator."""

    def field(self, name: str) -> str:
        """Return the path at which the user set a variable."""
        return f"{self.path}.env[{self.own[name][0]}]"


Rule = Callable[[RLJobSpec, Pods], Iterator[Violation]]

WATCHED = (
    "HCCL_HOST_SOCKET_PORT_RANGE",
    "HCCL_NPU_SOCKET_PORT_RANGE",
    "HCCL_EXEC_TIMEOUT",
    "HCCL_WHITELIST_DISABLE",
    "TASK_QUEUE_ENABLE",
)
"""Variables of the operator that the rules read."""


def _pods(spec: RLJobSpec) -> Iterator[Pods]:
    for path, template in fields.templates(spec):
        own = {v.name: (i, v.value if v.value_from is None else None) for i, v in enumerate(template.env)}
        ours = {name: value for name in WATCHED if isinstance(value := operator_value(spec, name), str)}
        yield Pods(path, own, {**ours, **{name: value or "" for name, (_, value) in own.items()}})


def _on_npu(rules: tuple[Rule, ...]) -> Check:
    def judge(spec: RLJobSpec) -> Iterator[Violation]:
        if facts_of(spec).is_npu:
            for pods in _pods(spec):
                for rule in rules:
                    yield from rule(spec, pods)

    return judge


def _devices_are_given(spec: RLJobSpec, pods: Pods) -> Iterator[Violation]:
    """Ray decides which of the pod's devices a process sees."""
    group = next((group for path, group in fields.groups(spec) if pods.path == f"{path}.template"), None)
    if group is None or "ASCEND_RT_VISIBLE_DEVICES" not in pods.own:
        return
    wanted, value = group.devices_per_node, pods.seen["ASCEND_RT_VISIBLE_DEVICES"]
    if value.replace(" ", "").split(",") != [str(number) for number in range(wanted)]:
        yield Violation(
            pods.field("ASCEND_RT_VISIBLE_DEVICES"),
            f"{value!r} names other devices than the pod's 0 to {wanted - 1}; Ray would not start; remove it",
        )


def _intra_node_links_are_one(_: RLJobSpec, pods: Pods) -> Iterator[Violation]:
    """HCCL uses one link within a node: enabling both or disabling both is an error at run time."""
    pcie, roce = pods.seen.get("HCCL_INTRA_PCIE_ENABLE"), pods.seen.get("HCCL_INTRA_ROCE_ENABLE")
    name = "HCCL_INTRA_ROCE_ENABLE" if roce is not None else "HCCL_INTRA_PCIE_ENABLE"
    if (pcie, roce) == ("1", "1"):
        yield Violation(pods.field(name), "HCCL_INTRA_PCIE_ENABLE and HCCL_INTRA_ROCE_ENABLE are both 1; keep one")
    elif pcie == "0" and roce in (None, "0"):
        yield Violation(
            pods.field(name),
            "HCCL_INTRA_PCIE_ENABLE is 0 and HCCL_INTRA_ROCE_ENABLE not 1: no link is left; remove both",
        )


def _numbers_are_in_range(_: RLJobSpec, pods: Pods) -> Iterator[Violation]:
    for name, allowed in (("HCCL_CONNECT_TIMEOUT", CONNECT_SECONDS), ("HCCL_IF_BASE_PORT", BASE_PORTS)):
        value = pods.seen.get(name)
        if name in pods.own and value and not (value.isdecimal() and int(value) in allowed):
            yield Violation(pods.field(name), f"{value!r}: {name} must be from {allowed[0]} to {allowed[-1]}")


def _allowed_hosts_are_listed(_: RLJobSpec, pods: Pods) -> Iterator[Violation]:
    checked = pods.own.keys() & {"HCCL_WHITELIST_DISABLE", "HCCL_WHITELIST_FILE"} == {"HCCL_WHITELIST_DISABLE"}
    if checked and pods.seen["HCCL_WHITELIST_DISABLE"] == "0":
        yield Violation(
            pods.field("HCCL_WHITELIST_DISABLE"),
            "HCCL_WHITELIST_DISABLE is 0 without HCCL_WHITELIST_FILE; set the file, or remove it",
        )


def _graphs_take_the_simple_queue(spec: RLJobSpec, pods: Pods) -> Iterator[Violation]:
    """torch_npu cannot capture level 2; VLLM_ASCEND_TASK_QUEUE_ENABLE gives the rollout a level of its own.

    verl 0.9.1 passes it on to vLLM's servers: verl/plugin/platform/platform_npu.py:154-157.
    """
    if not spec.reads("rollout"):
        return  # Whether it captures graphs is not known.
    if "TASK_QUEUE_ENABLE" not in pods.own or spec.rollout.eager or "VLLM_ASCEND_TASK_QUEUE_ENABLE" in pods.own:
        return
    if pods.seen["TASK_QUEUE_ENABLE"] == "2":
        yield Violation(
            pods.field("TASK_QUEUE_ENABLE"),
            "TASK_QUEUE_ENABLE 2 cannot be captured in the rollout's graphs; add VLLM_ASCEND_TASK_QUEUE_ENABLE 1, "
            "or set rollout.eager",
        )


def _vectors_wait_less(_: RLJobSpec, pods: Pods) -> Iterator[Violation]:
    if "HCCL_OP_EXPANSION_MODE" not in pods.own or not pods.seen["HCCL_OP_EXPANSION_MODE"].startswith("AIV"):
        return
    seconds = pods.seen.get("HCCL_EXEC_TIMEOUT", "")
    if seconds.isdecimal() and (int(seconds) > AIV_SECONDS_MAX or int(seconds) == 0):
        yield Violation(
            pods.field("HCCL_OP_EXPANSION_MODE"),
            f"with AIV a collective times out after {AIV_SECONDS_MAX} s, regardless of HCCL_EXEC_TIMEOUT {seconds}; a "
            "rank that saves or generates for longer ends the run",
        )


def _fused_operators_have_fixed_ports(spec: RLJobSpec, pods: Pods) -> Iterator[Violation]:
    """CANN, HCCL_NPU_SOCKET_PORT_RANGE: not with fused operators on A2."""
    if facts_of(spec).image_suffix != A2:
        return
    for name in FUSED:
        if name in pods.own and pods.seen[name] not in ("", "0") and pods.seen.get("HCCL_NPU_SOCKET_PORT_RANGE"):
            yield Violation(
                pods.field(name),
                f"{name} fuses computation and communication (MC2), which A2 does not support with port ranges, but "
                "HCCL_NPU_SOCKET_PORT_RANGE is set; remove one of them",
            )


def _base_port_is_ignored(_: RLJobSpec, pods: Pods) -> Iterator[Violation]:
    if "HCCL_IF_BASE_PORT" in pods.own and pods.seen.get("HCCL_HOST_SOCKET_PORT_RANGE"):
        yield Violation(
            pods.field("HCCL_IF_BASE_PORT"),
            "HCCL_IF_BASE_PORT has no effect: HCCL_HOST_SOCKET_PORT_RANGE takes precedence; remove it",
        )


def _rank_tables_are_guesses(_: RLJobSpec, pods: Pods) -> Iterator[Violation]:
    if "RANK_TABLE_FILE" in pods.own:
        yield Violation(
            pods.field("RANK_TABLE_FILE"),
            "RANK_TABLE_FILE sets static ranks, but the run assigns ranks per process group; remove it",
        )


def _users_win(spec: RLJobSpec, pods: Pods) -> Iterator[Violation]:
    """A variable of the user takes precedence over the operator's, and a warning says so."""
    for name, (_, value) in pods.own.items():
        ours = operator_value(spec, name)
        if ours is not None and ours != value:
            over = (
                f"the operator's value {ours}"
                if isinstance(ours, str)
                else "the value that the operator reads from the pod"
            )
            yield Violation(pods.field(name), f"{name} replaces {over}")


def _host_network_names_its_interface(spec: RLJobSpec) -> Iterator[Violation]:
    """On the host network gloo resolves the host name, which may belong to any interface of the node."""
    on_host = facts_of(spec).is_npu and spec.network.mode == "Host" and spec.network.hccl.socket_interface is None
    if on_host and not any("GLOO_SOCKET_IFNAME" in pods.own for pods in _pods(spec)):
        yield Violation(
            "spec.network.hccl.socketInterface",
            "is not set with network.mode Host: on nodes with several interfaces gloo may choose a different one than "
            "HCCL, which uses the node's address; set it",
        )


def _all_kinds_of_pods_agree(spec: RLJobSpec) -> Iterator[Violation]:
    """Actors inherit the variables of their node's raylet, and the driver runs in the head.

    Trainer and rollout of different groups are members of one communicator, through which the weights are sent.
    """
    if not facts_of(spec).is_npu:
        return
    *workers, head = _pods(spec)
    for index, pods in enumerate(workers):
        here = "the workers" if len(workers) == 1 else f"the workers of workerGroups[{index}]"
        others = [("the head", head)]
        others += [(f"those of workerGroups[{other}]", workers[other]) for other in range(index)]
        for name, (_, value) in pods.own.items():
            for there, compared in others:
                other = compared.own.get(name, (0, operator_value(spec, name)))[1]
                if name.startswith("HCCL_") and value is not None and isinstance(other, str) and other != value:
                    yield Violation(
                        pods.field(name), f"{name} is {value} on {here} and {other} on {there}; set it on both"
                    )
                    break


CHECKS: tuple[Check, ...] = (
    _on_npu(
        (
            _devices_are_given,
            _intra_node_links_are_one,
            _numbers_are_in_range,
            _allowed_hosts_are_listed,
            _graphs_take_the_simple_queue,
        )
    ),
)
WARNINGS: tuple[Check, ...] = (
    _on_npu(
        (
            _users_win,
            _vectors_wait_less,
            _fused_operators_have_fixed_ports,
            _base_port_is_ignored,
            _rank_tables_are_guesses,
        )
    ),
    _all_kinds_of_pods_agree,
    _host_network_names_its_interface,
)
"""Findings that are reported and do not refuse the job."""
