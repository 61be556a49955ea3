"""The rendered chart: golden manifests, least privilege, a restricted pod, rejected values.

RLJOB_WRITE_GOLDEN=1 rewrites the golden files; they are reviewed as code.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from rljob.cluster.permissions import PERMISSIONS, WRITES, Where
from rljob.control.builtin_recipes import owner_label
from rljob.control.lease import STUCK_SECONDS
from rljob.render.accelerators import built_in_document
from tests.chart.helm import CHART, NAMESPACE, RELEASE, ROOT, VALUES, Manifest, helm, pick, render

GOLDEN = Path(__file__).parent / "golden"
PROFILES = ("default", "everything", "namespaced", "bare", "queues")


def values_of(profile: str) -> list[str]:
    return [] if profile == "default" else ["--values", str(VALUES / f"{profile}.yaml")]


def rules_of(manifests: list[Manifest]) -> list[dict[str, Any]]:
    return [rule for m in manifests if m["kind"] in ("Role", "ClusterRole") for rule in m["rules"]]


@pytest.mark.parametrize("profile", PROFILES)
def test_lint_is_strict_and_content(profile: str) -> None:
    answer = helm("lint", "--strict", CHART, *values_of(profile))
    assert answer.code == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("profile", PROFILES)
def test_rendered_manifests_are_those_that_were_reviewed(profile: str) -> None:
    manifests = render(*values_of(profile), "--set", "crds.enabled=false")
    for manifest in manifests:
        if manifest["kind"] == "Secret":
            manifest["data"]["key"] = "<32 random bytes>"
        if "-dashboard-" in manifest["metadata"]["name"]:
            manifest["data"] = dict.fromkeys(manifest["data"], "<the dashboard, as in test_dashboards>")
    text = yaml.safe_dump_all(manifests, sort_keys=True, width=120)
    golden = GOLDEN / f"{profile}.yaml"
    if os.environ.get("RLJOB_WRITE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("plural", ["rljobs", "rlrecipes", "clusterrlrecipes"])
def test_crds_are_rendered_as_generated_and_kept_at_uninstall(plural: str) -> None:
    rendered = pick(render(), "CustomResourceDefinition", f"{plural}.rljob.dev")
    assert rendered["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert rendered == yaml.safe_load((ROOT / f"crds/{plural}.rljob.dev.yaml").read_text())


@pytest.mark.parametrize("profile", PROFILES)
def test_a_release_fits_into_its_secret(profile: str) -> None:
    """The API server rejects Secrets of more than 1 MiB, and Helm keeps chart and manifests of a release in one."""
    answer = helm(
        *("install", RELEASE, CHART, "--namespace", NAMESPACE, "--dry-run=client", "--output", "json"),
        *values_of(profile),
    )
    assert answer.code == 0, answer.stderr
    release = json.loads(answer.stdout)
    assert {"chart", "manifest"} <= set(release)
    # As encodeRelease does in Helm 4.2.4, pkg/storage/driver/util.go.
    text = json.dumps(release, separators=(",", ":")).encode()
    assert len(base64.b64encode(gzip.compress(text, 9))) < 900_000


def test_no_rule_has_a_wildcard() -> None:
    for rule in rules_of(render()):
        assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]


@pytest.mark.parametrize(
    ("words", "verbs"), [((), ["create", "delete"]), (("--set=policies.enabled=false",), ["create"])]
)
def test_secrets_are_never_read_and_deleted_only_where_a_policy_bounds_it(
    words: tuple[str, ...], verbs: list[str]
) -> None:
    assert [rule["verbs"] for rule in rules_of(render(*words)) if "secrets" in rule["resources"]] == [verbs]


def test_leases_are_reached_in_the_own_namespace_only() -> None:
    manifests = render()
    holders = [m for m in manifests if m["kind"] in ("Role", "ClusterRole") and "leases" in str(m["rules"])]
    assert [(m["kind"], m["metadata"]["namespace"]) for m in holders] == [("Role", NAMESPACE)]


def test_the_role_is_what_the_operator_says_it_needs() -> None:
    def granted(role: Manifest) -> dict[tuple[str, str], set[str]]:
        found: dict[tuple[str, str], set[str]] = {}
        for rule in role["rules"]:
            (group,), (resource,) = rule["apiGroups"], rule["resources"]
            found.setdefault((group, resource), set()).update(rule["verbs"])
        return found

    def wanted(*places: Where) -> dict[tuple[str, str], set[str]]:
        return {(row.group, row.resource): set(row.verbs) for row in PERMISSIONS if row.where in places}

    manifests = render()
    assert granted(pick(manifests, "ClusterRole")) == wanted(Where.JOBS, Where.CLUSTER)
    assert granted(pick(manifests, "Role", f"{RELEASE}-lease")) == wanted(Where.HOME)


def test_every_write_is_restricted_by_a_policy() -> None:
    """A role grants a kind of objects; the policy that the table names judges which ones."""
    policies = {m["metadata"]["name"]: m for m in render() if m["kind"] == "ValidatingAdmissionPolicy"}
    operations = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}
    for row in PERMISSIONS:
        writes = WRITES & set(row.verbs)
        assert bool(writes) == bool(row.writes_only), row
        if not writes or not row.policy:
            # Subresources: the API server itself restricts what they write.
            assert not writes or "/" in row.resource, row
            continue
        policy = policies[f"{RELEASE}-{row.policy}"]
        matched = {
            operation
            for rule in policy["spec"]["matchConstraints"]["resourceRules"]
            if row.group in rule["apiGroups"] and row.resource in rule["resources"]
            for operation in rule["operations"]
        }
        assert {operations[verb] for verb in writes} <= matched, row


def test_the_policies_know_the_recipes_of_their_installation() -> None:
    for namespace in (NAMESPACE, "n" * 60):
        manifests = render("--namespace", namespace)
        (policy,) = [
            m
            for m in manifests
            if m["kind"] == "ValidatingAdmissionPolicy" and m["metadata"]["name"] == f"{RELEASE}-account"
        ]
        assert f"'{owner_label(namespace, RELEASE)}'" in str(policy["spec"]["validations"])


def test_with_a_watched_namespace_nothing_is_cluster_wide() -> None:
    manifests = render(*values_of("namespaced"))
    kinds = {"ConfigMap", "Deployment", "Role", "RoleBinding", "Secret", "ServiceAccount"}
    assert {m["kind"] for m in manifests} == kinds
    assert "--namespace=team-a" in pick(manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]


def test_with_a_watched_namespace_only_cluster_recipes_are_read_outside_of_it() -> None:
    manifests = render("--set", "operator.watchNamespace=team-a", "--set", "rbac.aggregateRoles=false")
    (role,) = [m for m in manifests if m["kind"] == "ClusterRole"]
    assert role["rules"] == [
        {"apiGroups": ["rljob.dev"], "resources": ["clusterrlrecipes"], "verbs": ["get", "list", "watch"]}
    ]


def test_with_a_watched_namespace_nodes_and_their_config_maps_are_read_on_request_only_by_name() -> None:
    words = [*values_of("namespaced"), "--set", "rbac.nodeFaults=true"]
    manifests = render(*words)
    (role,) = [m for m in manifests if m["kind"] == "ClusterRole"]
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    for namespace in ("kube-system", "mindx-dl", "cluster-system"):
        (role,) = [m for m in manifests if m["kind"] == "Role" and m["metadata"]["namespace"] == namespace]
        assert role["rules"] == [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
    reports = ("deviceInfo", "nodeInfo", "publicFaults")
    manifests = render(*words, "--set", ",".join(f"faults.{report}Namespace=" for report in reports))
    assert not [m for m in manifests if m["metadata"].get("namespace") in ("kube-system", "mindx-dl", "cluster-system")]
    arguments = pick(manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert {f"--{report}-namespace=" for report in ("device-info", "node-info", "public-faults")} < set(arguments)


def test_only_built_in_recipes_need_the_right_to_change_recipes() -> None:
    def verbs(*values: str) -> list[str]:
        rules = pick(render(*values), "ClusterRole", "rljob-operator")["rules"]
        return next(list(rule["verbs"]) for rule in rules if "clusterrlrecipes" in rule["resources"])

    assert verbs("--set", "recipes.enabled=false") == ["get", "list", "watch"]
    assert {"create", "patch", "delete"} < set(verbs())


def test_every_recipe_of_the_chart_reaches_the_operator() -> None:
    manifests = render()
    files = {path.name: path.read_text() for path in (CHART / "recipes").glob("*.yaml")}
    assert pick(manifests, "ConfigMap", "rljob-operator-recipes").get("data", {}) == files
    pod = pick(manifests, "Deployment")["spec"]["template"]["spec"]
    assert "--recipes-folder=/etc/rljob/recipes" in pod["containers"][0]["args"]
    (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "recipes"]
    assert mount == {"name": "recipes", "mountPath": "/etc/rljob/recipes", "readOnly": True}
    without = render("--set", "recipes.enabled=false")
    assert [m["metadata"]["name"] for m in without if m["kind"] == "ConfigMap"] == ["rljob-operator-accelerators"]


def test_the_operator_gets_the_releases_classes_and_the_values_over_them() -> None:
    own = ("--set", "accelerators.atlas-a2.resource=huawei.com/Ascend910B3")
    for words, files in (((), ["10-release.yaml"]), (own, ["10-release.yaml", "20-values.yaml"])):
        manifests = render(*words)
        data = pick(manifests, "ConfigMap", "rljob-operator-accelerators")["data"]
        assert sorted(data) == files
        assert yaml.safe_load(data["10-release.yaml"]) == built_in_document()
        pod = pick(manifests, "Deployment")["spec"]["template"]["spec"]
        assert "--accelerators-folder=/etc/rljob/accelerators" in pod["containers"][0]["args"]
    assert yaml.safe_load(data["20-values.yaml"]) == {"atlas-a2": {"resource": "huawei.com/Ascend910B3"}}
    stamps = [
        pick(render(*words), "Deployment")["spec"]["template"]["metadata"]["annotations"]["rljob.dev/accelerators"]
        for words in ((), own)
    ]
    assert stamps[0] != stamps[1], "a changed table must restart the operator"


def test_a_row_that_no_table_could_hold_is_refused_by_helm() -> None:
    answer = helm("template", "x", CHART, "--set", "accelerators.lab.devices=8")
    assert answer.code != 0
    assert "devices" in answer.stderr


def test_the_ports_of_the_nodes_are_written_by_one_name_in_the_own_namespace_only() -> None:
    rules = [rule for m in render() if m["kind"] == "Role" for rule in m["rules"] if "configmaps" in rule["resources"]]
    assert [(rule.get("resourceNames"), rule["verbs"]) for rule in rules] == [
        (None, ["create"]),
        (["rljob-operator-ports"], ["get", "update"]),
    ]


def test_the_pod_is_restricted() -> None:
    pod = pick(render(), "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_the_token_key_has_32_random_bytes() -> None:
    keys = {pick(render(), "Secret", "rljob-operator-token-key")["data"]["key"] for _ in range(2)}
    assert len(keys) == 2
    assert all(len(base64.b64decode(key)) == 32 for key in keys)


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("operator.workers=0", "minimum"),
        ("operator.workers=many", "got string, want integer"),
        ("operator.logLevel=LOUD", "value must be one of"),
        ("operator.watchNamespace=Team_A", "does not match pattern"),
        ("image.pullPolicy=Sometimes", "value must be one of"),
        ("image.digest=abc", "does not match pattern"),
        ("replicas=3", "additional properties 'replicas' not allowed"),
        ("metrics.serviceMonitor.intervall=3s", "additional properties 'intervall' not allowed"),
        ("metrics.serviceMonitor.enabled=true,metrics.service.enabled=false", "needs metrics.service.enabled"),
        ("serviceAccount.create=false", "serviceAccount.name is needed"),
    ],
)
def test_a_wrong_value_is_refused_by_name(setting: str, complaint: str) -> None:
    answer = helm("template", "x", CHART, "--set", setting)
    assert answer.code != 0
    assert complaint in answer.stderr


def test_every_value_of_the_schema_has_its_default_and_place_in_the_values() -> None:
    def compare(schema: dict[str, Any], values: dict[str, Any], path: str) -> list[str]:
        missing = [f"{path}{key}" for key in schema["properties"] if key not in values]
        for key, child in schema["properties"].items():
            if "properties" in child and key in values:
                missing += compare(child, values[key], f"{path}{key}.")
        return missing

    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert compare(schema, values, "") == ["global", "resources.claims"]


def test_policies_hold_where_the_operator_works() -> None:
    def bindings(*words: str) -> list[Manifest]:
        return [m for m in render(*words) if m["kind"] == "ValidatingAdmissionPolicyBinding"]

    everywhere = {f"{RELEASE}-{policy}" for policy in ("children", "account")}
    assert everywhere < {binding["metadata"]["name"] for binding in bindings()}
    for binding in bindings():
        warns = binding["metadata"]["name"] == f"{RELEASE}-ended"
        assert binding["spec"]["validationActions"] == ["Warn" if warns else "Deny"]
        assert "matchResources" not in binding["spec"]
    # What the operator itself may write is judged in every namespace.
    for binding in bindings("--set", "operator.watchNamespace=a"):
        if binding["metadata"]["name"] in {f"{NAMESPACE}-{name}" for name in everywhere}:
            assert "matchResources" not in binding["spec"]
        else:
            selector = binding["spec"]["matchResources"]["namespaceSelector"]
            assert selector == {"matchLabels": {"kubernetes.io/metadata.name": "a"}}
    assert bindings("--set", "policies.enabled=false") == []


def test_a_site_whose_authors_only_write_jobs_judges_no_pods_of_others() -> None:
    only = render("--set", "policies.authors=RLJobsOnly")
    names = {m["metadata"]["name"] for m in only if m["kind"] == "ValidatingAdmissionPolicy"}
    kept = ("authors", "limits", "pods", "own", "children", "account", "ended")
    assert names == {f"rljob-operator-{name}" for name in kept}
    rules = pick(only, "ClusterRole", "rljob-operator-author")["rules"]
    writes = [rule for rule in rules if set(rule["verbs"]) - {"get", "list", "watch"}]
    assert {group for rule in writes for group in rule["apiGroups"]} == {"rljob.dev"}


def test_pods_of_the_cluster_itself_are_no_tenants() -> None:
    def exempt(*words: str, name: str = "rljob-operator-tenants") -> str:
        policy = pick(render(*words), "ValidatingAdmissionPolicy", name)
        return str(policy["spec"]["matchConditions"][0]["expression"])

    ours = '"kube-node-lease","kube-public","kube-system","kuberay-system","rljob-system"'
    assert exempt() == f"!(request.namespace in [{ours}])"
    own = ("--set", "policies.exemptNamespaces={monitoring},kuberay.serviceAccount.namespace=ray")
    assert exempt(*own) == '!(request.namespace in ["monitoring","ray","rljob-system"])'
    # Jobs may run beside their operator.
    beside = ("--set", "operator.watchNamespace=rljob-system")
    assert "rljob-system" not in exempt(*beside, name="rljob-system-rljob-operator-tenants")


def test_limits_that_are_not_set_depend_on_who_creates_pods() -> None:
    def variables(*words: str) -> dict[str, str]:
        spec = pick(render(*words), "ValidatingAdmissionPolicy", "rljob-operator-pods")["spec"]
        return {found["name"]: found["expression"] for found in spec["variables"]}

    def limited(*words: str) -> bool:
        return variables(*words)["limited"].startswith("true ")

    only = ("--set", "policies.authors=RLJobsOnly")
    assert "orValue('true')" in variables()["privileged"]
    assert "orValue('false')" in variables(*only)["privileged"]
    assert "orValue('')" in variables(*only)["hostPathsAllowed"]
    assert "orValue('true')" in variables(*only, "--set", "policies.limits.privileged=true")["privileged"]
    assert not limited()
    assert limited(*only)
    for limit in (
        "maxCards=8",
        "classes={cpu}",
        "hostNetwork=false",
        "hostPaths={/srv}",
        "volumes={csi}",
        "tolerations={a}",
    ):
        assert limited("--set-string" if limit == "maxCards=8" else "--set", f"policies.limits.{limit}"), limit


def test_policies_know_the_classes_of_the_values() -> None:
    own = (
        *("accelerators.lab.diesPerCard=4", "accelerators.atlas-a3.resource=huawei.com/Ascend910B3"),
        *("accelerators.lab.hostPaths[0].path=/opt/lab", "accelerators.lab.hostPaths[0].type=Directory"),
        "accelerators.lab.resource=example.com/npu",
    )
    rendered = render("--set", ",".join(own))
    policy, tenants = (
        pick(rendered, "ValidatingAdmissionPolicy", f"rljob-operator-{name}") for name in ("pods", "tenants")
    )
    variables = {found["name"]: found["expression"] for found in policy["spec"]["variables"]}
    assert "'lab': [\"/opt/lab Directory\"]" in variables["driverPaths"]
    assert '"example.com/npu"' in variables["npus"]
    of_tenants = {found["name"]: found["expression"] for found in tenants["spec"]["variables"]}
    assert '"/opt/lab Directory"' in of_tenants["driverPaths"]
    assert "'lab': 4" in variables["diesOfACard"]
    assert "'atlas-a3': 2" in variables["diesOfACard"]
    assert "'atlas-a3': 'huawei.com/Ascend910B3'" in variables["resource"]


def test_a_process_stops_leading_when_its_liveness_probe_would_end_it() -> None:
    (container,) = pick(render(), "Deployment")["spec"]["template"]["spec"]["containers"]
    probe = container["livenessProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == STUCK_SECONDS
