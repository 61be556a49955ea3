"""Kueue, which only some tests need: quotas, queues and preemption, installed and removed on request.

The manifests are those of its own chart, in the version that programs/kueue pins, with the parts that concern
RayClusters. In the local cluster it runs in a pod (`install`, `remove`); with a control plane without kubelets it runs
as a process (`beside`, which sets the location of its webhooks). Its webhooks reject everything while Kueue does not
answer, so they are installed immediately before Kueue and removed before anything else.
"""

import base64
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import yaml

from tests.cluster import imagestore, oci, programs
from tests.cluster.api import Api, Object
from tests.cluster.errors import ClusterError
from tests.cluster.nodes import Node
from tests.cluster.shell import run

IMAGE = "rljob.local/kueue:v0.16.2"
NAMESPACE = "kueue-system"
GROUP = "kueue.x-k8s.io"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/kueue-controller-manager"
CERTIFICATE = f"/api/v1/namespaces/{NAMESPACE}/secrets/kueue-webhook-server-cert"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
WEBHOOKS = tuple(
    f"{ADMISSION}/{kind}webhookconfigurations/kueue-{kind}-webhook-configuration" for kind in ("mutating", "validating")
)
JUDGED = frozenset({"clusterqueue", "cohort", "raycluster", "resourceflavor", "workload"})
"""Kinds that the webhooks check. Those for kinds that this Kueue does not manage would reject every pod and Job."""
HOLDERS = (
    # Kinds whose objects have Kueue's finalizer, in an order in which none waits for another.
    "workloads",
    "localqueues",
    "clusterqueues",
    "cohorts",
    "resourceflavors",
    "topologies",
)
# In this order. Objects that are not in the list are not needed: the API of pending workloads, roles for people.
APPLIED = (
    "Namespace",
    "CustomResourceDefinition",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Secret",
    "ConfigMap",
    "Service",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "Deployment",
)
# On two cores with other work, 180 has not always been enough.
READY_SECONDS = 300.0
GONE_SECONDS = 90.0
POLL_SECONDS = 0.5


def install(api: Api, nodes: Iterable[Node]) -> None:
    """Install or update Kueue in the running cluster, and wait until it answers."""
    programs.build(["kueue"])
    binary = programs.binary("kueue")
    image = oci.binary_image(IMAGE, binary, "/manager", architecture=imagestore.architecture(binary))
    for node in nodes:
        imagestore.ensure_image(node, image)
    _apply(api, manifests())
    _until("Kueue Available", READY_SECONDS, lambda: available(api))


def remove(api: Api) -> None:
    """Remove Kueue and all objects of its kinds. Queued RayClusters must be gone, or Kueue creates Workloads again."""
    for path in WEBHOOKS:
        api.delete(path)
    # While Kueue runs, because it removes its own finalizers.
    for plural in HOLDERS:
        _delete_all(api, plural)
    api.delete(DEPLOYMENT)
    api.delete(f"/api/v1/namespaces/{NAMESPACE}")
    listed = api.get(CRDS) or {}
    for name in (item["metadata"]["name"] for item in listed.get("items", ())):
        if name.endswith(f".{GROUP}"):
            api.delete(f"{CRDS}/{name}")
    for manifest in manifests():
        if manifest["kind"] in ("ClusterRole", "ClusterRoleBinding"):
            plural = f"{manifest['kind'].lower()}s"
            api.delete(f"/apis/rbac.authorization.k8s.io/v1/{plural}/{manifest['metadata']['name']}")
    _until("Kueue's namespace gone", GONE_SECONDS, lambda: api.get(f"/api/v1/namespaces/{NAMESPACE}") is None)


def available(api: Api) -> bool:
    """Return whether Kueue's current Deployment is Available."""
    deployment = api.get(DEPLOYMENT)
    if deployment is None:
        return False
    status = deployment.get("status", {})
    conditions = {item["type"]: item["status"] for item in status.get("conditions", [])}
    current = status.get("observedGeneration") == deployment["metadata"]["generation"]
    return current and conditions.get("Available") == "True" and status.get("updatedReplicas") == 1


def manifests() -> list[Object]:
    """Return all manifests of Kueue as it runs in a pod."""
    configuration = {"metrics": {"bindAddress": ":8443"}, "health": {"healthProbeBindAddress": ":8081"}}
    made = _rendered(_configuration(**configuration))
    deployment = made[-1]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
    # Its probes are slow by default, and a test waits for it.
    container["readinessProbe"] |= {"initialDelaySeconds": 1, "periodSeconds": 2}
    return made


