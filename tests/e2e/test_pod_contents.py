"""Code, initializers, secrets, services and patches of a job reach its real pods.

Tests that inspect the pods of a cluster request more NPUs than the node has, so that only the head pod runs.
"""

from __future__ import annotations

import pytest

from tests.e2e import quickstart, runs
from tests.kube import Kube, KubectlError, Manifest, condition, wait_for

pytestmark = pytest.mark.e2e

IMAGE = runs.IMAGE
OPERATOR_IMAGE = "rljob.local/operator:dev"
"""Has the library for Git, which the runtime brings; images of jobs need not have it."""
GIT_SERVER = """
import os
os.makedirs('/tmp/rewards/math')
open('/tmp/rewards/math/reward.py', 'w').write('def compute_score(*_, **__): return 1.0')
from dulwich import porcelain
repo = porcelain.init('/tmp/rewards')
porcelain.add(repo, ['/tmp/rewards/math/reward.py'])
print('commit', porcelain.commit(repo, b'one', author=b'a <a@b>', committer=b'a <a@b>').decode(), flush=True)
from wsgiref.simple_server import make_server
from dulwich.server import DictBackend
from dulwich.web import make_wsgi_chain
make_server('0.0.0.0', 8000, make_wsgi_chain(DictBackend({'/rewards': repo}))).serve_forever()
"""


def status_of(kube: Kube, name: str) -> Manifest:
    found: Manifest = (kube.get("rljob", name) or {}).get("status", {})
    return found


def initialized(kube: Kube, name: str) -> Manifest:
    return condition(kube.get("rljob", name), "Initialized") or {}


def running_head(kube: Kube, name: str) -> str:
    def head() -> str | None:
        pods = kube.find("pods", f"rljob.dev/job={name},ray.io/node-type=head")
        return pods[0]["metadata"]["name"] if pods and pods[0]["status"]["phase"] == "Running" else None

    return wait_for("the head runs", head, 180)


def in_head(kube: Kube, pod: str, *command: str) -> str:
    return kube.run("exec", pod, "-c", "ray-head", "--", *command)


def test_a_job_waits_for_missing_code_and_then_keeps_a_copy(kube: Kube) -> None:
    fields = {**quickstart.WAITING, "code": {"type": "ConfigMap", "configMap": {"name": "late-code"}}}
    kube.apply(runs.variant("late-code", **fields))
    wait_for("CodeMissing", lambda: initialized(kube, "late-code").get("reason") == "CodeMissing", 60)
    assert "there is no ConfigMap late-code" in kube.run("get", "rljob", "late-code", "-o", "wide")
    code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late-code"}, "data": {"reward.py": "one"}}
    kube.apply(code)

    def digest() -> str | None:
        found: str | None = status_of(kube, "late-code").get("resolved", {}).get("code", {}).get("digest")
        return found

    assert len(wait_for("the digest", digest, 60)) == 64
    pod = running_head(kube, "late-code")
    kube.apply({**code, "data": {"reward.py": "two"}})
    assert in_head(kube, pod, "cat", "/code/reward.py") == "one"
    (copy,) = [c for c in kube.find("configmaps", "rljob.dev/job=late-code") if c["metadata"]["name"].endswith("-code")]
    with pytest.raises(KubectlError, match="immutable"):
        kube.run("patch", "configmap", copy["metadata"]["name"], "--patch", '{"data": {"reward.py": "two"}}')
    kube.delete("rljob", "late-code")


def test_an_initializer_shows_its_last_line_and_is_skipped_when_its_work_is_done(kube: Kube) -> None:
    slow = {"name": "slow", "command": ["sh", "-c", "echo first; echo half of it; sleep 30"], "cpu": "50m"}
    done = {"name": "done", "command": ["false"], "creates": "/etc/passwd", "memory": "64Mi"}
    kube.apply(runs.variant("lines", **{**quickstart.WAITING, "initializers": [slow, done]}))
    wait_for(
        "the last line of the initializer",
        lambda: status_of(kube, "lines").get("initializer", {}).get("line") == "half of it",
        90,
    )
    assert initialized(kube, "lines")["message"] == "initializer slow is running: half of it"
    wait_for("Initialized=True", lambda: initialized(kube, "lines").get("status") == "True", 120)
    assert initialized(kube, "lines")["message"] == "done skipped: /etc/passwd is there already"
    assert "initializer" not in status_of(kube, "lines")
    kube.delete("rljob", "lines")


