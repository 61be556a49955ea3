"""The chart's policies on a real API server, under another name and for the namespaces of one test module only.

Users are impersonated. The operator of the policies is the ServiceAccount of an installation with default names, so
that both can exist.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from builders import Json, small_spec, typed
from contract.attacks import BLESSED, LIMITED, LIMITS, OPEN, OPENED, OWN_SECRETS, STANDARD, User
from contract.conftest import CRDS, KUBECONFIG
from contract.pod_security import pod_spec

from rljob.api.texts import write_texts
from rljob.api.v1alpha1 import API_VERSION
from rljob.render.labels import JOB
from rljob.render.metadata import child_metadata
from rljob.render.names import JobIdentity
from rljob.render.raycluster import build_raycluster
from tests.chart import helm
from tests.cluster import programs

KUBECTL = programs.entry("kube") / "kubectl"
POLICIES = "policies"
"""Beginning of the names of the policies, which end with the id of the run."""
OPERATOR = f"system:serviceaccount:{helm.NAMESPACE}:{helm.RELEASE}"
TAKES_EFFECT_SECONDS = 60
NAMESPACE_LABEL = "rljob.dev/policies-test"
RBAC = "rbac.authorization.k8s.io"
LIMIT = "limits.rljob.dev/"
BUILT_IN = {"rljob.dev/built-in": f"{helm.NAMESPACE}.{POLICIES}"}
"""The label of the recipes of every such installation, because recipes for all have no namespace."""


NAMESPACES: dict[str, dict[str, str]] = {
    OPEN: {},
    LIMITED: LIMITS,
    BLESSED: {"recipes": "blessed, other"},
    OPENED: {"host-network": "true", "host-paths": "/srv", "privileged": "true", "unauthenticated-ray": "true"},
    STANDARD: {},
}
"""Name -> limits."""


def rule(group: str, resources: str, verbs: str, *names: str) -> Json:
    """Return an RBAC rule."""
    named = {"resourceNames": list(names)} if names else {}
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split(), **named}


BARE = [rule("rljob.dev", "rljobs rlrecipes", "get create patch update")]
PODS = [*BARE, rule("", "pods", "create")]
AUTHOR = [
    *PODS,
    rule("ray.io", "rayclusters", "get create update patch"),
    rule("", "pods pods/ephemeralcontainers", "get update patch"),
    rule("", "secrets", "get", *OWN_SECRETS),
    rule("", "serviceaccounts", "use", "trainer"),
    # The permissions with which a forgery would succeed without the policies.
    rule("", "configmaps", "get create update patch"),
    rule("", "secrets", "create"),
    rule("batch", "jobs", "create"),
    rule("rljob.dev", "rljobs/status", "get patch"),
]
KUBERAY = "system:serviceaccount:kuberay-system:kuberay-operator"
THE_KUBERAY = [rule("", "pods", "create"), rule("ray.io", "rayclusters", "get create update patch")]
SCHEDULER, PLUGIN = "a-scheduler", "a-device-plugin"
MARKS_PODS = rule("", "pods", "get patch")
EDITOR = "editor"
"""Has Kubernetes' default role for editing workloads, with the chart's additions."""
BOUND = "bound"
"""Has the chart's role for authors, and nothing else."""
USERS: dict[str, list[Json]] = {
    User.BARE: BARE,
    User.PODS: PODS,
    User.AUTHOR: AUTHOR,
    KUBERAY: THE_KUBERAY,
    SCHEDULER: [MARKS_PODS, rule("", "pods/binding", "create")],
    PLUGIN: [MARKS_PODS],
}


