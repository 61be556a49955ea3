"""Install the operator with its chart, as a user would. An unchanged release is not rolled out again."""

from __future__ import annotations

import os

from scripts.demo.commands import ROOT, Kubernetes, capture
from scripts.demo.errors import DemoError

CHART = ROOT / "charts" / "rljob-operator"
NAMESPACE = "rljob-system"
RELEASE = "rljob-operator"
INSTALL_SECONDS = 300


def install(kubernetes: Kubernetes, helm: str, image: str, image_id: str) -> None:
    """Install or upgrade the chart and wait until the operator is ready.

    The local image keeps its tag when its content changes. A pod annotation with its digest makes the pod roll out
    exactly then.
    """
    name, _, tag = image.rpartition(":")
    registry, _, repository = name.rpartition("/")
    settings = {"image.registry": registry, "image.repository": repository, "image.tag": tag}
    if image_id:
        settings[r"podAnnotations.rljob\.dev/image"] = image_id
    words = [helm, "upgrade", "--install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--create-namespace"]
    # CRDs may exist already, applied by hand or by a test; the release takes ownership of them.
    words += ["--take-ownership", "--force-conflicts", "--wait", "--timeout", f"{INSTALL_SECONDS}s"]
    for key, value in settings.items():
        words += ["--set-string", f"{key}={value}"]
    try:
        capture(words, environment=kubernetes.environment, seconds=INSTALL_SECONDS + 30)
    except DemoError as error:
        raise DemoError(f"{error}\n{_why(kubernetes)}") from error


def _why(kubernetes: Kubernetes) -> str:
    """Return the operator's own log."""
    selector = f"app.kubernetes.io/instance={RELEASE}"
    pods = kubernetes.run("get", "pods", "--namespace", NAMESPACE, "--selector", selector, "--output", "wide")
    try:
        logs = kubernetes.run("logs", "--namespace", NAMESPACE, "--selector", selector, "--tail", "15")
    except DemoError:
        logs = ""
    return f"{pods}\n{logs}".strip()


def helm_of_path() -> str:
    """Return the user's helm, for the user's own cluster."""
    return os.environ.get("HELM", "helm")
