"""The judge of the audit log, on lines that an API server wrote about an operator and about others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.audit import Expected, Request, judge, lines, read

OPERATOR = "system:serviceaccount:rljob-system:rljob-operator"
EXPECTED = Expected(
    {("", "configmaps"): {"get", "create"}, ("rljob.dev", "rljobs/status"): {"patch"}},
    ("/apis",),
    (("rljob-e2e", "exceeded quota: spent"),),
)


def event(**changes: Any) -> str:  # noqa: ANN401 - JSON values
    """Return a line as kube-apiserver 1.36 writes it."""
    made: dict[str, Any] = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": "2b5f0f5e-8a4b-4e0a-9d3c-1c5c2f6f4d10",
        "stage": "ResponseComplete",
        "requestURI": "/api/v1/namespaces/team/configmaps?fieldManager=rljob-operator",
        "verb": "create",
        "user": {"username": OPERATOR, "groups": ["system:serviceaccounts", "system:authenticated"]},
        "sourceIPs": ["10.244.1.7"],
        "userAgent": "rljob",
        "objectRef": {"resource": "configmaps", "namespace": "team", "name": "sums-0a1b2-spec-1", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 201},
        "requestReceivedTimestamp": "2026-01-01T12:00:00.000000Z",
        "stageTimestamp": "2026-01-01T12:00:00.004000Z",
        "annotations": {"authorization.k8s.io/decision": "allow"},
    }
    return json.dumps(made | changes) + "\n"


def refused(code: int, message: str, **changes: Any) -> str:  # noqa: ANN401 - JSON values
    status = {"metadata": {}, "status": "Failure", "message": message, "reason": "Forbidden", "code": code}
    return event(responseStatus=status, **changes)


def complaints(*text: str) -> list[str]:
    return judge(read(text, OPERATOR), EXPECTED)


BY_POLICY = (
    "configmaps \"aws-auth\" is forbidden: ValidatingAdmissionPolicy 'rljob-operator-children' with binding "
    "'rljob-operator-children' denied request: its controller is no RLJob"
)
STATUS = {"resource": "rljobs", "subresource": "status", "apiGroup": "rljob.dev", "namespace": "team", "name": "sums"}
DISCOVERY = {"requestURI": "/apis/ray.io/v1?timeout=30s", "verb": "get", "objectRef": None}


@pytest.mark.parametrize(
    "line",
    [
        event(),
        event(verb="patch", objectRef=STATUS),
        event(**DISCOVERY),
        # Answers of which none is a denial.
        refused(409, "the object has been modified"),
        refused(404, "not found"),
        refused(422, "metadata.name: Invalid value"),
        refused(403, "unable to create new content in namespace team because it is being terminated"),
        refused(
            403,
            "exceeded quota: spent, requested: 1",
            objectRef={"resource": "configmaps", "namespace": "rljob-e2e-gw1"},
        ),
    ],
)
def test_what_the_table_has_and_nobody_denied_is_fine(line: str) -> None:
    assert complaints(line) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (refused(403, BY_POLICY), "create configmaps: denied, 1 times; first: team/sums-0a1b2-spec-1: 403 configmaps"),
        (refused(422, BY_POLICY), "create configmaps: denied"),
        (refused(400, 'admission webhook "x" denied the request: no'), "create configmaps: denied"),
        (refused(403, "exceeded quota: spent, requested: 1"), "create configmaps: denied"),
        (
            refused(403, "exceeded quota: other", objectRef={"resource": "configmaps", "namespace": "rljob-e2e"}),
            "create configmaps: denied",
        ),
        (event(verb="update"), "update configmaps: not in the table"),
        (event(objectRef={"resource": "configmaps", "apiGroup": "x"}), "create configmaps.x: not in the table"),
        (event(verb="patch", objectRef=STATUS | {"subresource": None}), "patch rljobs.rljob.dev: not in the table"),
        (event(**(DISCOVERY | {"requestURI": "/metrics"})), "get /metrics: not in the table"),
        (event(**(DISCOVERY | {"requestURI": "/apiserver"})), "get /apiserver: not in the table"),
        (event(**(DISCOVERY | {"verb": "post"})), "post /apis/ray.io/v1: not in the table"),
    ],
)
def test_a_denial_and_an_unknown_verb_are_complaints(line: str, words: str) -> None:
    (found,) = complaints(line)
    assert words in found


def test_many_requests_of_a_kind_are_one_complaint() -> None:
    (found,) = complaints(*[event(verb="delete")] * 1000)
    assert "1000 times" in found


def test_only_the_requests_of_the_account_itself_count() -> None:
    others = (
        event(user={"username": "admin"}, verb="delete", requestURI=f"/x?as={OPERATOR}"),
        # A test that impersonates the account.
        event(user={"username": "admin"}, impersonatedUser={"username": OPERATOR}, verb="delete"),
        event(impersonatedUser={"username": "somebody"}, verb="delete"),
        event(stage="ResponseStarted", verb="delete"),
    )
    assert complaints(*others) == []
    assert list(read([event()[:-20]], OPERATOR)) == [], "a line that is being written"
    assert [request.name for request in read([event(), *others], OPERATOR)] == ["sums-0a1b2-spec-1"]


def test_a_full_log_is_read_before_the_newest(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    assert list(lines(log)) == []
    for name, verb in (("audit.log", "get"), ("audit-2026-01-01T12-00-00.000.log", "create"), ("other.log", "delete")):
        (tmp_path / name).write_text(event(verb=verb))
    assert [request.verb for request in read(lines(log), OPERATOR)] == ["create", "get"]


def test_a_request_keeps_the_fields_that_identify_it() -> None:
    (found,) = read([refused(403, BY_POLICY)], OPERATOR)
    assert found == Request(
        "create",
        "",
        "configmaps",
        "team",
        "sums-0a1b2-spec-1",
        "/api/v1/namespaces/team/configmaps",
        403,
        BY_POLICY,
    )
