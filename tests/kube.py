"""Access to the local cluster for tests: kubectl with JSON, waits with deadlines, HTTP to pods.

Used by tests/e2e, tests/chaos and tests/chart. It uses kubectl on purpose, because users do. Only objects that tests
poll are read directly: kubectl processes for every poll took a tenth of two slow cores from a starting run.
"""

from __future__ import annotations

import functools
import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from tests.cluster.api import Api
from tests.cluster.paths import state

Manifest = dict[str, Any]
T = TypeVar("T")
LOOKED_AT = {
    "pod": ("api/v1", "pods"),
    "raycluster": ("apis/ray.io/v1", "rayclusters"),
    "rljob": ("apis/rljob.dev/v1alpha1", "rljobs"),
    "secret": ("api/v1", "secrets"),
}
"""Kind, in kubectl's singular -> path in the API."""


class KubectlError(AssertionError):
    """kubectl failed; the message is its output."""


@dataclass(frozen=True)
class Kube:
    """kubectl for one cluster and one namespace."""

    kubectl: str
    kubeconfig: str
    namespace: str = "default"

    def in_namespace(self, namespace: str) -> Kube:
        """Return the same access for another namespace."""
        return Kube(self.kubectl, self.kubeconfig, namespace)

    def run(self, *arguments: str, text: str | None = None, seconds: float = 60) -> str:
        """Run kubectl. Raise KubectlError with its output if it fails."""
        command = [self.kubectl, "--kubeconfig", self.kubeconfig, "-n", self.namespace, *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode != 0:
            raise KubectlError(done.stderr.strip())
        return done.stdout

    def apply(self, *manifests: Manifest) -> str:
        """Apply manifests as a user would."""
        return self.run("apply", "-f", "-", text="\n---\n".join(json.dumps(manifest) for manifest in manifests))

    def get(self, kind: str, name: str) -> Manifest | None:
        """Return an object, or None."""
        if path := self._path(kind):
            return _api().get(f"{path}/{name}")
        try:
            found: Manifest = json.loads(self.run("get", kind, name, "-o", "json"))
        except KubectlError as error:
            if "NotFound" in str(error):
                return None
            raise
        return found

    def find(self, kind: str, selector: str = "") -> list[Manifest]:
        """List objects of the namespace."""
        if path := self._path(kind):
            listing = _api().get(f"{path}?labelSelector={quote(selector)}") or {"items": []}
            return list(listing["items"])
        options = ["-l", selector] if selector else []
        items: list[Manifest] = json.loads(self.run("get", kind, *options, "-o", "json"))["items"]
        return items

    def _path(self, kind: str) -> str:
        if (place := LOOKED_AT.get(kind.removesuffix("s"))) is None:
            return ""
        return f"/{place[0]}/namespaces/{self.namespace}/{place[1]}"

    @contextmanager
    def watch(self, kind: str, name: str, path: str) -> Iterator[list[str]]:
        """Collect a value of an object, by its jsonpath, at every change; complete after the block."""
        watching = ["get", kind, name, "--watch", "-o", f'jsonpath={path}{{"\\n"}}']
        command = [self.kubectl, "--kubeconfig", self.kubeconfig, "-n", self.namespace, *watching]
        seen: list[str] = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                yield seen
            finally:
                process.terminate()
                seen += [line.strip() for line in process.stdout or ()]

    def evict(self, pod: str) -> None:
        """Evict a pod as `kubectl drain` does."""
        metadata = {"name": pod, "namespace": self.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        self.run("create", "--raw", path, "-f", "-", text=json.dumps(eviction))

    def delete(self, kind: str, name: str, *, wait: bool = True) -> None:
        """Delete an object if it exists."""
        self.run("delete", kind, name, "--ignore-not-found", f"--wait={str(wait).lower()}", seconds=180)

    def events(self, name: str) -> list[Manifest]:
        """List the events about an object of that name."""
        found = self.find("events.events.k8s.io")
        return [event for event in found if (event.get("regarding") or {}).get("name") == name]


@functools.cache
def _api() -> Api:
    return Api(state())


def wait_for(what: str, look: Callable[[], T | None], seconds: float, every: float = 1.0) -> T:
    """Poll until there is a result that is not empty; fail with `what` at the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        if found := look():
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}")
        time.sleep(every)


def http_get(url: str, token: str | None = None, seconds: float = 5) -> str:
    """GET a URL of a pod."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - a pod's address
    with urllib.request.urlopen(request, timeout=seconds) as answer:  # noqa: S310 - a pod's address
        text: str = answer.read().decode()
    return text


def condition(job: Manifest | None, kind: str) -> Manifest | None:
    """Return a condition of an object."""
    conditions = ((job or {}).get("status") or {}).get("conditions") or []
    return next((entry for entry in conditions if entry["type"] == kind), None)
