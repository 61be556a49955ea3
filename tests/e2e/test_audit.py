"""The requests of the installed operator in the audit log: none was denied, and all are in its table of permissions.

It runs after all stages on the cluster, so that the log has what their jobs made the operator do.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from rljob.cluster.permissions import DISCOVERY, PERMISSIONS
from tests.cluster.audit import Expected, judge, lines, read
from tests.cluster.paths import state
from tests.e2e.recorded_run import OPERATOR_NAMESPACE

pytestmark = pytest.mark.audit

OPERATOR = f"system:serviceaccount:{OPERATOR_NAMESPACE}:rljob-operator"
PROVOKED = (
    ("rljob-e2e", "exceeded quota: spent"),
    # The tests of the chart uninstall the release: its roles are gone before its pod.
    (OPERATOR_NAMESPACE, 'cannot get resource "leases"'),
    (OPERATOR_NAMESPACE, 'cannot update resource "leases"'),
)
"""Namespace and words of the denials that tests provoke: test_not_starting, tests/chart/test_on_cluster."""


def expected() -> Expected:
    """Return the table of permissions."""
    verbs = defaultdict[tuple[str, str], set[str]](set)
    for row in PERMISSIONS:
        verbs[row.group, row.resource] |= set(row.verbs)
    return Expected(verbs, DISCOVERY, PROVOKED)


def test_no_request_of_the_operator_was_denied_or_is_unknown() -> None:
    requests = list(read(lines(state().logs / "audit.log"), OPERATOR))
    written = {request.kind for request in requests if request.verb == "create"}
    # Otherwise the log is not that of a cluster on which jobs ran.
    assert {"create rayclusters.ray.io", "create configmaps", "create secrets"} <= written, written
    assert judge(requests, expected()) == []
