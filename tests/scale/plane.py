"""A separate control plane for the tests, with one process for all kubelets: own ports and folder, nothing is left.

etcd, kube-apiserver, the garbage collector, kube-scheduler and KubeRay are the programs of the local cluster
(tests/cluster/programs). State and addresses of that cluster are not used, so both may run concurrently. Every program
is a child that the kernel ends together with this process. Each operator has its own user name, so that the audit log
shows its requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.cluster import kueue, pki, programs
from tests.cluster.api import Api
from tests.cluster.components import answers, listens
from tests.cluster.paths import State
from tests.cluster.pki import Certificate
from tests.cluster.processes import tail
from tests.scale.client import Client, Manifest
from tests.scale.kubelets import FOLLOWS
from tests.scale.objects import NAMESPACE

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "build" / "scale"
KEPT_LOG_LINES = 2000
POD_NETWORKS = range(64, 128)
"""127.<n>.0.0/16, one per plane on this machine: with equal addresses, heads of two planes would answer each other's
operators. All of it belongs to the loopback device: its listeners are reachable only from this machine."""
MARK_PORT = 28_265
SERVICE_NETWORK = "10.97.0.0/16"
OPERATOR, KUBERAY, KUEUE = "rljob-operator", "kuberay-operator", "kueue"
GROUP = "rljob.dev:scale"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
READY_SECONDS = 120.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.1
KEEP_SECONDS = 0.5
LEASE_LOST = "LeaseLostError"
"""Message of an operator that exits because it lost its Lease."""
SCHEDULER_QPS = 1000
"""The default of 50 would dominate the measurement: the scheduler sends one request per bound pod."""
COLLECTOR_QPS = 400
ETCD_QUOTA_BYTES = 4 * 2**30
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        # The body of an event contains its object.
        {
            "level": "Request",
            "users": [OPERATOR, KUBERAY],
            "verbs": ["create"],
            "resources": [{"group": group, "resources": ["events"]} for group in ("", "events.k8s.io")],
        },
        {"level": "Metadata", "users": [OPERATOR, KUBERAY]},
        {"level": "None"},
    ],
}


@dataclass(frozen=True)
class Releases:
    """Which programs of tests/cluster/programs the control plane is made of."""

    kube: str = "kube"
    kuberay: str = "kuberay"


PINNED = Releases()
"""Those of the local cluster."""


class PlaneError(AssertionError):
    """A component of the control plane is not running. The message contains the end of its log."""


@dataclass
class Plane:
    """A running control plane and its additional components."""

    state: State
    api_port: int
    etcd_port: int
    network: socket.socket
    """Bound in the pod network while this plane uses it."""
    releases: Releases = PINNED
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    metrics_ports: dict[str, int] = field(default_factory=dict)
    operator_starts: int = 0
    """Number of starts by `keep_operator`."""

    @property
    def folder(self) -> Path:
        """Folder for all files of this plane."""
        return self.state.folder

    @property
    def audit_log(self) -> Path:
        """Log of all requests of the two operators."""
        return self.folder / "audit.log"

    @property
    def token_key(self) -> Path:
        """The operator's key."""
        return self.folder / "token-key"

    @property
    def pod_network(self) -> str:
        """Address range of this plane's pods."""
        first, second, *_ = self.network.getsockname()[0].split(".")
        return f"{first}.{second}.0.0/16"

    @property
    def url(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self.api_port}"

    def client(self) -> Client:
        """Return a client with all rights."""
        return Client(self.url, self.state.pki)

    def pid(self, name: str) -> int:
        """Return the process id of a component."""
        return self.processes[name].pid

    def start(self, name: str, *command: str | Path) -> None:
        """Start a component; its output goes to its log."""
        # The kernel ends it with this process, even if this process is killed.
        words = ["setpriv", "--pdeathsig", "KILL", "--", *map(str, command)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("RLJOB_", "SCALE_"))}
        environment["KUBECONFIG"] = str(self.kubeconfig(name))
        with self.log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=self.folder
            )

    async def stop(self, name: str) -> int:
        """End a component, wait for it, and return its exit code."""
        process = self.processes.pop(name)
        process.terminate()
        try:
            return await asyncio.to_thread(process.wait, STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def log(self, name: str) -> Path:
        """Return the log of a component."""
        return self.folder / f"{name}.log"

    def kubeconfig(self, name: str) -> Path:
        """Return the client configuration of a component: an operator's own identity, otherwise the admin's."""
        return self.folder / f"{name}.kubeconfig" if name in (OPERATOR, KUBERAY) else self.state.admin_kubeconfig

    async def wait(self, name: str, what: str, check: Callable[[], bool]) -> float:
        """Wait until a component is ready; return the seconds."""
        began = time.monotonic()
        # In a thread, because this thread serves the heads that a component may call.
        while not await asyncio.to_thread(check):
            ended = self.processes[name].poll() is not None
            if ended or time.monotonic() > began + READY_SECONDS:
                why = "it ended" if ended else f"not within {READY_SECONDS:.0f} s"
                raise PlaneError(f"{name} {what}: {why}; the end of its log:\n{tail(self.log(name))}")
            await asyncio.sleep(POLL_SECONDS)
        return time.monotonic() - began

    async def start_operator(self, *words: str) -> float:
        """Start our operator from this checkout, by default with its own settings; return the seconds until ready."""
        port = self.metrics_ports.setdefault(OPERATOR, free_port())
        self.start(
            OPERATOR,
            *(sys.executable, "-m", "rljob", "--kubeconfig", self.kubeconfig(OPERATOR)),
            *("--token-key-file", self.token_key, "--http-port", str(port), "--lease-namespace", NAMESPACE),
            *words,
        )
        return await self.wait(OPERATOR, "answers /readyz", lambda: answers(f"http://127.0.0.1:{port}/readyz"))

    async def keep_operator(self, *words: str) -> None:
        """Run our operator forever, restarting it after a lost Lease as its Deployment would.

        The control plane on a busy machine may not answer for the duration of a Lease. Any other exit is an error.
        """
        while True:
            self.operator_starts += 1
            await self.start_operator(*words)
            while self.processes[OPERATOR].poll() is None:
                await asyncio.sleep(KEEP_SECONDS)
                for name, process in self.processes.items():
                    if name != OPERATOR and process.poll() is not None:
                        raise PlaneError(f"{name} ended; the end of its log:\n{tail(self.log(name))}")
            if LEASE_LOST not in (log := tail(self.log(OPERATOR))):
                raise PlaneError(f"{OPERATOR} ended; the end of its log:\n{log}")

    async def start_kuberay(self) -> None:
        """Start KubeRay's operator with its default settings."""
        self.metrics_ports[KUBERAY], probe = free_port(), free_port()
        self.start(
            KUBERAY,
            *(programs.binary(self.releases.kuberay, "ray-operator"), "--enable-leader-election=false"),
            *("--metrics-addr", f"127.0.0.1:{self.metrics_ports[KUBERAY]}"),
            *("--health-probe-bind-address", f"127.0.0.1:{probe}"),
        )
        await self.wait(KUBERAY, "answers /healthz", lambda: answers(f"http://127.0.0.1:{probe}/healthz"))

    async def start_kueue(self) -> None:
        """Start Kueue. From now on the API server calls its webhooks."""
        programs.build(["kueue", "helm"])
        webhook, health = free_port(), free_port()
        api = Api(self.state, "127.0.0.1", self.api_port)

        def prepare() -> Path:
            return kueue.beside(api, self.folder, webhook_port=webhook, health_port=health)

        self.start(KUEUE, programs.binary("kueue"), "--config", await asyncio.to_thread(prepare))
        await self.wait(KUEUE, "makes its certificate", lambda: kueue.keep_certificate(api, self.folder))
        await self.wait(KUEUE, "answers /readyz", lambda: answers(f"http://127.0.0.1:{health}/readyz"))


@contextlib.asynccontextmanager
async def control_plane(releases: Releases = PINNED) -> AsyncIterator[Plane]:
    """Start etcd, the API server, the garbage collector, the scheduler and the kubelets; end all of them afterwards."""
    programs.build((releases.kuberay,))
    async with api_server(releases) as plane:
        await _start_helpers(plane)
        yield plane


@contextlib.asynccontextmanager
async def api_server(releases: Releases = PINNED) -> AsyncIterator[Plane]:
    """Start etcd and the API server only; end them, and all that was started beside them, afterwards."""
    programs.build(("etcd", releases.kube))
    folder = Path(tempfile.mkdtemp(prefix="rljob-scale-"))
    plane = Plane(State(folder, folder / "run"), free_port(), free_port(), take_network(), releases)
    try:
        _write_files(plane)
        await _start_etcd(plane)
        await _start_api_server(plane)
        yield plane
    finally:
        # The last component to start ends first, so that none logs the loss of its dependencies.
        for name in reversed(list(plane.processes)):
            await plane.stop(name)
        plane.network.close()
        _keep_logs(plane)
        shutil.rmtree(folder, ignore_errors=True)


async def install(client: Client, releases: Releases = PINNED) -> None:
    """Create the namespace, the rights of both operators, and the CRDs of KubeRay and of this checkout."""
    await client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    await client.ask("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", _rights())
    names: list[str] = []
    kuberay = programs.entry(releases.kuberay) / "config/crd/bases"
    for path in [*kuberay.glob("*.yaml"), *(ROOT / "crds").glob("*.yaml")]:
        for crd in yaml.load_all(path.read_text(), yaml.CSafeLoader):
            names.append(crd["metadata"]["name"])
            await client.ask("POST", CRDS, crd)
    await await_crds(client, names)


async def await_crds(client: Client, names: Iterable[str]) -> None:
    """Wait until the API server serves these CRDs."""
    async with asyncio.timeout(READY_SECONDS):
        for name in names:
            while not _established(await client.ask("GET", f"{CRDS}/{name}")):  # noqa: ASYNC110 - seconds, once
                await asyncio.sleep(POLL_SECONDS)


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def take_network() -> socket.socket:
    """Reserve a network that no other plane uses: only one process can bind its last address."""
    for number in POD_NETWORKS:
        mark = socket.socket()
        try:
            mark.bind((f"127.{number}.255.254", MARK_PORT))
        except OSError:
            mark.close()
        else:
            return mark
    raise PlaneError(f"all of the {len(POD_NETWORKS)} networks for pods are taken: other planes run on this machine")


def _write_files(plane: Plane) -> None:
    pki.ensure_keys(plane.state, plane.url)
    for name in (OPERATOR, KUBERAY):
        # Not in system:masters, whose requests the API server does not queue.
        pki.ensure_certificate(plane.state.pki, Certificate(name, f"/O={GROUP}/CN={name}"))
        pki.write_kubeconfig(plane.state.pki, name, plane.kubeconfig(name), plane.url)
    plane.token_key.write_bytes(os.urandom(32))
    (plane.folder / "audit.yaml").write_text(json.dumps(AUDIT_POLICY))


async def _start_etcd(plane: Plane) -> None:
    client, peer = f"http://127.0.0.1:{plane.etcd_port}", f"http://127.0.0.1:{free_port()}"
    plane.start(
        "etcd",
        *(programs.binary("etcd"), f"--data-dir={plane.state.etcd}", "--unsafe-no-fsync", "--log-level=warn"),
        *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
        *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"),
        f"--quota-backend-bytes={ETCD_QUOTA_BYTES}",
    )
    await plane.wait("etcd", "answers /health", lambda: answers(f"{client}/health"))


async def _start_api_server(plane: Plane) -> None:
    keys = plane.state.pki
    plane.start(
        "apiserver",
        *(programs.entry(plane.releases.kube) / "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{plane.etcd_port}"),
        *("--bind-address=127.0.0.1", f"--secure-port={plane.api_port}", "--endpoint-reconciler-type=none"),
        *(f"--client-ca-file={keys / 'ca.crt'}", f"--tls-cert-file={keys / 'apiserver.crt'}"),
        *(f"--tls-private-key-file={keys / 'apiserver.key'}", f"--service-cluster-ip-range={SERVICE_NETWORK}"),
        "--service-account-issuer=https://kubernetes.default.svc",
        *(f"--service-account-signing-key-file={keys / 'sa.key'}", f"--service-account-key-file={keys / 'sa.pub'}"),
        "--authorization-mode=RBAC",
        # Without kubelets, nothing removes the taint of a new node; without its controller, no service account exists.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        *(f"--audit-policy-file={plane.folder / 'audit.yaml'}", f"--audit-log-path={plane.audit_log}"),
        *("--audit-log-mode=blocking", "--audit-log-maxsize=10000"),
    )
    api = Api(plane.state, "127.0.0.1", plane.api_port)
    await plane.wait("apiserver", "answers /readyz", api.ready)


def _write_settings(plane: Plane) -> None:
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(plane.state.admin_kubeconfig),
            "qps": SCHEDULER_QPS,
            "burst": 2 * SCHEDULER_QPS,
        },
    }
    (plane.folder / "scheduler.yaml").write_text(json.dumps(scheduler))


