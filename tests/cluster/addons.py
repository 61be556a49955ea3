"""Add-ons of the cluster: DNS, the default storage class, and KubeRay.

All objects are applied server-side. A ConfigMap contains a hash of what was applied, so an up-to-date cluster needs
only two requests.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import paths, programs
from tests.cluster.api import Api, Object, object_path

KUBERAY_IMAGE = "rljob.local/kuberay-operator:v1.6.2"
KUBERAY_NAMESPACE = "kuberay-system"
KUBERAY = "kuberay-operator"
STORAGE_CLASS = "standard"
RECORD = "/api/v1/namespaces/kube-system/configmaps/rljob-cluster"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{KUBERAY_NAMESPACE}/deployments/{KUBERAY}"
_LABELS = {"app.kubernetes.io/name": "kuberay", "app.kubernetes.io/component": KUBERAY}


def install(api: Api) -> bool:
    """Apply what is missing or changed; return whether anything was sent."""
    crds = sorted((programs.entry("kuberay") / "config/crd/bases").glob("*.yaml"))
    wanted = [*dns(), storage_class(), *kuberay(_upstream_role())]
    digest = _digest(wanted, crds)
    record = api.get(RECORD)
    if record and record.get("data", {}).get("digest") == digest:
        return False
    for path in crds:
        # The file is sent as it is, because parsing a megabyte of YAML takes seconds in Python.
        name = path.stem.removeprefix("ray.io_")
        target = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}.ray.io"
        api.apply_text(target, path.read_text())
    for item in wanted:
        api.apply(item)
    api.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "rljob-cluster", "namespace": "kube-system"},
            "data": {"digest": digest},
        }
    )
    return True


def kuberay_available(api: Api) -> bool:
    """Return whether KubeRay's current Deployment, and not an older one, is Available."""
    deployment = api.get(DEPLOYMENT)
    if deployment is None:
        return False
    status = deployment.get("status", {})
    if status.get("observedGeneration") != deployment["metadata"]["generation"]:
        return False
    conditions = {item["type"]: item["status"] for item in status.get("conditions", [])}
    return conditions.get("Available") == "True" and status.get("updatedReplicas") == 1


def dns() -> list[Object]:
    """Return the Service kube-dns. CoreDNS is a process of the host, so its endpoint is written explicitly."""
    metadata = {"name": "kube-dns", "namespace": "kube-system"}
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"clusterIP": paths.DNS_SERVICE_ADDRESS, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns-host",
                "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [paths.HOST_ADDRESS], "conditions": {"ready": True}}],
        },
    ]


def storage_class() -> Object:
    """Return the default class: folders of this machine, for any access mode."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "rljob.dev/local-folder",
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }


def _upstream_role() -> Path:
    return programs.entry("kuberay") / "config/rbac/role.yaml"


def kuberay(role: Path) -> list[Object]:
    """Return the operator as one Deployment, with exactly the permissions that its module requires."""
    account = {"name": KUBERAY, "namespace": KUBERAY_NAMESPACE}
    rules: list[Any] = yaml.safe_load(role.read_text())["rules"]
    container = {
        "name": KUBERAY,
        "image": KUBERAY_IMAGE,
        "imagePullPolicy": "Never",
        "args": ["--enable-leader-election=false", "--metrics-addr=:8080", "--health-probe-bind-address=:8082"],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/metrics", "port": "http"}, "periodSeconds": 2},
        "livenessProbe": {
            "httpGet": {"path": "/metrics", "port": "http"},
            "initialDelaySeconds": 30,
            "failureThreshold": 6,
        },
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
        },
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KUBERAY_NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": KUBERAY},
            "rules": rules,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": KUBERAY},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": KUBERAY},
            "subjects": [{"kind": "ServiceAccount", **account}],
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {**account, "labels": _LABELS},
            "spec": {
                "replicas": 1,
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": _LABELS},
                "template": {
                    "metadata": {"labels": _LABELS},
                    "spec": {
                        "serviceAccountName": KUBERAY,
                        "terminationGracePeriodSeconds": 10,
                        "containers": [container],
                    },
                },
            },
        },
    ]


def _digest(objects: list[Object], files: list[Path]) -> str:
    digest = hashlib.sha256()
    for item in objects:
        digest.update(f"{object_path(item)}\n{json.dumps(item, sort_keys=True)}\n".encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()