@dataclass(frozen=True)
class Site:
    """The cluster with the policies; `id` separates the objects of this run."""

    id: str
    values: tuple[str, ...] = ()
    """Settings of the chart, as for --set."""

    def namespace(self, name: str) -> str:
        return f"{self.id}-{name}"

    @property
    def release(self) -> str:
        return f"{POLICIES}-{self.id}"

    def ask(self, *words: str, user: str | None = None, body: object = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl, as a user or as the admin."""
        command = [str(KUBECTL), "--kubeconfig", KUBECONFIG, *(["--as", user] if user else []), *words]
        text = "" if body is None else json.dumps(body)
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)

    def do(self, *words: str, user: str | None = None, body: object = None) -> str:
        """Run kubectl; fail the test if it is rejected."""
        done = self.ask(*words, user=user, body=body)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def refused(self, namespace: str, user: str | None, manifests: Mapping[str, Json]) -> dict[str, str]:
        """Create all objects without storing them; return the message for each that is rejected."""
        words = ("create", "--dry-run=server", "--validate=false", "-o", "name", "-n", self.namespace(namespace))
        items = {f"case-{number}": (key, manifest) for number, (key, manifest) in enumerate(manifests.items())}
        body = {"apiVersion": "v1", "kind": "List", "items": [named(found, name) for name, (_, found) in items.items()]}
        done = self.ask(*words, "-f", "-", user=user, body=body)
        taken = {line.rpartition("/")[2] for line in done.stdout.split()}
        said = {name: [line for line in done.stderr.splitlines() if f'"{name}"' in line] for name in items}
        return {key: "\n".join(said[name]) for name, (key, _) in items.items() if name not in taken}


def named(manifest: Json, name: str) -> Json:
    return {**manifest, "metadata": {**manifest.get("metadata", {}), "name": name}}


def rljob(spec: Json) -> Json:
    return {"apiVersion": API_VERSION, "kind": "RLJob", "spec": write_texts(spec)}


def rlrecipe(spec: Json) -> Json:
    template = write_texts(spec["template"])
    return {"apiVersion": API_VERSION, "kind": "RLRecipe", "spec": {**spec, "template": template}}


@contextlib.contextmanager
def policy_site(*values: str) -> Iterator[Site]:
    """Install the policies and the users' roles in namespaces of their own."""
    found = Site(f"p{uuid.uuid4().hex[:6]}", values)
    install_crds(found)
    try:
        found.do("create", "-f", "-", body={"apiVersion": "v1", "kind": "List", "items": list(namespaces(found))})
        found.do("create", "-f", "-", body={"apiVersion": "v1", "kind": "List", "items": list(rights(found))})
        found.do("apply", "--server-side", "--force-conflicts", "-f", "-", body=policies(found))
        await_policies(found)
        yield found
    finally:
        kinds = "validatingadmissionpolicybindings,validatingadmissionpolicies,clusterrolebindings,clusterroles"
        found.do("delete", kinds, "-l", f"{NAMESPACE_LABEL}={found.id}")
        found.do("delete", "namespaces", "-l", f"{NAMESPACE_LABEL}={found.id}", "--wait=false")


def namespaces(site: Site) -> Iterator[Json]:
    """Return the namespaces of this run with their limits."""
    for name, found in NAMESPACES.items():
        standard = {"pod-security.kubernetes.io/enforce": "baseline"} if name == STANDARD else {}
        metadata = {
            "name": site.namespace(name),
            "labels": {NAMESPACE_LABEL: site.id} | standard,
            "annotations": {f"{LIMIT}{key}": value for key, value in found.items()},
        }
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def install_crds(site: Site) -> None:
    site.do("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
    rays = programs.entry("kuberay") / "config/crd/bases/ray.io_rayclusters.yaml"
    if site.ask("get", "crd", "rayclusters.ray.io").returncode:
        site.do("apply", "--server-side", "-f", str(rays))
    site.do("wait", "--for=condition=Established", "--timeout=60s", "-f", str(CRDS), "-f", str(rays))


def rights(site: Site) -> Iterator[Json]:
    """Return the roles of the users, and their bindings in the namespaces of this run."""
    roles = {m["metadata"]["name"].rpartition("-")[2]: m["rules"] for m in chart(site, "ClusterRole") if "rules" in m}
    users = {**USERS, EDITOR: roles["edit"], BOUND: roles["author"]}
    for number, (user, rules) in enumerate(users.items()):
        name = f"{site.id}-{number}"
        yield role(site, name, rules)
        yield from (binding(site, user, name, namespace) for namespace in NAMESPACES)
    # The rules of the role `edit`; the controller that aggregates it may not run.
    yield binding(site, EDITOR, "system:aggregate-to-edit", OPEN)
    nodes = f"{site.id}-nodes"
    yield role(site, nodes, [rule("", "nodes/status", "patch")])
    yield binding(site, PLUGIN, nodes)
    recipes = f"{site.id}-recipes"
    yield role(site, recipes, [rule("rljob.dev", "clusterrlrecipes", "create")])
    yield binding(site, User.AUTHOR, recipes)
    # The operator has what the chart gives it, and more: the policies hold for wider roles, too.
    (granted,) = [found["rules"] for found in chart(site, "ClusterRole") if is_role(found, site.release)]
    more = [
        rule("coordination.k8s.io", "leases", "create get update delete"),
        rule("", "configmaps secrets", "patch delete"),
        rule("rljob.dev", "rljobs", "delete"),
        rule("rljob.dev", "rljobs/status", "get"),
    ]
    yield role(site, f"{site.id}-operator", [*granted, *more])
    yield binding(site, OPERATOR, f"{site.id}-operator")


def is_role(found: Json, name: str) -> bool:
    return bool(found["kind"] == "ClusterRole" and found["metadata"]["name"] == name)


def role(site: Site, name: str, rules: list[Json]) -> Json:
    metadata = {"name": name, "labels": {NAMESPACE_LABEL: site.id}}
    return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}


def binding(site: Site, user: str, name: str, namespace: str | None = None) -> Json:
    """Bind a role to a user, in a namespace or cluster-wide."""
    metadata = {"generateName": f"{site.id}-", "labels": {NAMESPACE_LABEL: site.id}}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata | ({"namespace": site.namespace(namespace)} if namespace else {}),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }


