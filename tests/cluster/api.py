"""A client of the cluster's API server: a few verbs over HTTPS with the admin's certificate.

`up` sends many small requests; a kubectl for each would cost a process of 130 MB. Objects are applied server-side with
one field manager, so `up` may run repeatedly.
"""

import http.client
import json
import ssl
import time
from typing import Any

from tests.cluster.errors import ClusterError
from tests.cluster.paths import API_PORT, HOST_ADDRESS, State

# A machine that compiles on all cores answers late; every verb here may be repeated.
TIMEOUT_SECONDS = 30
PROBE_SECONDS = 5
ATTEMPTS = 4
PAUSE_SECONDS = 1.0
FIELD_MANAGER = "rljob-cluster"
PLURALS = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "ConfigMap": "configmaps",
    "CustomResourceDefinition": "customresourcedefinitions",
    "Deployment": "deployments",
    "EndpointSlice": "endpointslices",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "Namespace": "namespaces",
    "Node": "nodes",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Secret": "secrets",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
    "StorageClass": "storageclasses",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}

Object = dict[str, Any]


class Api:
    """Access to one cluster's API as its admin."""

    def __init__(self, state: State, host: str = HOST_ADDRESS, port: int = API_PORT) -> None:
        """Read the keys; nothing is sent yet."""
        self._host, self._port = host, port
        self._tls = ssl.create_default_context(cafile=str(state.pki / "ca.crt"))
        self._tls.load_cert_chain(state.pki / "admin.crt", state.pki / "admin.key")

    def ready(self) -> bool:
        """Return whether the API server reports that it is ready."""
        try:
            return self._once("GET", "/readyz", None, "", PROBE_SECONDS)[0] == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def get(self, path: str) -> Object | None:
        """Return the object at a path, or None if there is none."""
        code, body = self._send("GET", path)
        if code == http.client.NOT_FOUND:
            return None
        return self._parsed("GET", path, code, body)

    def apply(self, wanted: Object) -> Object:
        """Apply an object server-side."""
        return self.apply_text(object_path(wanted), json.dumps(wanted))

    def apply_text(self, path: str, text: str) -> Object:
        """Apply an object given as YAML or JSON text."""
        path = f"{path}?fieldManager={FIELD_MANAGER}&force=true"
        code, body = self._send("PATCH", path, text, "application/apply-patch+yaml")
        return self._parsed("PATCH", path, code, body)

    def delete(self, path: str) -> None:
        """Delete an object; it is no error if it does not exist."""
        code, body = self._send("DELETE", path)
        if code != http.client.NOT_FOUND:
            self._parsed("DELETE", path, code, body)

    def _send(self, verb: str, path: str, body: str | None = None, kind: str = "") -> tuple[int, bytes]:
        seen = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_SECONDS)
            try:
                code, answer = self._once(verb, path, body, kind, TIMEOUT_SECONDS)
            except (OSError, http.client.HTTPException) as error:
                seen = repr(error)
                continue
            if code < http.client.INTERNAL_SERVER_ERROR and code != http.client.TOO_MANY_REQUESTS:
                return code, answer
            seen = f"HTTP {code}: {answer.decode(errors='replace')[:400]}"
        raise ClusterError(
            f"{verb} {path}: {seen} at each of {ATTEMPTS} attempts; see `python -m tests.cluster logs apiserver`"
        )

    def _once(self, verb: str, path: str, body: str | None, kind: str, seconds: float) -> tuple[int, bytes]:
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=seconds, context=self._tls)
        try:
            headers = {"Accept": "application/json", **({"Content-Type": kind} if kind else {})}
            connection.request(verb, path, body.encode() if body is not None else None, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    @staticmethod
    def _parsed(verb: str, path: str, code: int, body: bytes) -> Object:
        if code >= http.client.BAD_REQUEST:
            raise ClusterError(f"{verb} {path}: HTTP {code}: {body.decode(errors='replace')[:800]}")
        parsed: Object = json.loads(body)
        return parsed


def object_path(wanted: Object) -> str:
    """Return the path of an object, from its kind and name."""
    version, metadata = str(wanted["apiVersion"]), wanted["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    space = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{root}{space}/{PLURALS[wanted['kind']]}/{metadata['name']}"
