"""A mount namespace for each node, in which only its own programs see their mounts.

The kubelet looks for device plug-ins in one fixed folder regardless of its root. In a namespace of its own, each
kubelet finds the node's own folder there. Mounts of volumes and sandboxes disappear with the last process of the node.
"""

import shlex
from pathlib import Path

from tests.cluster.nodes import Node
from tests.cluster.shell import run

# DevicePluginPath of k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1, a constant that no setting changes.
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")


def ensure_mount_namespace(node: Node) -> None:
    """Create the namespace of a node's containerd, shims and kubelet."""
    kept = node.mount_namespace
    if kept.is_file() and is_mount_point(kept):
        return
    own = node.kubelet_root / "device-plugins"
    for folder in (own, node.run, DEVICE_PLUGINS):
        folder.mkdir(parents=True, exist_ok=True)
    # The kernel keeps a mount namespace in a file only on a private mount.
    run(["mount", "--bind", node.run, node.run])
    run(["mount", "--make-private", node.run])
    kept.touch()
    bind = shlex.join(["mount", "--bind", str(own), str(DEVICE_PLUGINS)])
    run(["unshare", f"--mount={kept}", "--propagation", "slave", "sh", "-c", bind])


def is_mount_point(path: Path) -> bool:
    """Return whether something is mounted at exactly this path (os.path.ismount does not detect files)."""
    return any(line.split()[4] == str(path) for line in Path("/proc/self/mountinfo").read_text().splitlines())
