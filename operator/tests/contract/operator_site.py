"""The chart's policies on the operator's own account, and its real permissions, under the name of one test module.

The release has a namespace of its own, in which its ServiceAccount is; requests are sent as that account. Policies on
other users are bound to the namespaces of this run, so that modules do not disturb each other.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from builders import Json, small_spec
from contract.policy_site import NAMESPACE_LABEL, TAKES_EFFECT_SECONDS, Site, binding, install_crds, named, rljob, role
from contract.policy_site import rule as rbac_rule

from rljob.api.v1alpha1 import API_VERSION
from rljob.render.names import JobIdentity
from tests.chart import helm

JOBS, RELEASE = "jobs", "release"
"""Namespaces: of jobs, and of the operator."""
ON_THE_OPERATOR = ("children", "account")
ON_OTHERS = ("own",)
MIGHTY = "mighty"
"""A user with every permission in the namespaces of jobs, but none on the operator's ServiceAccount."""
INSTALLED = ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount")


@dataclass(frozen=True)
class OperatorSite(Site):
    """A cluster with the release."""

    @property
    def release(self) -> str:
        return self.namespace(RELEASE)

    @property
    def operator(self) -> str:
        """The operator's user."""
        return f"system:serviceaccount:{self.release}:{self.id}"

    def raw(self, verb: str, path: str, body: Json | None = None, user: str | None = None) -> str:
        """Send a request that changes nothing, with kubectl's `--raw`; return the rejection."""
        flags = ["--raw", f"{path}?dryRun=All"] + (["-f", "-"] if body is not None else [])
        return self.ask(verb, *flags, user=user or self.operator, body=body).stderr

    def rejected(self, verb: str, *words: str, user: str | None = None, body: Json | None = None) -> str:
        """Run a command of kubectl that changes nothing; return the rejection."""
        return self.ask(verb, "--dry-run=server", *words, user=user or self.operator, body=body).stderr


@contextlib.contextmanager
def operator_site() -> Iterator[OperatorSite]:
    """Install the release's permissions and policies."""
    site = OperatorSite(f"op{uuid.uuid4().hex[:6]}")
    install_crds(site)
    items = list(_objects(site))
    try:
        for name in (JOBS, RELEASE):
            metadata = {"name": site.namespace(name), "labels": {NAMESPACE_LABEL: site.id}}
            site.do("create", "-f", "-", body={"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        site.do("apply", "--server-side", "-f", "-", body={"apiVersion": "v1", "kind": "List", "items": items})
        site.do("create", "-f", "-", body={"apiVersion": "v1", "kind": "List", "items": [*_users(site)]})
        _await_policies(site)
        yield site
    finally:
        kinds = "validatingadmissionpolicybindings,validatingadmissionpolicies,clusterrolebindings,clusterroles"
        site.do("delete", kinds, "-l", f"{NAMESPACE_LABEL}={site.id}")
        site.do("delete", "namespaces", "-l", f"{NAMESPACE_LABEL}={site.id}", "--wait=false")


def rendered(site: OperatorSite, *words: str) -> list[Json]:
    """Return the chart's objects for this release."""
    settings = [f"fullnameOverride={site.id}", "crds.enabled=false", "rbac.aggregateRoles=false"]
    return helm.render("--namespace", site.release, *(w for s in settings for w in ("--set", s)), *words)


def _objects(site: OperatorSite) -> Iterator[Json]:
    for item in rendered(site):
        item["metadata"].setdefault("labels", {})[NAMESPACE_LABEL] = site.id
        policy = item["metadata"]["name"].removeprefix(f"{site.id}-")
        if item["kind"] in INSTALLED or policy in ON_THE_OPERATOR:
            yield item
        elif policy in ON_OTHERS:
            if item["kind"] == "ValidatingAdmissionPolicyBinding":
                selector = {"matchLabels": {NAMESPACE_LABEL: site.id}}
                item["spec"]["matchResources"] = {"namespaceSelector": selector}
            yield item


def _users(site: OperatorSite) -> Iterator[Json]:
    """Return the roles of the users, and their bindings."""
    name = f"{site.id}-{MIGHTY}"
    groups = ("", "apps", "batch", "ray.io", "scheduling.volcano.sh", "rljob.dev")
    yield role(site, name, [rbac_rule(group, "*", "*") for group in groups])
    yield binding(site, MIGHTY, name, JOBS)
    # The policy `own` of an installation with default names judges these namespaces too. It accepts what these users
    # write, so that the policies of this site have the word; the site's ServiceAccount has another name.
    installed = f"{site.id}-installed"
    yield role(site, installed, [rbac_rule("", "serviceaccounts", "impersonate", helm.RELEASE)])
    for user in (MIGHTY, site.operator):
        yield binding(site, user, installed)


def _await_policies(site: OperatorSite) -> None:
    """Wait until every policy has rejected something, because the API server loads new policies asynchronously."""
    forged = {"ownerReferences": [owner("job", "0a1b2c3d-0000-4000-8000-000000000001")]}
    recipe: Json = {"apiVersion": API_VERSION, "kind": "ClusterRLRecipe", "spec": {"template": {}}}
    tries: dict[str, tuple[str, Json]] = {
        "children": (site.operator, config_map({})),
        "account": (site.operator, recipe),
        "own": (MIGHTY, config_map(forged)),
    }
    deadline = time.monotonic() + TAKES_EFFECT_SECONDS
    while tries:
        for name, (user, manifest) in list(tries.items()):
            if f"'{site.id}-{name}'" in site.refused(JOBS, user, {"": manifest}).get("", ""):
                del tries[name]
        assert time.monotonic() < deadline, f"these policies rejected nothing: {sorted(tries)}"


def owner(name: str, uid: str, **fields: object) -> Json:
    """Return a reference to an RLJob as the controller."""
    reference = {"apiVersion": API_VERSION, "kind": "RLJob", "name": name, "uid": uid, "controller": True}
    return reference | fields


def config_map(metadata: Json, **fields: object) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **fields}


def existing_job(site: OperatorSite, name: str) -> JobIdentity:
    """Create a suspended job, whose children the garbage collector keeps."""
    where = ("-n", site.namespace(JOBS))
    site.do("create", *where, "-f", "-", body=named(rljob(small_spec({"suspend": True})), name))
    uid = site.do("get", "rljob", name, *where, "-o", "jsonpath={.metadata.uid}")
    return JobIdentity(site.namespace(JOBS), name, uid)


def sent(site: OperatorSite, user: str | None, manifests: dict[str, Json]) -> dict[str, str]:
    """Create objects under their own names and namespaces without storing them; return what each rejection says."""
    words = ("create", "--dry-run=server", "--validate=false", "-f", "-")
    answers = {key: site.ask(*words, user=user, body=found).stderr for key, found in manifests.items()}
    return {key: said for key, said in answers.items() if said}
