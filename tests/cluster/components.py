"""The long-running programs of the cluster as a table: command, files, and health check.

They are started in this order. The table is all that `up`, `down`, `status` and `logs` know about the cluster's
components.
"""

import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import paths, programs
from tests.cluster.api import Api
from tests.cluster.nodes import Node, forget_cpus
from tests.cluster.packages import SYSTEM_PATH
from tests.cluster.paths import State

# Virtual machines of CI are slow to read a binary of 130 MB for the first time.
READY_SECONDS = 120.0
PROBE_SECONDS = 2


@dataclass(frozen=True)
class Component:
    """A program to keep running."""

    name: str
    command: tuple[str, ...]
    ready: Callable[[], bool]
    # Files whose change requires that the program is restarted.
    files: tuple[Path, ...] = ()
    # Action before it is started, if none is running.
    prepare: Callable[[], None] = lambda: None


def control_plane(state: State) -> list[Component]:
    """Return the control plane and the services of the whole cluster."""
    pki, kubeconfig = state.pki, str(state.admin_kubeconfig)
    kube = programs.entry("kube")
    api = Api(state)
    return [
        _etcd(state),
        _api_server(state, api),
        Component(
            "controller-manager",
            (
                str(kube / "kube-controller-manager"),
                f"--kubeconfig={kubeconfig}",
                "--bind-address=127.0.0.1",
                "--leader-elect=false",
                "--use-service-account-credentials",
                f"--service-account-private-key-file={pki / 'sa.key'}",
                f"--root-ca-file={pki / 'ca.crt'}",
                f"--cluster-signing-cert-file={pki / 'ca.crt'}",
                f"--cluster-signing-key-file={pki / 'ca.key'}",
                f"--cluster-cidr={paths.POD_NETWORK}",
                "--allocate-node-cidrs=false",
                # A lost node is detected after 20 s instead of 50, so that tests can wait for it.
                "--node-monitor-grace-period=20s",
            ),
            lambda: listens("127.0.0.1", 10257),
        ),
        Component(
            "scheduler",
            (
                str(kube / "kube-scheduler"),
                f"--kubeconfig={kubeconfig}",
                "--bind-address=127.0.0.1",
                "--leader-elect=false",
            ),
            lambda: listens("127.0.0.1", 10259),
        ),
        Component(
            "coredns",
            (str(programs.entry("coredns") / "coredns"), "-conf", str(state.folder / "Corefile")),
            lambda: answers(f"http://127.0.0.1:{paths.COREDNS_HEALTH_PORT}/health"),
            files=(state.folder / "Corefile",),
        ),
        Component(
            "storage",
            (
                str(programs.entry("storage") / "storage"),
                f"--kubeconfig={kubeconfig}",
                f"--folder={state.volumes}",
            ),
            lambda: True,
        ),
    ]


def _etcd(state: State) -> Component:
    client = f"http://127.0.0.1:{paths.ETCD_PORT}"
    peer = f"http://127.0.0.1:{paths.ETCD_PEER_PORT}"
    return Component(
        "etcd",
        (
            str(programs.entry("etcd") / "etcd"),
            f"--data-dir={state.etcd}",
            # The cluster does not outlive the machine, so this loses nothing.
            "--unsafe-no-fsync",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ),
        lambda: answers(f"{client}/health"),
    )


