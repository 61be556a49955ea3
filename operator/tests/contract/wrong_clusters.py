"""Clusters on which commands cannot do their work: real API servers, and kubeconfigs that do not lead to one.

Each is a kubeconfig. The servers have no kubelets, no operator and no KubeRay; one of them has the CRDs of this
checkout and a job.
"""

from __future__ import annotations

import base64
import contextlib
import enum
import json
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from builders import Json, small_spec

from rljob.api.texts import write_texts
from rljob.api.v1alpha1 import API_VERSION
from tests.cluster import pki, programs
from tests.cluster.pki import Certificate
from tests.scale import plane
from tests.scale.plane import Plane

NAMESPACE = "default"
WAITING, DELETED, FORCED, ENDED = "waiting", "deleted", "forced", "ended"
JOBS: dict[str, Json] = {
    **{
        name: {"state": "Pending", "reason": "WaitingForKubeRay", "message": "KubeRay is absent"}
        for name in (WAITING, DELETED, FORCED)
    },
    ENDED: {"state": "Failed", "reason": "UserError", "message": "the reward raised an error"},
}
"""Jobs of the server with CRDs, and their status as an operator has written it."""
RECIPES = {"short": 10, "long": 1000}
"""Recipes of this server, and their steps."""
CRDS = Path(__file__).parents[3] / "crds"
READER = "reader"
"""May read RLJobs, and nothing else."""
SIGNATURE_PART = 32
"""Bytes of each of the two numbers of a signature on P-256."""


class Site(enum.StrEnum):
    """What is wrong."""

    NO_KUBECONFIG = "no kubeconfig"
    UNREACHABLE = "unreachable"
    OTHER_AUTHORITY = "other authority"
    EXPIRED = "expired token"
    PLUGIN_FAILS = "failing credential plug-in"
    PLUGIN_ABSENT = "absent credential plug-in"
    NO_RIGHTS = "no rights"
    JOBS_ONLY = "rights on jobs only"
    NO_CRDS = "no CRDs"
    NO_KUBERAY = "no KubeRay"
    NO_CONTEXT = "no such context"
    NO_NAMESPACE = "no such namespace"


@dataclass(frozen=True)
class Sites:
    """The kubeconfig of each, in a folder that kubectl uses as its home."""

    folder: Path

    def kubeconfig(self, site: Site) -> Path:
        """Return the path of the kubeconfig, which one site does not have."""
        return self.folder / f"{site.name.lower()}.kubeconfig"


@contextlib.asynccontextmanager
async def sites(folder: Path) -> AsyncIterator[Sites]:
    """Start two API servers, and write the kubeconfigs."""
    made = Sites(folder)
    async with plane.api_server() as bare, plane.api_server() as served:
        await _fill(served)
        _write(made, Site.NO_CRDS, _admin(bare))
        for site in (Site.NO_KUBERAY, Site.NO_CONTEXT, Site.NO_NAMESPACE):
            _write(made, site, _admin(served))
        _write(made, Site.UNREACHABLE, _admin(bare) | {"server": f"https://127.0.0.1:{plane.free_port()}"})
        _write(made, Site.OTHER_AUTHORITY, _admin(served) | {"authority": bare.state.pki / "ca.crt"})
        _write(made, Site.EXPIRED, _admin(served) | {"user": {"token": expired_token(served.state.pki / "sa.key")}})
        for site, program in ((Site.PLUGIN_FAILS, "false"), (Site.PLUGIN_ABSENT, "rljob-no-such-login")):
            plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": program, "interactiveMode": "Never"}
            _write(made, site, _admin(served) | {"user": {"exec": plugin}})
        _write(made, Site.NO_RIGHTS, _admin(served) | {"user": _user(served, "nobody")})
        _write(made, Site.JOBS_ONLY, _admin(served) | {"user": _user(served, READER)})
        yield made