async def _start_helpers(plane: Plane) -> None:
    _write_settings(plane)
    kubeconfig, kube = plane.state.admin_kubeconfig, programs.entry(plane.releases.kube)
    scheduler_port, collector_port = free_port(), free_port()
    plane.start(
        "controller-manager",
        *(kube / "kube-controller-manager", f"--kubeconfig={kubeconfig}", "--leader-elect=false"),
        "--controllers=garbage-collector-controller,namespace-controller,job-controller",
        *("--bind-address=127.0.0.1", f"--secure-port={collector_port}"),
        *(f"--kube-api-qps={COLLECTOR_QPS}", f"--kube-api-burst={2 * COLLECTOR_QPS}"),
    )
    plane.start(
        "scheduler",
        *(kube / "kube-scheduler", f"--config={plane.folder / 'scheduler.yaml'}"),
        *("--bind-address=127.0.0.1", f"--secure-port={scheduler_port}"),
    )
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    plane.start(
        "kubelets",
        *("env", f"PYTHONPATH={path}", sys.executable, "-m", "tests.scale.kubelets"),
        *(plane.url, plane.state.pki, plane.pod_network),
    )
    await plane.wait("controller-manager", "listens", lambda: listens("127.0.0.1", collector_port))
    await plane.wait("scheduler", "listens", lambda: listens("127.0.0.1", scheduler_port))
    await plane.wait("kubelets", "start", lambda: FOLLOWS in plane.log("kubelets").read_text())


def _keep_logs(plane: Plane) -> None:
    """Keep the ends of the last run's logs for diagnosis."""
    LOGS.mkdir(parents=True, exist_ok=True)
    for path in plane.folder.glob("*.log"):
        if path != plane.audit_log:
            (LOGS / path.name).write_text(tail(path, KEPT_LOG_LINES))


def _rights() -> Manifest:
    return {
        "metadata": {"name": "scale"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": GROUP}],
    }


def _established(crd: Manifest) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)
