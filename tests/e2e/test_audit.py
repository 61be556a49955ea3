"""The requests of the installed operator in the audit log: none was denied, and all are in its table of permissions.

It runs after all stages on the cluster, so that the log has what their jobs made the operator do.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from rljob.cluster.permissions import DISCOVERY, PERMISSIONS
from tests.cluster.audit import Expected, judge, lines, read
from tests.cluster.paths import state
from tests.e2e.conftest import NAMESPACE
from tests.e2e.recorded_run import OPERATOR

pytestmark = pytest.mark.audit

PROVOKED = ((NAMESPACE, "exceeded quota: spent"),)
"""Beginning of the namespace, and words of a denial that a test provokes: test_quotas."""


def expected() -> Expected:
    """Return the table of permissions."""
    verbs = defaultdict[tuple[str, str], set[str]](set)
    for row in PERMISSIONS:
        verbs[row.group, row.resource] |= set(row.verbs)
    return Expected(verbs, DISCOVERY, PROVOKED)


def test_no_request_of_the_operator_was_denied_or_is_unknown() -> None:
    every = list(read(lines(state().logs / "audit.log"), OPERATOR))
    # The tests of the chart uninstall their releases, whose roles are gone before their pods: only the account of the
    # release on which the jobs run is judged.
    requests = [request for request in every if request.uid == every[-1].uid]
    written = {request.kind for request in requests if request.verb == "create"}
    # Otherwise the log is not that of a cluster on which jobs ran.
    assert {"create rayclusters.ray.io", "create configmaps", "create secrets"} <= written, written
    assert judge(requests, expected()) == []