def beside(api: Api, folder: Path, *, webhook_port: int, health_port: int) -> Path:
    """Apply what a Kueue outside of the cluster needs, and return its configuration.

    The API server finds it by a Service with the name `localhost`; `keep_certificate` handles its certificate.
    """
    keys = folder / "kueue-certificate"
    keys.mkdir(exist_ok=True)
    configuration = _configuration(
        metrics={"bindAddress": "0"},
        health={"healthProbeBindAddress": f"127.0.0.1:{health_port}"},
        webhook={"host": "127.0.0.1", "port": webhook_port, "certDir": str(keys)},
    )
    wanted = ("Namespace", "CustomResourceDefinition", "Secret", "ConfigMap", "Service")
    made = [m for m in _rendered(configuration) if m["kind"] in wanted or m["kind"].endswith("WebhookConfiguration")]
    for manifest in made:
        if manifest["kind"] == "Service":
            manifest["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        for config in _client_configs(manifest):
            config["service"]["port"] = webhook_port
    _apply(api, made)
    path = folder / "kueue.yaml"
    # Its own certificate management, as in a pod, needs the names that the chart sets in the ConfigMap.
    settings = next(m for m in made if m["kind"] == "ConfigMap")["data"]["controller_manager_config.yaml"]
    path.write_text(settings)
    return path


def keep_certificate(api: Api, folder: Path) -> bool:
    """Write the certificate that Kueue created, as the kubelet would for a pod; return whether it exists."""
    data = (api.get(CERTIFICATE) or {}).get("data") or {}
    for name, text in data.items():
        (folder / "kueue-certificate" / name).write_bytes(base64.b64decode(text))
    return "tls.crt" in data


def _configuration(**parts: Object) -> Object:
    return {
        "apiVersion": f"config.{GROUP}/v1beta2",
        "kind": "Configuration",
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 200, "burst": 400},
        "controller": {"groupKindConcurrency": {"RayCluster.ray.io": 5, f"Workload.{GROUP}": 5}},
        # An API for pending workloads, which needs another certificate and is not used here.
        "featureGates": {"VisibilityOnDemand": False},
        "integrations": {"frameworks": ["ray.io/raycluster"]},
        **parts,
    }


def _rendered(configuration: Object) -> list[Object]:
    """Render Kueue's chart, without the objects that are not needed here."""
    repository, tag = IMAGE.rsplit(":", 1)
    image = {"repository": repository, "tag": tag, "pullPolicy": "Never"}
    values = {
        "controllerManager": {"manager": {"image": image}},
        "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(configuration)},
    }
    programs.build(["kueue", "helm"])
    chart = programs.entry("kueue") / "charts/kueue"
    command: list[str | Path] = [
        programs.binary("helm"),
        "template",
        "kueue",
        chart,
        "--namespace",
        NAMESPACE,
        "--values",
        "-",
    ]
    text = run(command, text=json.dumps(values))
    found: list[Object] = [item for item in yaml.load_all(text, yaml.CSafeLoader) if item]
    bound = {item["roleRef"]["name"] for item in found if item["kind"].endswith("RoleBinding")}
    kept = [item for item in found if _is_used(item, bound)]
    for item in kept:
        if item["kind"].endswith("WebhookConfiguration"):
            del item["metadata"]["namespace"]
            item["webhooks"] = [hook for hook in item["webhooks"] if hook["name"][1:].split(".")[0] in JUDGED]
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    return sorted([namespace, *kept], key=lambda item: APPLIED.index(item["kind"]))


def _is_used(item: Object, bound: set[str]) -> bool:
    name, kind = item["metadata"]["name"], item["kind"]
    if kind not in APPLIED or item["metadata"].get("namespace", NAMESPACE) != NAMESPACE:
        return False
    if kind == "Service":
        return bool(name == "kueue-webhook-service")
    return kind not in ("ClusterRole", "Role") or name in bound


def _client_configs(manifest: Object) -> list[Object]:
    if manifest["kind"] == "CustomResourceDefinition":
        webhook = manifest["spec"].get("conversion", {}).get("webhook")
        return [webhook["clientConfig"]] if webhook else []
    return [hook["clientConfig"] for hook in manifest.get("webhooks", ())]


def _apply(api: Api, wanted: Sequence[Object]) -> None:
    crds = [manifest for manifest in wanted if manifest["kind"] == "CustomResourceDefinition"]
    for manifest in crds:
        api.apply(manifest)
    # Kueue exits while one of its kinds is not served yet.
    for manifest in crds:
        _await_established(api, f"{CRDS}/{manifest['metadata']['name']}")
    for manifest in wanted:
        if manifest not in crds:
            api.apply(manifest)


def _await_established(api: Api, path: str) -> None:
    def established() -> bool:
        conditions = ((api.get(path) or {}).get("status") or {}).get("conditions") or ()
        return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)

    _until(f"{path} Established", READY_SECONDS, established)


def _delete_all(api: Api, plural: str) -> None:
    root = f"/apis/{GROUP}/v1beta2"

    def left() -> list[Object]:
        items: list[Object] = (api.get(f"{root}/{plural}") or {}).get("items", [])
        return items

    for item in left():
        metadata = item["metadata"]
        space = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
        api.delete(f"{root}{space}/{plural}/{metadata['name']}")
    _until(f"no {plural} left", GONE_SECONDS, lambda: not left())


def _until(what: str, seconds: float, check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise ClusterError(f"not within {seconds:.0f} s: {what}; see `kubectl -n {NAMESPACE} get pods,events`")
        time.sleep(POLL_SECONDS)
