"""A real operator with the account, roles and policies of its chart: nothing that it does is denied.

It runs through everything that needs no pods: configuration, initializers, clusters, ports of the nodes' network, the
finalizer, recipes, suspension and deletion. The API server's audit log is the witness.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from builders import Json, merged, saving, small_spec
from contract.conftest import KUBECONFIG
from contract.operator_site import JOBS, OperatorSite, operator_site
from contract.policy_site import named, rljob

from rljob.api.v1alpha1 import API_VERSION
from rljob.cluster.permissions import DISCOVERY, PERMISSIONS
from tests.cluster.audit import Expected, Request, judge, lines, read
from tests.cluster.paths import state

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
]
PATIENCE_SECONDS = 120.0
LOG = state().logs / "audit.log"
JOBS_OF_THE_TEST: dict[str, Json] = {
    "plain": {},
    "prepared": {"initializers": [{"name": "get", "command": ["x"]}]},
    "on-host": {"network": {"mode": "Host"}},
    "on-host-too": {"network": {"mode": "Host"}},
    "saves": saving({"checkpoint": {"path": "/data/c", "everySteps": 5}, "stop": {"requireCheckpoint": True}}),
}


@pytest.fixture(scope="module")
def site() -> Iterator[OperatorSite]:
    with operator_site() as made:
        yield made


def until(site: OperatorSite, what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{site.id}: {what}"
        time.sleep(0.3)


@contextmanager
def operator(site: OperatorSite, folder: Path, recipes: Path) -> Iterator[None]:
    """Run the operator as its ServiceAccount until the block ends; it must end in order."""
    (folder / "key").write_bytes(b"k" * 32)
    arguments = {
        "--kubeconfig": str(kubeconfig(site, folder)),
        "--token-key-file": str(folder / "key"),
        "--http-port": str(21_000 + os.getpid() % 9_000),
        "--lease-namespace": site.release,
        "--lease-name": site.id,
        # All namespaces would include those of other tests; the account has its ClusterRole all the same.
        "--namespace": site.namespace(JOBS),
        "--resync-seconds": "5",
        "--recipes-folder": str(recipes),
    }
    flat = [word for pair in arguments.items() for word in pair]
    with (folder / "operator.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "rljob", *flat], stderr=log)
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(PATIENCE_SECONDS)
    assert code == 0, (folder / "operator.log").read_text()[-3000:]


def kubeconfig(site: OperatorSite, folder: Path) -> Path:
    """Write a kubeconfig with a token of the ServiceAccount."""
    found = yaml.safe_load(Path(KUBECONFIG).read_text())
    token = site.do("create", "token", site.id, "-n", site.release, "--duration=30m").strip()
    context = {"cluster": found["clusters"][0]["name"], "user": "operator"}
    found |= {
        "users": [{"name": "operator", "user": {"token": token}}],
        "contexts": [{"name": "operator", "context": context}],
        "current-context": "operator",
    }
    path = folder / "operator.kubeconfig"
    path.write_text(yaml.safe_dump(found))
    return path


def names(site: OperatorSite, kind: str, *words: str) -> set[str]:
    """Return the names of objects in the namespace of jobs."""
    items = json.loads(site.do("get", kind, "-n", site.namespace(JOBS), "-o", "json", *words))["items"]
    return {item["metadata"]["labels"].get("rljob.dev/job", item["metadata"]["name"]) for item in items}


def job(site: OperatorSite, name: str) -> Json:
    found: Json = json.loads(site.do("get", "rljob", name, "-n", site.namespace(JOBS), "-o", "json"))
    return found


def requests(site: OperatorSite) -> list[Request]:
    assert LOG.exists(), "the API server keeps no audit log; start it with `python -m tests.cluster up`"
    return list(read(lines(LOG), site.operator))


def test_nothing_that_the_operator_does_is_denied(site: OperatorSite, tmp_path: Path) -> None:
    where = ("-n", site.namespace(JOBS))
    for name, change in JOBS_OF_THE_TEST.items():
        site.do("create", *where, "-f", "-", body=named(rljob(merged(small_spec(), change)), name))
    recipes, recipe = tmp_path / "recipes", f"{site.id}-recipe"
    recipes.mkdir()
    body = {"apiVersion": API_VERSION, "kind": "ClusterRLRecipe", "metadata": {"name": recipe}}
    (recipes / "one.yaml").write_text(yaml.safe_dump(body | {"spec": {"template": {}}}))
    shown = ("get", "clusterrlrecipe", recipe, "--ignore-not-found", "-o", "name")
    with operator(site, tmp_path, recipes):
        until(site, "clusters", lambda: {"plain", "on-host", "on-host-too", "saves"} <= names(site, "rayclusters"))
        until(site, "an initializer", lambda: "prepared" in names(site, "jobs"))
        until(site, "the recipe", lambda: site.do(*shown) != "")
        until(site, "the finalizer", lambda: "finalizers" in job(site, "saves")["metadata"])
        suspend = ("--type=merge", "-p", '{"spec":{"suspend":true}}')
        site.do("patch", "rljob", "plain", *where, *suspend)
        until(site, "the suspension", lambda: "plain" not in names(site, "rayclusters"))
        site.do("delete", "rljob", "on-host", "saves", *where, "--timeout=100s")
    (recipes / "one.yaml").unlink()
    with operator(site, tmp_path, recipes):
        until(site, "the recipe is gone", lambda: site.do(*shown) == "")
    verbs = defaultdict[tuple[str, str], set[str]](set)
    for row in PERMISSIONS:
        verbs[row.group, row.resource] |= set(row.verbs)
    seen = requests(site)
    assert judge(seen, Expected(verbs, DISCOVERY)) == []
    assert {
        "create configmaps",
        "update configmaps",
        "create secrets",
        "create rayclusters.ray.io",
        "delete rayclusters.ray.io",
        "create jobs.batch",
        "create events.events.k8s.io",
        "patch rljobs.rljob.dev",
        "patch rljobs/status.rljob.dev",
        "patch clusterrlrecipes.rljob.dev",
        "delete clusterrlrecipes.rljob.dev",
        "create leases.coordination.k8s.io",
        "update leases.coordination.k8s.io",
    } <= {request.kind for request in seen}


def test_the_log_shows_what_is_denied(site: OperatorSite) -> None:
    token = site.do("create", "token", site.id, "-n", site.release).strip()
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "aws-auth", "namespace": site.release}}
    # kubectl prefers the certificate of the kubeconfig to a token, so the request has no other credentials.
    server = yaml.safe_load(Path(KUBECONFIG).read_text())["clusters"][0]["cluster"]["server"]
    bare = ("--kubeconfig=/dev/null", f"--server={server}", "--insecure-skip-tls-verify", f"--token={token}")
    assert "denied request" in site.ask(*bare, "create", "-f", "-", body=body).stderr
    site.ask(*bare, "get", "secrets", "-n", site.release)
    told = judge(requests(site), Expected({("", "configmaps"): {"create"}}, ("/",)))
    assert any(line.startswith("create configmaps: denied") and "aws-auth" in line for line in told), told
    assert any(line.startswith("list secrets: denied") for line in told), told
    assert any(line.startswith("list secrets: not in the table") for line in told), told
