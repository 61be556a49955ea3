"""Wait for the Ray cluster before verl starts: for its devices, its nodes, and the end of any other run in it.

Every wait has a limit. Exceeding it is an environment failure (exit 65), which another attempt may resolve.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rljob_runtime.contract import ROLE_RESOURCES, ExitCode, JobConfig, Role
from rljob_runtime.fork_server import start as fork_server
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.stacks.gather import Stack, gather

T = TypeVar("T")

RESOURCE = "NPU"
POLL_SECONDS = 0.5
LOCK_FILE = "launch.lock"
CONNECT_SECONDS = 3.0
CONNECTIONS_MAX = 64


@contextmanager
def head_lock(spool: Path, wait_seconds: float) -> Iterator[None]:
    """Hold the head's lock, so that one launcher runs at a time. The kernel releases it when the process ends."""
    import fcntl

    spool.mkdir(parents=True, exist_ok=True)
    with (spool / LOCK_FILE).open("a") as file:

        def take() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        _wait(
            take, wait_seconds, "HeadBusy", lambda: f"another launcher still runs in this pod ({file.name} is locked)"
        )
        yield


def launcher_lives(spool: Path) -> bool:
    """Return whether a launcher holds the head's lock."""
    import fcntl

    try:
        with (spool / LOCK_FILE).open() as file:
            # A shared lock, so that readers do not see each other. A launcher that meets a reader tries again.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def wait_for_predecessor(sole_actor: tuple[str, str], wait_seconds: float) -> None:
    """Wait until no other run is left in this Ray cluster: `sole_actor` (name, namespace) no longer exists."""
    import ray

    def gone() -> bool:
        name, namespace = sole_actor
        try:
            ray.get_actor(name, namespace=namespace)
        except ValueError:
            return True
        return False

    _wait(gone, wait_seconds, "ClusterBusy", lambda: "another run in this Ray cluster has not ended")


def wait_for_devices(job: JobConfig, wait_seconds: float, seen: Callable[[int], None] = lambda _: None) -> None:
    """Wait until the cluster has the job's nodes and all their devices are free; `seen` gets the free ones."""
    import ray

    def free() -> float:
        return float(ray.available_resources().get(RESOURCE, 0))

    def enough() -> bool:
        seen(int(now := free()))
        return now >= job.devices

    def describe() -> str:
        return f"{free():g} of {job.devices} {RESOURCE} devices are free after {wait_seconds:g} s; the rest is in use"

    wait_for_nodes(job, wait_seconds)
    _wait(enough, wait_seconds, "DevicesBusy", describe)


def wait_for_nodes(job: JobConfig, wait_seconds: float, seen: Callable[[int], None] = lambda _: None) -> None:
    """Wait until the cluster has the job's nodes with their devices; `seen` gets the number that have joined."""
    wanted = _wanted(job)

    def counts() -> list[int]:
        return [min(nodes, _nodes_with(resources)) for nodes, resources in wanted]

    def joined() -> bool:
        seen(now := sum(counts()))
        return now >= job.nodes

    def describe() -> str:
        parts = [
            f"{now} of {nodes} nodes with {' and '.join(f'{count} {name}' for name, count in resources.items())}"
            for now, (nodes, resources) in zip(counts(), wanted, strict=True)
        ]
        return f"{', '.join(parts)} joined in {wait_seconds:g} s"

    _wait(joined, wait_seconds, "DevicesMissing", describe)