def test_secrets_services_and_patches_are_in_the_pod(kube: Kube) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "tracker"},
        "stringData": {"api-key": "s3cret"},
    }
    kube.apply(secret)
    service = {"name": "echo-files", "image": IMAGE, "command": ["python", "-m", "http.server", "9000"], "port": 9000}
    fields = {
        **quickstart.WAITING,
        "secretRefs": [{"name": "tracker", "items": [{"key": "api-key", "env": "TRACKER_KEY"}]}],
        "services": [service],
        "podSpecPatch": {"head": {"containers": [{"name": "ray-head", "env": [{"name": "PATCHED", "value": "yes"}]}]}},
    }
    kube.apply(runs.variant("brings", **fields))
    pod = running_head(kube, "brings")
    assert in_head(kube, pod, "printenv", "TRACKER_KEY", "PATCHED").split() == ["s3cret", "yes"]
    ask = "import os, urllib.request as r; print(r.urlopen(os.environ['RLJOB_SERVICE_ECHO_FILES_URL']).status)"
    assert in_head(kube, pod, "python", "-c", ask).strip() == "200"
    configs = kube.run("get", "configmaps", "-l", "rljob.dev/job=brings", "-o", "json")
    assert "s3cret" not in configs

    def restarted() -> bool:
        found = (kube.get("pod", pod) or {})["status"]
        echo = next(c for c in found["initContainerStatuses"] if c["name"] == "echo-files")
        return bool(echo["restartCount"] and echo["ready"] and found["phase"] == "Running")

    # Process 1 receives from its own namespace only the signals that it handles; Python handles SIGINT.
    signal = "import os, signal; os.kill(1, signal.SIGINT)"
    try:
        kube.run("exec", pod, "-c", "echo-files", "--", "python", "-c", signal)
    except KubectlError as error:
        # All processes of the container end with process 1, possibly before the sender of the signal exits by itself.
        assert "exit code 137" in str(error), error  # noqa: PT017 - the error is optional
    wait_for("the service has restarted", restarted, 120)
    kube.delete("rljob", "brings")


def test_code_in_git_is_fetched_and_a_wrong_commit_ends_the_job_before_it_holds_npus(kube: Kube) -> None:
    server = {
        "name": "git",
        "image": OPERATOR_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", GIT_SERVER],
    }
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "git"}, "spec": {"containers": [server]}})

    def commit() -> str | None:
        words = kube.run("logs", "git").split()
        return words[1] if words[:1] == ["commit"] else None

    def served() -> str | None:
        try:
            return commit()
        except KubectlError:
            return None

    revision = wait_for("the commit", served, 120)
    url = f"http://{(kube.get('pod', 'git') or {})['status']['podIP']}:8000/rewards"
    git = {"url": url, "revision": revision, "subPath": "math"}
    kube.apply(runs.variant("of-git", **{**quickstart.WAITING, "code": {"type": "Git", "git": git}}))
    pod = running_head(kube, "of-git")
    assert "compute_score" in in_head(kube, pod, "cat", "/code/reward.py")
    assert status_of(kube, "of-git")["resolved"]["code"] == {"type": "Git", "digest": revision}
    kube.delete("rljob", "of-git")

    wrong = {**git, "revision": "0" * 40}
    kube.apply(runs.variant("wrong-git", **{**quickstart.WAITING, "code": {"type": "Git", "git": wrong}}))
    kube.run("wait", "rljob/wrong-git", "--for=condition=Finished", "--timeout=120s", seconds=150)
    status = status_of(kube, "wrong-git")
    assert (status["state"], status["reason"]) == ("Failed", "InitializerFailed")
    assert f"has no commit {'0' * 40}" in status["message"]
    assert not kube.find("rayclusters", "rljob.dev/job=wrong-git")
    kube.delete("rljob", "wrong-git")
    kube.delete("pod", "git")
