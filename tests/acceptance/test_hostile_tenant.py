"""A tenant with 300 jobs as large and as slow to check as the API allows, under the installed operator.

They are more than the namespace has memory for. Meanwhile a job of another namespace trains to its end.
"""

from __future__ import annotations

import itertools
import json
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e import runs
from tests.e2e.recorded_run import OPERATOR_NAMESPACE, operator_pod, processes
from tests.e2e.shared import ROOT
from tests.kube import Kube, KubectlError, Manifest, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2400)]

JOBS, AT_ONCE = 300, 20
COMMON = ("runtime", "accelerator", "workerGroups", "head", "suspend", "services")
"""Fields that jobs of both launchers have."""
NAMESPACE = "hostile"
TEXTS = ("eyJ" * 1365, "{name}" * 682, "token-" * 682, "\U0001f600" * 1000)
NO_MEMORY = re.compile(r"would take [\d.]+ MiB of the operator's memory; jobs and recipes of namespace hostile take")


@pytest.fixture
def hostile(admin: Kube) -> Iterator[Kube]:
    tenant = admin.in_namespace(NAMESPACE)
    tenant.delete("namespace", NAMESPACE)
    tenant.run("create", "namespace", NAMESPACE)
    yield tenant
    tenant.delete("namespace", NAMESPACE, wait=False)
    wait_for("the namespace is gone", lambda: tenant.get("namespace", NAMESPACE) is None, 600)


def crowd() -> Iterator[Manifest]:
    """Yield jobs of verl, and commands with thousands of names that may be misspelt placeholders."""
    args = [text for text in TEXTS for _ in range(7)]
    services = [{"name": f"judge-{n}", "image": "judge:1", "port": 9000 + n, "args": args} for n in range(2)]
    names = ("{" + "".join(letters) + "}" for letters in itertools.product(string.ascii_letters, repeat=3))
    command = {"args": ["".join(itertools.islice(names, 1600)) for _ in range(16)]}
    for number in range(JOBS):
        job = runs.variant(f"largest-{number}", suspend=True, services=services[: 1 + number % 2])
        if number % 2 == 0:
            kept = {name: job["spec"][name] for name in COMMON if name in job["spec"]}
            job["spec"] = kept | {"launcher": {"type": "Command", "command": command}}
        yield job


def peak_mib(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def validated(job: Manifest) -> Manifest:
    found: list[Manifest] = (job.get("status") or {}).get("conditions") or []
    return next((each for each in found if each["type"] == "Validated"), {})


def test_a_job_of_another_tenant_is_served_and_memory_stays_below_the_limit(hostile: Kube, kube: Kube) -> None:
    admin = hostile.in_namespace(OPERATOR_NAMESPACE)
    lease = (admin.get("lease", "rljob-operator") or {})["spec"]
    jobs = list(crowd())
    for first in range(0, JOBS, AT_ONCE):
        # `apply` would store each again in an annotation, which has no room for it.
        body = {"apiVersion": "v1", "kind": "List", "items": jobs[first : first + AT_ONCE]}
        hostile.run("create", "-f", "-", text=json.dumps(body))
    kube.apply(runs.variant("good", trainer__steps=3))

    def good() -> bool:
        return ((kube.get("rljob", "good") or {}).get("status") or {}).get("state") == "Succeeded"

    def answered() -> list[str]:
        return [state for job in hostile.find("rljobs") if (state := (job.get("status") or {}).get("state"))]

    wait_for("the other tenant's job succeeds", good, 600, every=2)
    print(f"then {len(answered())} of {JOBS} hostile jobs were answered")
    wait_for("all are answered", lambda: len(answered()) == JOBS, 1200, every=5)
    messages = [validated(job).get("message", "") for job in hostile.find("rljobs")]
    refused = [message for message in messages if NO_MEMORY.search(message)]
    pod = operator_pod(admin)
    (container,) = pod["status"]["containerStatuses"]
    used = max(map(peak_mib, processes(pod["metadata"]["uid"])))
    limit = yaml.safe_load((ROOT / "charts/rljob-operator/values.yaml").read_text())["resources"]["limits"]["memory"]
    print(f"{len(refused)} refused for memory; the operator uses {used:.0f} MiB of {limit}")
    assert 0 < len(refused) < JOBS
    assert container["restartCount"] == 0
    assert used < float(limit.removesuffix("Mi"))
    now = (admin.get("lease", "rljob-operator") or {})["spec"]
    assert (now["holderIdentity"], now["leaseTransitions"]) == (lease["holderIdentity"], lease["leaseTransitions"])


def test_others_may_not_mark_objects_as_those_of_a_job(hostile: Kube) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine, labels: {rljob.dev/job-uid: a}}\n"
    hostile.run("create", "rolebinding", "alice", "--clusterrole=edit", "--user=alice")
    with pytest.raises(KubectlError, match="may only be written by the operator; alice may not impersonate"):
        hostile.run("apply", "--as=alice", "-f", "-", text=text)