def chart(site: Site, kind: str) -> list[Json]:
    """Return the chart's objects whose kind has this prefix."""
    account = ("serviceAccount.create=false", f"serviceAccount.name={helm.RELEASE}")
    settings = (f"fullnameOverride={site.release}", "crds.enabled=false", *account, *site.values)
    return [found for found in json.loads(_rendered(settings)) if found["kind"].startswith(kind)]


@cache
def _rendered(settings: tuple[str, ...]) -> str:
    """Return all objects of the chart as JSON."""
    return json.dumps(helm.render(*(word for setting in settings for word in ("--set", setting))))


def policies(site: Site) -> Json:
    """Return the chart's policies, bound to the namespaces of this run; those on the operator are in operator_site."""
    found = chart(site, "ValidatingAdmissionPolicy")
    items = [item for item in found if not item["metadata"]["name"].endswith(("-children", "-account"))]
    for item in items:
        item["metadata"]["labels"] = {NAMESPACE_LABEL: site.id}
        if item["kind"] == "ValidatingAdmissionPolicyBinding":
            selector = {"matchLabels": {NAMESPACE_LABEL: site.id}}
            item["spec"]["matchResources"] = {"namespaceSelector": selector}
    return {"apiVersion": "v1", "kind": "List", "items": items}


def refuses(policy: str, said: str) -> bool:
    """Return whether that policy rejected.

    The API server names the first one that does, possibly one of an installation.
    """
    return re.search(rf"'({POLICIES}-p[0-9a-f]+|{helm.RELEASE})-[a-z]*{policy}", said) is not None


def await_policies(site: Site) -> None:
    """Wait until every policy has rejected something, because the API server loads new policies asynchronously."""
    forged: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": controlled(site)}
    marked = {"metadata": {"labels": {JOB: "a"}}, "spec": {**pod_spec(), "restartPolicy": "Never"}}
    tries: dict[str, tuple[str, str, Json]] = {
        "authors": (OPEN, User.BARE, rljob(small_spec({"runtime": {"serviceAccountName": "cluster-backup"}}))),
        "limits": (LIMITED, User.AUTHOR, rljob(small_spec({"network": {"mode": "Host"}}))),
        "pods": (LIMITED, OPERATOR, cluster(site, {"network": {"mode": "Host"}})),
        "own": (OPEN, User.AUTHOR, forged),
        "tenants": (LIMITED, User.AUTHOR, {"apiVersion": "v1", "kind": "Pod", "spec": {**pod_spec(), "hostPID": True}}),
        "templates": (OPEN, User.AUTHOR, {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": marked}}),
    }
    if not any(item["metadata"]["name"].endswith("-tenants") for item in chart(site, "ValidatingAdmissionPolicy")):
        del tries["tenants"], tries["templates"]
    deadline = time.monotonic() + TAKES_EFFECT_SECONDS
    while tries:
        for name, (namespace, user, manifest) in list(tries.items()):
            if refuses(f"{name}'", site.refused(namespace, user, {"": manifest}).get("", "")):
                del tries[name]
        assert time.monotonic() < deadline, f"these policies rejected nothing: {sorted(tries)}"


def identity(site: Site, namespace: str = LIMITED) -> JobIdentity:
    return JobIdentity(site.namespace(namespace), "sums", "0a1b2c3d-0000-4000-8000-000000000001")


def controlled(site: Site, namespace: str = OPEN) -> Json:
    return child_metadata(identity(site, namespace), "", "spec/1") | {"namespace": site.namespace(namespace)}


def cluster(site: Site, change: Json) -> Json:
    """Return the RayCluster that the operator would create from a merged spec."""
    return build_raycluster(identity(site), typed(small_spec(change)), 1, "digest")