async def _fill(served: Plane) -> None:
    """Create the CRDs, the jobs, the recipes, and a role that may read jobs."""
    async with served.client() as client:
        crds = {path.stem: path.read_text() for path in CRDS.glob("*.yaml")}
        for name, text in crds.items():
            await client.apply(f"{plane.CRDS}/{name}", text)
        await plane.await_crds(client, crds)
        api = f"/apis/{API_VERSION}"
        for name, status in JOBS.items():
            await client.ask("POST", f"{api}/namespaces/{NAMESPACE}/rljobs", job_manifest(name))
            path = f"{api}/namespaces/{NAMESPACE}/rljobs/{name}/status"
            await client.ask("PATCH", path, {"status": status}, "merge-patch+json")
        for name, steps in RECIPES.items():
            spec = {"template": {"trainer": {"steps": steps}}}
            recipe = {"apiVersion": API_VERSION, "kind": "ClusterRLRecipe", "metadata": {"name": name}, "spec": spec}
            await client.ask("POST", f"{api}/clusterrlrecipes", recipe)
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        rule = {"apiGroups": ["rljob.dev"], "resources": ["rljobs"], "verbs": ["get", "list"]}
        await client.ask("POST", f"{rbac}/clusterroles", {"metadata": {"name": READER}, "rules": [rule]})
        binding = {
            "metadata": {"name": READER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": READER}],
        }
        await client.ask("POST", f"{rbac}/clusterrolebindings", binding)


def job_manifest(name: str, change: Mapping[str, object] | None = None) -> Json:
    """Return a job."""
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": API_VERSION, "kind": "RLJob", "metadata": metadata, "spec": write_texts(small_spec(change))}


def _admin(server: Plane) -> Json:
    return {"server": server.url, "authority": server.state.pki / "ca.crt", "user": _user(server, pki.ADMIN.name)}


def _user(server: Plane, name: str) -> Json:
    keys = server.state.pki
    pki.ensure_certificate(keys, Certificate(name, f"/CN={name}"))
    return {"client-certificate-data": _inline(keys / f"{name}.crt"), "client-key-data": _inline(keys / f"{name}.key")}


def _write(made: Sites, site: Site, how: Json) -> None:
    """Write a kubeconfig with the server, its authority and the user."""
    cluster = {"server": how["server"], "certificate-authority-data": _inline(how["authority"])}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "site", "cluster": cluster}],
        "users": [{"name": "caller", "user": how["user"]}],
        "contexts": [{"name": "site", "context": {"cluster": "site", "user": "caller"}}],
        "current-context": "site",
    }
    made.kubeconfig(site).write_text(json.dumps(content))


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def expired_token(key: Path) -> str:
    """Return a ServiceAccount's token, signed by the server's key, that ended an hour ago."""
    now = int(time.time())
    account = {"namespace": NAMESPACE, "serviceaccount": {"name": "default", "uid": "0"}}
    claims = {
        "iss": "https://kubernetes.default.svc",
        "aud": ["https://kubernetes.default.svc"],
        "sub": f"system:serviceaccount:{NAMESPACE}:default",
        "kubernetes.io": account,
        "iat": now - 7200,
        "nbf": now - 7200,
        "exp": now - 3600,
    }
    signed = ".".join(_url_text(json.dumps(part).encode()) for part in ({"alg": "ES256", "typ": "JWT"}, claims))
    words = ["openssl", "dgst", "-sha256", "-sign", str(key)]
    signature = subprocess.run(words, input=signed.encode(), capture_output=True, check=True).stdout
    return f"{signed}.{_url_text(_raw(signature))}"


def _raw(signature: bytes) -> bytes:
    """Return the two numbers of a signature, which openssl writes as DER: 30 len 02 len r 02 len s."""
    first = signature[4 : 4 + signature[3]]
    rest = signature[4 + signature[3] :]
    second = rest[2 : 2 + rest[1]]
    return b"".join(part.lstrip(b"\0").rjust(SIGNATURE_PART, b"\0") for part in (first, second))


def _url_text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def kubectl_folder() -> Path:
    """Return the folder of the pinned kubectl."""
    programs.build(["kube"])
    return programs.entry("kube")
