"""Start and stop the cluster.

`up` compares what should run with what runs and changes only the difference, so it is also the repair: a component that
died is started again, and one whose command or files changed is replaced. If nothing of the cluster runs any more, its
remains are removed and a new cluster is created; images, keys and compiled programs are kept.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster import (
    addons,
    components,
    imagestore,
    leaks,
    mounts,
    network,
    nodes,
    oci,
    packages,
    pki,
    processes,
    programs,
)
from tests.cluster.api import Api
from tests.cluster.components import Component
from tests.cluster.errors import ClusterError
from tests.cluster.nodes import NO_CPU_MANAGER, Node
from tests.cluster.paths import State
from tests.cluster.programs import locked

NODE_READY_SECONDS = 120.0
KUBERAY_READY_SECONDS = 180.0
RESTARTS = 5
NPU_RESOURCE = "huawei.com/Ascend910"
DEFAULT_NODES = 1
DEFAULT_NPUS = 8
"""Three jobs of the tests at a time, beside one whose pods still end."""


@dataclass(frozen=True)
class Wait:
    """A condition to wait for, with its deadline."""

    what: str
    check: Callable[[], bool]
    seconds: float


@dataclass(frozen=True)
class Settings:
    """The options of `up`."""

    nodes: int = DEFAULT_NODES
    npus_per_node: int = DEFAULT_NPUS
    cpu_manager: str = NO_CPU_MANAGER


def up(state: State, *, node_count: int | None = None, npus: int | None = None, cpu_manager: str | None = None) -> None:
    """Start or repair the cluster; options that are None are unchanged."""
    packages.ensure_packages(packages.CLUSTER_PACKAGES)
    programs.build()
    state.folder.mkdir(parents=True, exist_ok=True)
    with locked(state.lock):
        started = time.monotonic()
        fresh = not any(processes.running(path) for path in state.pids.glob("*.pid"))
        if fresh:
            leaks.sweep(state)
            _keep_older_logs(state)
        base = (None if fresh else settings_of(state)) or Settings()
        wanted = Settings(
            nodes=node_count or base.nodes,
            npus_per_node=npus or base.npus_per_node,
            cpu_manager=cpu_manager or base.cpu_manager,
        )
        settings = _choose(state, wanted, least_nodes=1 if fresh else base.nodes)
        changed = _bring_up(state, settings)
        seconds = time.monotonic() - started
        word = "ready" if changed else "unchanged"
        print(f"up     {word} after {seconds:.1f} s; export KUBECONFIG={state.admin_kubeconfig}", flush=True)


def down(state: State, *, purge: bool = False) -> None:
    """Stop the cluster and remove it; with purge also images, keys and logs."""
    state.folder.mkdir(parents=True, exist_ok=True)
    with locked(state.lock):
        leaks.sweep(state)
        if purge:
            for path in state.folder.iterdir():
                if path != state.lock:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
    print("down   nothing of the cluster runs any more", flush=True)


def settings_of(state: State) -> Settings | None:
    """Return the settings with which the running cluster was started."""
    try:
        return Settings(**json.loads((state.pids / "settings.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def nodes_of(state: State, count: int) -> list[Node]:
    """Return the nodes of a cluster of that size."""
    return [Node(index, state) for index in range(1, count + 1)]


def running_nodes(state: State) -> list[Node]:
    """Return the nodes of the running cluster."""
    settings = settings_of(state)
    if settings is None:
        raise ClusterError("no cluster is running; run `python -m tests.cluster up`")
    return nodes_of(state, settings.nodes)


def all_components(state: State, settings: Settings) -> list[Component]:
    """Return every component of the cluster, in the order of starting."""
    listed = components.control_plane(state)
    for node in nodes_of(state, settings.nodes):
        listed += components.of_node(node, settings.npus_per_node)
    return listed


def status(state: State) -> tuple[bool, list[str]]:
    """Return whether everything works, and a line for each component and node."""
    settings = settings_of(state)
    if settings is None:
        return False, ["no cluster; `python -m tests.cluster up` starts one"]
    lines, well = [], True
    for component in all_components(state, settings):
        process = processes.running(state.pids / f"{component.name}.pid")
        answers = process is not None and component.ready()
        well = well and answers
        seen = "ready" if answers else "running, does not answer" if process else "not running"
        lines.append(f"{component.name:22} {seen}{f' (pid {process.pid})' if process else ''}")
    api = Api(state)
    if not api.ready():
        return False, lines
    for node in nodes_of(state, settings.nodes):
        ready, npus = _node_state(api, node)
        well = well and ready
        lines.append(f"{node.name:22} {'Ready' if ready else 'NotReady'}, {npus} NPUs allocatable")
    available = addons.kuberay_available(api)
    lines.append(f"{'kuberay':22} {'Available' if available else 'not Available'}")
    return well and available, lines


def log_of(state: State, component: str) -> Path:
    """Return the log of a component."""
    path = state.logs / f"{component}.log"
    if not path.exists():
        known = ", ".join(sorted(path.stem for path in state.logs.glob("*.log"))) or "none yet"
        raise ClusterError(f"no log of {component!r}; there are logs of: {known}")
    return path


def _choose(state: State, wanted: Settings, *, least_nodes: int) -> Settings:
    if wanted.nodes < least_nodes:
        raise ClusterError(f"the cluster has {least_nodes} nodes; run `down` before `up --nodes {wanted.nodes}`")
    state.pids.mkdir(parents=True, exist_ok=True)
    (state.pids / "settings.json").write_text(json.dumps(asdict(wanted)))
    return wanted


def _bring_up(state: State, settings: Settings) -> bool:
    members = nodes_of(state, settings.nodes)
    _prepare(state, members, settings)
    everything = all_components(state, settings)
    by_name = {component.name: component for component in everything}
    runtimes = [f"containerd-{node.name}" for node in members]
    changed = _start(state, [by_name.pop("etcd")])
    # The API server and the container runtimes do not need each other.
    changed |= _start(state, [by_name.pop(name) for name in ("apiserver", *runtimes)])
    images = own_images()
    for node in members:
        for image in images:
            changed |= imagestore.ensure_image(node, image)
    changed |= _start(state, list(by_name.values()))
    api = Api(state)
    changed |= addons.install(api)
    waits = [_node_wait(api, node, settings.npus_per_node) for node in members]
    waits.append(Wait("KubeRay Available", lambda: addons.kuberay_available(api), KUBERAY_READY_SECONDS))
    for wait in waits:
        changed |= _wait(state, everything, wait)
    return changed


def own_images() -> list[oci.Image]:
    """Return the images that the cluster itself runs, built from its own programs."""
    pause, operator = programs.binary("pause"), programs.binary("kuberay", "ray-operator")
    architecture = imagestore.architecture(pause)
    return [
        oci.binary_image(nodes.PAUSE_IMAGE, pause, "/pause", architecture=architecture),
        oci.binary_image(addons.KUBERAY_IMAGE, operator, "/manager", architecture=architecture),
    ]


def _prepare(state: State, members: Iterable[Node], settings: Settings) -> None:
    pki.ensure_keys(state)
    state.run.mkdir(parents=True, exist_ok=True)
    state.volumes.mkdir(parents=True, exist_ok=True)
    corefile = components.corefile(state)
    (state.folder / "Corefile").write_text(corefile)
    (state.folder / "audit.json").write_text(components.audit_policy())
    state.logs.mkdir(parents=True, exist_ok=True)
    for node in members:
        mounts.ensure_mount_namespace(node)
        network.ensure_network(node)
        network.ensure_cgroup(node)
        certificate = pki.kubelet_certificate(node.name, node.address)
        pki.ensure_certificate(state.pki, certificate)
        nodes.write_configuration(node, settings.cpu_manager)
        pki.write_kubeconfig(state.pki, certificate.name, node.folder / "kubelet.kubeconfig")


def _start(state: State, wanted: list[Component]) -> bool:
    """Start everything that does not run as wanted concurrently, then wait until each component answers."""
    environment = components.environment(state)
    begun = []
    for component in wanted:
        pid_file = state.pids / f"{component.name}.pid"
        present = processes.running(pid_file)
        if present and present.fingerprint == processes.fingerprint(component.command, component.files):
            continue
        if present:
            processes.end([present], grace_seconds=10)
        component.prepare()
        started = time.monotonic()
        process = processes.start(
            component.command,
            pid_file=pid_file,
            log=_log(state, component),
            environment=environment,
            files=component.files,
        )
        begun.append((component, process, started))
    for component, process, started in begun:
        processes.wait_until(
            component.ready,
            what=component.name,
            seconds=components.READY_SECONDS,
            log=_log(state, component),
            process=process,
        )
        print(f"start  {component.name}: ready after {time.monotonic() - started:.1f} s", flush=True)
    return bool(begun)


def _node_state(api: Api, node: Node) -> tuple[bool, int]:
    found = api.get(f"/api/v1/nodes/{node.name}")
    if found is None:
        return False, 0
    conditions = {item["type"]: item["status"] for item in found["status"].get("conditions", [])}
    return conditions.get("Ready") == "True", int(found["status"].get("allocatable", {}).get(NPU_RESOURCE, 0))


def _node_wait(api: Api, node: Node, npus: int) -> Wait:
    def ready() -> bool:
        found = api.get(f"/api/v1/nodes/{node.name}")
        capacity = int(found["status"].get("capacity", {}).get(NPU_RESOURCE, 0)) if found else 0
        # Capacity instead of allocatable, because a test may have made a device unhealthy.
        return _node_state(api, node)[0] and capacity == npus

    return Wait(f"{node.name} Ready with {npus} NPUs", ready, NODE_READY_SECONDS)


def _wait(state: State, everything: list[Component], wait: Wait) -> bool:
    """Wait for something that needs all components; return whether it took any time.

    A component may exit meanwhile: on a busy machine the controller manager exits if the API server is not healthy
    within ten seconds. It is started again a few times.
    """
    if wait.check():
        return False
    started, restarts = time.monotonic(), 0
    print(f"wait   {wait.what}", flush=True)
    while not wait.check():
        processes.reap()
        ended = [item for item in everything if not processes.running(state.pids / f"{item.name}.pid")]
        if time.monotonic() - started > wait.seconds or restarts >= RESTARTS:
            named = ended or [item for item in everything if item.name.startswith(("controller", "kubelet"))]
            tails = "\n".join(f"{item.name}:\n{processes.tail(_log(state, item), 8)}" for item in named)
            raise ClusterError(f"not within {wait.seconds:.0f} s: {wait.what}; the ends of the logs\n{tails}")
        if ended:
            restarts += 1
            print(f"again  {', '.join(item.name for item in ended)} ended", flush=True)
            _start(state, ended)
        time.sleep(processes.POLL_SECONDS)
    print(f"       done after {time.monotonic() - started:.1f} s", flush=True)
    return True


def _log(state: State, component: Component) -> Path:
    return state.logs / f"{component.name}.log"


def _keep_older_logs(state: State) -> None:
    """Start new logs with a new cluster, and keep those of the previous one."""
    for path in state.logs.glob("*.log"):
        path.replace(path.with_suffix(".previous"))
