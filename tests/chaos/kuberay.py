"""KubeRay's operator on the local cluster, stopped and started by its Deployment."""

from __future__ import annotations

from tests.cluster.addons import KUBERAY
from tests.kube import Kube


def scale(kuberay: Kube, replicas: int) -> None:
    """Start or stop KubeRay, by kubectl in its namespace."""
    kuberay.run("scale", "deployment", KUBERAY, f"--replicas={replicas}")
    wanted = f"--for=jsonpath={{.status.availableReplicas}}={replicas}" if replicas else "--for=delete"
    what = ("deployment", KUBERAY) if replicas else ("pods", "-l", "app.kubernetes.io/component=kuberay-operator")
    kuberay.run("wait", *what, wanted, "--timeout=120s", seconds=150)
