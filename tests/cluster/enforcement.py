"""Enforce NetworkPolicies on the first node for as long as a test needs it: the network of the cluster does not.

Only the pods of that node are protected. The program is compiled on request (`programs/netpol`); if it ends before the
block does, every connection is open again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import components, paths, processes, programs
from tests.cluster.network import POLICY_TABLE
from tests.cluster.nodes import Node
from tests.cluster.paths import State

NAME = "netpol"
QUEUE = 100
QUEUES = Path("/proc/net/netfilter/nfnetlink_queue")
"""Queues that a process reads, one a line, which begins with the number."""
READY_SECONDS = 60.0
GRACE_SECONDS = 10.0


@contextmanager
def enforced(state: State) -> Iterator[None]:
    """Enforce the policies of all namespaces during the block."""
    programs.build([NAME])
    command = (
        str(programs.binary(NAME)),
        f"--kubeconfig={state.admin_kubeconfig}",
        f"--node={Node(1, state).name}",
        f"--pods={paths.POD_NETWORK}",
        f"--table={POLICY_TABLE}",
        f"--queue={QUEUE}",
    )
    log = state.logs / f"{NAME}.log"
    process = processes.start(
        command, pid_file=state.pids / f"{NAME}.pid", log=log, environment=components.environment(state)
    )
    try:
        # It opens the queue once it knows all pods and policies.
        processes.wait_until(_is_read, what=NAME, seconds=READY_SECONDS, log=log, process=process)
        yield
    finally:
        processes.end([process], grace_seconds=GRACE_SECONDS)


def _is_read() -> bool:
    return any(line.split()[0] == str(QUEUE) for line in QUEUES.read_text().splitlines())