def _api_server(state: State, api: Api) -> Component:
    pki = state.pki
    return Component(
        "apiserver",
        (
            str(programs.entry("kube") / "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{paths.ETCD_PORT}",
            f"--bind-address={paths.HOST_ADDRESS}",
            f"--advertise-address={paths.HOST_ADDRESS}",
            f"--secure-port={paths.API_PORT}",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-cluster-ip-range={paths.SERVICE_NETWORK}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            f"--kubelet-certificate-authority={pki / 'ca.crt'}",
            f"--kubelet-client-certificate={pki / 'admin.crt'}",
            f"--kubelet-client-key={pki / 'admin.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            # tests/e2e/test_audit.py reads it. Together with the older file, it holds more than `make test` writes.
            f"--audit-policy-file={state.folder / 'audit.json'}",
            f"--audit-log-path={state.logs / 'audit.log'}",
            "--audit-log-maxsize=128",
            "--audit-log-maxbackup=1",
        ),
        api.ready,
        files=(pki / "ca.crt", pki / "apiserver.crt", state.folder / "audit.json"),
    )


def of_node(node: Node, npus: int) -> list[Component]:
    """Return the programs of a node."""
    enter = tuple(node.enter())
    kube, containerd = programs.entry("kube"), programs.entry("containerd")
    kubelet = (
        str(kube / "kubelet"),
        f"--config={node.folder / 'kubelet.yaml'}",
        f"--kubeconfig={node.folder / 'kubelet.kubeconfig'}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        f"--root-dir={node.kubelet_root}",
    )
    proxy = (str(kube / "kube-proxy"), f"--config={node.folder / 'proxy.yaml'}")
    plugin = (
        str(programs.entry("fakenpu") / "fakenpu"),
        f"--node={node.name}",
        f"--npus={npus}",
        f"--kubeconfig={node.state.admin_kubeconfig}",
        f"--kubelet-root={node.kubelet_root}",
        f"--control={node.npu_socket}",
    )
    return [
        Component(
            f"containerd-{node.name}",
            (*enter, str(containerd / "containerd"), "--config", str(node.folder / "containerd.toml")),
            lambda: _accepts(node.containerd_socket),
            files=(node.folder / "containerd.toml",),
        ),
        Component(
            f"kubelet-{node.name}",
            (*enter, *kubelet),
            lambda: listens(node.address, 10250),
            files=(node.folder / "kubelet.yaml", node.folder / "kubelet.kubeconfig"),
            prepare=lambda: forget_cpus(node),
        ),
        Component(
            f"kube-proxy-{node.name}",
            (*enter, *proxy),
            lambda: listens(node.gateway, 10249),
            files=(node.folder / "proxy.yaml",),
        ),
        Component(f"fakenpu-{node.name}", plugin, lambda: _accepts(node.npu_socket)),
    ]


def audit_policy() -> str:
    """Return which requests the API server records: those of ServiceAccounts, except of its own and KubeRay's."""
    own = [f"system:serviceaccounts:{namespace}" for namespace in ("kube-system", "kuberay-system")]
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [
            {"level": "None", "userGroups": own},
            {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
            {"level": "None"},
        ],
    }
    return json.dumps(policy, indent=1)


def corefile(state: State) -> str:
    """Return the DNS configuration for the cluster's own names.

    Nothing is forwarded, so tests cannot depend on other hosts.
    """
    return f""".:53 {{
  bind {paths.HOST_ADDRESS}
  errors
  health 127.0.0.1:{paths.COREDNS_HEALTH_PORT}
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {state.admin_kubeconfig}
    pods insecure
  }}
  cache 5
}}
"""


def environment(state: State) -> dict[str, str]:
    """Return the environment of the components: the PATH with runc and the shim, and our mark.

    Nothing else of the caller's environment is passed on, because the cluster must not depend on the terminal that
    started it.
    """
    search = f"{programs.entry('containerd')}:{SYSTEM_PATH}"
    return {
        "PATH": search,
        "HOME": "/root",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        paths.MARK_VARIABLE: str(state.folder),
    }


def answers(url: str) -> bool:
    """Return whether a URL answers with 200."""
    try:
        with urllib.request.urlopen(url, timeout=PROBE_SECONDS) as answer:  # noqa: S310  (our own http address)
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def listens(host: str, port: int) -> bool:
    """Return whether a process accepts connections at this address."""
    try:
        socket.create_connection((host, port), timeout=PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PROBE_SECONDS)
        try:
            client.connect(str(path))
        except OSError:
            return False
        return True
