"""The network and the cgroups of the nodes, created before the first program starts.

All names contain the name of the cluster, so `leaks` finds them and `down` removes them. Each function checks the
current state first and changes only what differs.
"""

import contextlib
import json
import os
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.nodes import CGROUP, Node
from tests.cluster.shell import run, succeeds

CGROUP_MOUNTS = Path("/sys/fs/cgroup")
PODS_WEIGHT = 2
"""In units of a process: pods have dozens of processes, and the API server, the kubelet and the tests one each."""
POLICY_TABLE = "rljob-netpol"
"""The nftables table of what enforces NetworkPolicies."""


def ensure_network(node: Node) -> None:
    """Create the bridge of a node and, for a node in a namespace, the link to the host."""
    if node.namespace:
        _ensure_namespace(node)
    _sysctl(node, "net/ipv4/ip_forward", "1")
    _ensure_bridge(node)


def _ensure_bridge(node: Node) -> None:
    enter = node.enter_network()
    if succeeds([*enter, "ip", "link", "show", node.bridge]):
        return
    run([*enter, "ip", "link", "add", node.bridge, "type", "bridge"])
    run([*enter, "ip", "addr", "add", f"{node.gateway}/24", "dev", node.bridge])
    run([*enter, "ip", "link", "set", node.bridge, "up"])


def _ensure_namespace(node: Node) -> None:
    name, outside = str(node.namespace), host_link(node)
    if not Path(f"/run/netns/{name}").exists():
        run(["ip", "netns", "add", name])
    enter = node.enter_network()
    if not succeeds(["ip", "link", "show", outside]):
        run(["ip", "link", "add", outside, "type", "veth", "peer", "name", "uplink", "netns", name])
        run(["ip", "addr", "add", f"{node.host_end}/30", "dev", outside])
        run([*enter, "ip", "link", "set", "lo", "up"])
        run([*enter, "ip", "addr", "add", f"{node.address}/30", "dev", "uplink"])
        run([*enter, "ip", "link", "set", "uplink", "up"])
        run([*enter, "ip", "route", "add", "default", "via", node.host_end])
    # A link that was cut has lost its route too.
    run(["ip", "link", "set", outside, "up"])
    run(["ip", "route", "replace", node.pod_network, "via", node.address])


def host_link(node: Node) -> str:
    """Return the host's end of the link to a node in a namespace."""
    return f"rljob{node.index}up"


def cut_off(node: Node) -> None:
    """Partition a node in a namespace from the rest; `ensure_network` reverts this."""
    run(["ip", "link", "set", host_link(node), "down"])


def _sysctl(node: Node, name: str, value: str) -> None:
    run([*node.enter_network(), "sysctl", "-qw", f"{name.replace('/', '.')}={value}"])


def links() -> list[str]:
    """Return our interfaces in the machine's network: bridges, uplinks and interfaces attached to a bridge."""
    found = json.loads(run(["ip", "-json", "link", "show"]) or "[]")
    return [
        str(link["ifname"])
        for link in found
        if str(link["ifname"]).startswith("rljob") or str(link.get("master", "")).startswith("rljob")
    ]


def namespaces() -> list[str]:
    """Return our named network namespaces."""
    folder = Path("/run/netns")
    return sorted(path.name for path in folder.glob("rljob-*")) if folder.exists() else []


def tables() -> list[str]:
    """Return the nftables tables that kube-proxy and netpol created on this machine."""
    try:
        listed = run(["nft", "list", "tables"])
    except ClusterError:
        return []
    ours = (" kube-proxy", f" {POLICY_TABLE}")
    return [line.removeprefix("table ") for line in listed.splitlines() if line.endswith(ours)]


def hierarchies() -> list[Path]:
    """Return the cgroup hierarchies: one with v2, one for each controller with v1."""
    if (CGROUP_MOUNTS / "cgroup.controllers").exists():
        return [CGROUP_MOUNTS]
    return [path for path in sorted(CGROUP_MOUNTS.iterdir()) if path.is_dir() and path.name != "unified"]


def ensure_cgroup(node: Node) -> None:
    """Create the parent group of a node's pods, which the kubelet requires to exist."""
    for hierarchy in hierarchies():
        group = hierarchy
        for part in node.cgroup.strip("/").split("/"):
            parent, group = group, group / part
            group.mkdir(exist_ok=True)
            _inherit(parent, group)
            if parent == hierarchy:
                _weigh(group)


def _weigh(group: Path) -> None:
    """Give all pods together their weight beside other processes; the kernel counts a group as one."""
    for name, usual in (("cpu.shares", 1024), ("cpu.weight", 100)):
        if (group / name).exists():
            (group / name).write_text(str(usual * PODS_WEIGHT))


def _inherit(parent: Path, group: Path) -> None:
    # cpuset of v1 starts empty, and no process may enter an empty set.
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (group / name).exists() and not (group / name).read_text().strip():
            (group / name).write_text((parent / name).read_text())
    # v2 delegates controllers only if the parent enables them.
    offered = parent / "cgroup.controllers"
    if offered.exists():
        for controller in offered.read_text().split():
            with contextlib.suppress(OSError):
                (parent / "cgroup.subtree_control").write_text(f"+{controller}")


def cgroups() -> list[Path]:
    """Return our groups in every hierarchy, the deepest first, which is the order to remove them."""
    found: list[Path] = []
    for hierarchy in hierarchies():
        top = hierarchy / CGROUP
        # Groups disappear while they are listed: os.walk ignores missing ones, rglob does not.
        found += [Path(folder) for folder, _, _ in os.walk(top)]
    return sorted(found, key=lambda path: len(path.parts), reverse=True)