def _wanted(job: JobConfig) -> list[tuple[int, dict[str, int]]]:
    """Return, for each group, its number of nodes and what each of them offers."""
    if not job.groups:
        return [(job.nodes, {RESOURCE: job.devices_per_node})]
    return [
        (group.nodes, {RESOURCE: group.devices // group.nodes, ROLE_RESOURCES[group.role]: 1}) for group in job.groups
    ]


def device_nodes(resource: str = RESOURCE) -> dict[str, str]:
    """Return the nodes that offer devices, or another resource: Ray's node id -> address."""
    import ray

    return {
        str(node["NodeID"]): str(node["NodeManagerAddress"]) for node in ray.nodes() if _offers(node, {resource: 1})
    }


def own_role() -> Role | None:
    """Return the role of the node on which this task runs; None where the job's workers are all alike."""
    import ray

    own = ray.get_runtime_context().get_node_id()
    here = [node for node in ray.nodes() if node["NodeID"] == own]
    return next((role for role in Role if any(_offers(node, {ROLE_RESOURCES[role]: 1}) for node in here)), None)


def sole_nodes(job: JobConfig) -> dict[str, str]:
    """Return the nodes without which the run cannot continue: all, but for those of a rollout that stands apart."""
    kept = device_nodes()
    if any(group.role is Role.ROLLOUT for group in job.groups):
        for node in device_nodes(ROLE_RESOURCES[Role.ROLLOUT]):
            kept.pop(node, None)
    return kept


def host_names() -> dict[str, str]:
    """Return the host names of the nodes that offer devices, by address. On the pod network, they are pod names."""
    import ray

    nodes = [node for node in ray.nodes() if _has_devices(node, 1)]
    return {str(node["NodeManagerAddress"]): str(node["NodeManagerHostname"]) for node in nodes}


def lost_nodes(nodes: Mapping[str, str]) -> list[str]:
    """Return the addresses of nodes that are no longer alive. A restarted node counts as another one."""
    import ray

    living = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    return sorted(address for node, address in nodes.items() if node not in living)


def silent_nodes(nodes: Mapping[str, str]) -> list[str]:
    """Return the addresses of nodes that are not alive or whose raylet accepts no connection.

    Ray checks its nodes every 3 s and tolerates five failures (health_check_period_ms, ray_config_def.h, 2.60), while
    calls to actors on a dead node fail after one second.
    """
    import ray

    known = [node for node in ray.nodes() if node["NodeID"] in nodes]
    with ThreadPoolExecutor(max_workers=CONNECTIONS_MAX) as pool:
        answers = pool.map(_answers, known)
        return sorted(
            str(node["NodeManagerAddress"]) for node, answer in zip(known, answers, strict=True) if not answer
        )


def _answers(node: Mapping[str, Any]) -> bool:
    """Return whether a node is alive according to Ray and its raylet accepts a connection."""
    if not node["Alive"]:
        return False
    try:
        with socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), CONNECT_SECONDS):
            return True
    except OSError:
        return False


def on_device_nodes(task: Callable[..., T], seconds: float, *arguments: object) -> dict[str, T | None]:
    """Run a function on every node with devices in parallel; return the results by address, None after a timeout.

    A task that exceeds the time is cancelled. If a task raises, the error is printed and its result is None.
    """
    import ray

    tasks = {pinned(task, node).remote(*arguments): address for node, address in sorted(device_nodes().items())}
    answered, late = ray.wait(list(tasks), num_returns=len(tasks), timeout=seconds) if tasks else ([], [])
    answers: dict[str, T | None] = {tasks[one]: None for one in late}
    for one in late:
        ray.cancel(one, force=True)
    for one in answered:
        try:
            answers[tasks[one]] = ray.get(one)
        except Exception as error:  # noqa: BLE001 - Ray raises errors of the task and of its transport
            print(f"rljob: {task.__name__} at {tasks[one]}: {error}", file=sys.stderr, flush=True)  # noqa: T201
            answers[tasks[one]] = None
    return answers


def stacks_elsewhere(run: str, seconds: float) -> list[Stack]:
    """Gather the stacks of a run on all other nodes, from those that answer within `seconds`."""
    import ray

    own = ray.get_runtime_context().get_node_id()
    nodes = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] != own]
    tasks = [pinned(gather, node["NodeID"]).remote(run, node["NodeManagerAddress"], seconds / 3) for node in nodes]
    answered, silent = ray.wait(tasks, num_returns=len(tasks), timeout=seconds) if tasks else ([], [])
    if silent:
        print(f"rljob: no stacks from {len(silent)} of {len(tasks)} nodes", file=sys.stderr, flush=True)  # noqa: T201
    stacks: list[Stack] = []
    for task in answered:
        try:
            stacks += ray.get(task)
        except Exception as error:  # noqa: BLE001 - a lost node must not prevent gathering from others
            print(f"rljob: no stacks from a node: {error}", file=sys.stderr, flush=True)  # noqa: T201
    return stacks


def pinned(task: Callable[..., Any], node: str) -> Any:  # noqa: ANN401 - Ray's remote function
    """Return a Ray task pinned to one node by Ray's node id: with network.mode Host a head may share its address."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    options: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}
    if os.environ.get(fork_server.VARIABLE):
        # It needs no library, and a check must not wait until the fork server of its node has imported them.
        options["runtime_env"] = {"py_executable": sys.executable}
    return ray.remote(task).options(**options)


def _nodes_with(resources: Mapping[str, int]) -> int:
    import ray

    return sum(1 for node in ray.nodes() if _offers(node, resources))


def _has_devices(node: Mapping[str, Mapping[str, float]], devices: int) -> bool:
    return _offers(node, {RESOURCE: devices})


def _offers(node: Mapping[str, Mapping[str, float]], resources: Mapping[str, int]) -> bool:
    return bool(node["Alive"]) and all(node["Resources"].get(name, 0) >= count for name, count in resources.items())


def _wait(done: Callable[[], bool], wait_seconds: float, reason: str, describe: Callable[[], str]) -> None:
    deadline = time.monotonic() + wait_seconds
    while not done():
        if time.monotonic() >= deadline:
            raise RefusedError(ExitCode.ENVIRONMENT, reason, describe())
        time.sleep(POLL_SECONDS)
