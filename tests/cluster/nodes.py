"""The nodes of the cluster, and the configuration files of their programs.

The first node is the machine itself. Any further node is a network namespace with its own bridge, containerd, kubelet
and kube-proxy on the same machine. All paths of a node are below its own folders, and all its cgroups below its own
group.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.cluster import paths
from tests.cluster.paths import State

PAUSE_IMAGE = "rljob.local/pause:1"
CGROUP = "rljob-cluster"
CNI_PROGRAMS = "/usr/lib/cni"
CNI_NETWORK = "rljob"
NO_CPU_MANAGER, STATIC_CPU_MANAGER = "none", "static"
"""Policies of the kubelet (https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/)."""
RESERVED_CPU = "100m"


@dataclass(frozen=True)
class Node:
    """A node: its network and its folders."""

    index: int
    state: State

    @property
    def name(self) -> str:
        """Name in the API."""
        return f"node-{self.index}"

    @property
    def folder(self) -> Path:
        """Folder on disk."""
        return self.state.node(self.name)

    @property
    def run(self) -> Path:
        """Folder of its sockets."""
        return self.state.node_run(self.name)

    @property
    def kubelet_root(self) -> Path:
        """The kubelet's own folder."""
        return self.folder / "kubelet"

    @property
    def cpu_state(self) -> Path:
        """File in which the kubelet records the CPUs of each container."""
        return self.kubelet_root / "cpu_manager_state"

    @property
    def images(self) -> Path:
        """Root of containerd, which is kept by `down`."""
        return self.folder / "containerd"

    @property
    def containerd_socket(self) -> Path:
        """Socket of containerd."""
        return self.run / "containerd.sock"

    @property
    def npu_socket(self) -> Path:
        """Socket on which the fake NPU plug-in accepts commands."""
        return self.run / "npu.sock"

    @property
    def bridge(self) -> str:
        """Bridge that its pods are attached to."""
        return f"rljob{self.index}"

    @property
    def pod_network(self) -> str:
        """Addresses of its pods."""
        return f"10.244.{self.index}.0/24"

    @property
    def gateway(self) -> str:
        """Address of the bridge."""
        return f"10.244.{self.index}.1"

    @property
    def namespace(self) -> str | None:
        """Network namespace; None for the machine's own."""
        return None if self.index == 1 else f"rljob-{self.name}"

    @property
    def address(self) -> str:
        """Address at which the API server reaches its kubelet."""
        return self.gateway if self.namespace is None else f"10.250.{self.index}.2"

    @property
    def host_end(self) -> str:
        """The host's address on the link to a node in a namespace."""
        return f"10.250.{self.index}.1"

    @property
    def cgroup(self) -> str:
        """Parent group of all its pods."""
        return f"/{CGROUP}/{self.name}"

    @property
    def mount_namespace(self) -> Path:
        """File that keeps the node's mount namespace."""
        return self.run / "mount-namespace"

    def enter_network(self) -> list[str]:
        """Return the prefix of a command that runs it in the node's network."""
        return ["nsenter", f"--net=/run/netns/{self.namespace}", "--"] if self.namespace else []

    def enter(self) -> list[str]:
        """Return the prefix of a program of the node, with its network and its mounts."""
        network = [f"--net=/run/netns/{self.namespace}"] if self.namespace else []
        return ["nsenter", f"--mount={self.mount_namespace}", *network, "--"]


def write_configuration(node: Node, cpu_manager: str) -> None:
    """Write the files that the programs of a node read."""
    (node.folder / "cni").mkdir(parents=True, exist_ok=True)
    node.run.mkdir(parents=True, exist_ok=True)
    _write(node.folder / "cni" / "10-bridge.conflist", json.dumps(cni_configuration(node), indent=1))
    _write(node.folder / "containerd.toml", containerd_configuration(node))
    _write(node.folder / "resolv.conf", "")
    _write(node.folder / "kubelet.yaml", yaml.safe_dump(kubelet_configuration(node, cpu_manager)))
    _write(node.folder / "proxy.yaml", yaml.safe_dump(proxy_configuration(node)))


def cni_configuration(node: Node) -> dict[str, object]:
    """Return the CNI configuration: pods on one bridge, addresses from the node's network, no masquerading."""
    bridge = {
        "type": "bridge",
        "bridge": node.bridge,
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(node.run / "ipam"),
            "ranges": [[{"subnet": node.pod_network, "gateway": node.gateway}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {"cniVersion": "1.0.0", "name": CNI_NETWORK, "plugins": [bridge]}


def containerd_configuration(node: Node) -> str:
    """Return the configuration of a private containerd.

    restrict_oom_score_adj: root of a container or small virtual machine may lack CAP_SYS_RESOURCE; then no sandbox
    starts, because runc cannot lower the score. netns_mounts_under_state_dir: mounts below our folder can be identified
    as ours.
    """
    return f"""version = 3
root = "{node.images}"
state = "{node.run}/containerd"
[grpc]
  address = "{node.containerd_socket}"
[ttrpc]
  address = "{node.containerd_socket}.ttrpc"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE_IMAGE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
    SystemdCgroup = false
    Root = "{node.run}/runc"
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{CNI_PROGRAMS}"]
  conf_dir = "{node.folder}/cni"
"""


def kubelet_configuration(node: Node, cpu_manager: str) -> dict[str, object]:
    """Return the configuration of a kubelet that shares its machine.

    Swap, cgroup v1 and another root file system are fine.
    """
    pki = node.state.pki
    exclusive: dict[str, object] = {}
    if cpu_manager != NO_CPU_MANAGER:
        # Reserving part of a CPU keeps a whole one for shared use, and costs only the part in the scheduler's sums.
        exclusive = {"cpuManagerPolicy": cpu_manager, "kubeReserved": {"cpu": RESERVED_CPU}}
    return exclusive | {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "healthzPort": 0,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": node.cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{node.containerd_socket}",
        "clusterDNS": [paths.DNS_SERVICE_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(node.folder / "resolv.conf"),
        "podLogsDir": str(node.folder / "pod-logs"),
        "tlsCertFile": str(pki / f"kubelet-{node.name}.crt"),
        "tlsPrivateKeyFile": str(pki / f"kubelet-{node.name}.key"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        # Images are imported and never pulled, so a collected image could not be restored.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": False,
        "shutdownGracePeriod": "0s",
        # Nodes of one machine must detect a lost one within a test's timeout.
        "nodeStatusUpdateFrequency": "4s",
    }


def forget_cpus(node: Node) -> None:
    """Remove the CPU assignments of a kubelet with another policy, because the next kubelet would refuse to start."""
    wanted = yaml.safe_load((node.folder / "kubelet.yaml").read_text()).get("cpuManagerPolicy", NO_CPU_MANAGER)
    if node.cpu_state.exists() and json.loads(node.cpu_state.read_text())["policyName"] != wanted:
        node.cpu_state.unlink()


def proxy_configuration(node: Node) -> dict[str, object]:
    """Return the configuration of a kube-proxy that uses nftables in the node's network."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": paths.POD_NETWORK,
        "clientConnection": {"kubeconfig": str(node.state.admin_kubeconfig)},
        "hostnameOverride": node.name,
        "healthzBindAddress": f"{node.gateway}:10256",
        "metricsBindAddress": f"{node.gateway}:10249",
        # The kernel's limits belong to the machine.
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def _write(path: Path, content: str) -> None:
    if not path.exists() or path.read_text() != content:
        path.write_text(content)
