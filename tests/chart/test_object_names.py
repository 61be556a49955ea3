"""Names of the rendered objects: valid for every legal name of a release, and not shared between installations."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.chart.helm import CHART, VALUES, Manifest, helm, pick, render

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
"""An RFC 1035 label, as names of Services are."""
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
RBAC = {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}
LONG_RELEASE = "a" * 52 + "b"
"""53 characters, which is Helm's limit."""
WHOLE = (
    "--values",
    str(VALUES / "everything.yaml"),
    "--set",
    "crds.enabled=false,prePull.enabled=true,prePull.images={a:b}",
)


def labels_of(node: object) -> Iterator[str]:
    """Yield the values of labels and of selectors by labels."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("labels", "matchLabels") and isinstance(value, dict):
                yield from map(str, value.values())
            yield from labels_of(value)
    elif isinstance(node, list):
        for value in node:
            yield from labels_of(value)


def is_valid(manifest: Manifest) -> bool:
    name, kind = manifest["metadata"]["name"], manifest["kind"]
    if kind == "Service":
        return len(name) <= 63 and bool(LABEL.fullmatch(name))
    # Names of roles are path segments, such as system:aggregate-to-view.
    return len(name) <= 253 and (kind in RBAC or bool(SUBDOMAIN.fullmatch(name)))


@pytest.mark.parametrize(
    ("release", "words"),
    [
        (LONG_RELEASE, ()),
        ("my.rljob-operator.v2", ()),
        ("x", ("--set", f"nameOverride={'n' * 63}")),
        ("x", ("--set", f"fullnameOverride={'f' * 63}")),
        ("x", ("--set", f"nameOverride={'n' * 54}-{'n' * 8}")),
    ],
    ids=["long release", "dots", "long name", "long full name", "cut at a hyphen"],
)
def test_every_legal_name_gives_valid_objects(release: str, words: tuple[str, ...]) -> None:
    manifests = render(*WHOLE, *words, release=release)
    assert {"Service", "DaemonSet"} <= {manifest["kind"] for manifest in manifests}
    assert [m["metadata"]["name"] for m in manifests if not is_valid(m)] == []
    assert [text for text in labels_of(manifests) if len(text) > 63 or not LABEL_VALUE.fullmatch(text)] == []


@pytest.mark.parametrize(
    "setting",
    [
        "nameOverride=my.rljob",
        "fullnameOverride=my.rljob",
        f"fullnameOverride={'f' * 64}",
        "imagePullSecrets[0]=",
        "networkPolicy.jobs.namespaces[0]=",
    ],
)
def test_a_name_that_no_object_can_have_is_refused(setting: str) -> None:
    answer = helm("template", "x", CHART, "--set", setting)
    assert answer.code != 0
    assert setting.partition("=")[0].partition("[")[0].rpartition(".")[2] in answer.stderr


def test_installations_for_one_namespace_each_share_no_object() -> None:
    def names(namespace: str) -> set[tuple[str, str, str]]:
        rendered = render("--set", f"operator.watchNamespace={namespace},crds.enabled=false", namespace=namespace)
        return {(m["kind"], m["metadata"].get("namespace", ""), m["metadata"]["name"]) for m in rendered}

    first, second = names("team-a"), names("team-b")
    assert len(first) == len(second) > 10
    assert first & second == set()


@pytest.mark.parametrize(
    ("words", "role"),
    [
        ("rbac.aggregateRoles=false", "ask for the role rljob-operator-author'"),
        ("rbac.create=false,serviceAccount.create=false,serviceAccount.name=x", "ask for a role with these perm"),
    ],
)
def test_the_refusal_of_an_author_names_the_role_that_exists(words: str, role: str) -> None:
    manifests = render("--set", f"policies.authors=MayCreatePods,{words}")
    policy = pick(manifests, "ValidatingAdmissionPolicy", "rljob-operator-authors")
    messages = [" ".join(each["messageExpression"].split()) for each in policy["spec"]["validations"]]
    assert sum(role in message for message in messages) == 2
    roles = {m["metadata"]["name"] for m in manifests if m["kind"] == "ClusterRole"}
    assert ("rljob-operator-author" in roles) == ("rbac.create" not in words)
