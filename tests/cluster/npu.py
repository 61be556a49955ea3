"""Make a fake NPU unhealthy and healthy again, through the plug-in's socket."""

import socket

from tests.cluster.errors import ClusterError
from tests.cluster.nodes import Node

ANSWER_SECONDS = 10
MAXIMUM_ANSWER_BYTES = 65536


def command(node: Node, text: str) -> str:
    """Send one command and return the answer."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(ANSWER_SECONDS)
        try:
            client.connect(str(node.npu_socket))
            client.sendall(f"{text}\n".encode())
            with client.makefile("rb") as answers:
                answer = answers.read(MAXIMUM_ANSWER_BYTES).decode().strip()
        except OSError as error:
            raise ClusterError(
                f"the NPU plug-in of {node.name} does not answer at {node.npu_socket} ({error}); "
                "see `python -m tests.cluster status`"
            ) from error
    if answer.startswith("error: "):
        raise ClusterError(answer.removeprefix("error: "))
    return answer


def set_health(node: Node, device: str, *, healthy: bool) -> None:
    """Report a device as healthy or not; the node's allocatable follows within seconds."""
    command(node, f"{'healthy' if healthy else 'unhealthy'} {device}")
