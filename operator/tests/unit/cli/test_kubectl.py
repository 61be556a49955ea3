"""Errors of kubectl become one line with the fix. The first texts were printed by kubectl v1.32.4."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from rljob.cli.main import main

LOG = (
    'E1127 04:58:33.405906    2398 memcache.go:265] "Unhandled Error" err="couldn\'t get current server API group '
    'list: Get \\"http://localhost:8080/api?timeout=32s\\": dial tcp 127.0.0.1:8080: connect: connection refused"\n'
)
REFUSED = "The connection to the server {} was refused - did you specify the right host or port?"
NO_CLUSTER = (
    "rljob: kubectl knows no cluster: there is no kubeconfig; set KUBECONFIG to the kubeconfig of your cluster, or put "
    "it at ~/.kube/config\n"
)


@pytest.mark.parametrize(
    ("said", "told", "code"),
    [
        (LOG * 5 + REFUSED.format("localhost:8080"), NO_CLUSTER, 6),
        (
            LOG + REFUSED.format("10.0.0.1:6443"),
            f"rljob: kubectl: {REFUSED.format('10.0.0.1:6443')}; check that the cluster runs, and that the kube",
            6,
        ),
        (
            "Error in configuration: context was not found for specified context: foo",
            "foo; `kubectl config get-contexts` lists those to pass with --context\n",
            2,
        ),
        (
            'error: the server doesn\'t have a resource type "rljobs"',
            "the cluster has no RLJobs: install the chart rljob-operator",
            7,
        ),
        (
            (
                'error: resource mapping not found for name: "a": no matches for kind "RLJob" in '
                'version "rljob.dev/v1alpha1"'
            ),
            "the cluster has no RLJobs: install the chart rljob-operator",
            7,
        ),
        ('error: the server doesn\'t have a resource type "rayclusters"', "; install KubeRay in the cluster", 7),
        ('error: the server doesn\'t have a resource type "clusterqueues"', "; install Kueue in the cluster\n", 7),
        (
            'Error from server (NotFound): rljobs.rljob.dev "x" not found',
            "not found; check the name, and the namespace with -n; `rljob list -A` lists",
            4,
        ),
        ('Error from server (NotFound): namespaces "x" not found', "not found; check -n; `kubectl get namespaces`", 4),
        (
            'Error from server (Forbidden): rljobs.rljob.dev "x" is forbidden: User "u" cannot get',
            "ask an administrator of the cluster for this permission",
            5,
        ),
        ("error: You must be logged in to the server (Unauthorized)", "log in to the cluster again", 5),
        (
            "error: You must be logged in to the server (the server has asked for the client to provide credentials)",
            "log in to the cluster again",
            5,
        ),
        ("Unable to connect to the server: dial tcp: lookup x: no such host", "check that the cluster runs", 6),
        (
            ("Unable to connect to the server: tls: failed to verify certificate: x509: unknown authority"),
            "get a new kubeconfig of the cluster",
            6,
        ),
        (
            (
                "Unable to connect to the server: tls: failed to verify certificate: x509: certificate has expired or "
                "is not yet valid: current time 2026-01-01T00:00:00Z is after 2025-12-31T00:00:00Z"
            ),
            "compare the time of this machine with the certificate's",
            6,
        ),
        (
            (
                'error: error validating "job.yaml": error validating data: failed to download openapi: Get "https://10.0.0'
                '.1:6443/openapi/v2?timeout=32s": dial tcp 10.0.0.1:6443: connect: connection refused; if you choose '
                "to ignore these errors, turn validation off with --validate=false"
            ),
            (
                'rljob: kubectl: error: failed to download openapi: Get "https://10.0.0.1:6443/openapi/v2?timeout=32s"'
                ": dial tcp 10.0.0.1:6443: connect: connection refused; check that the cluster runs"
            ),
            6,
        ),
        (
            (
                "Unable to connect to the server: getting credentials: exec: executable login not found\n\nIt looks "
                "like you are trying to use a client-go credential plugin that is not installed.\n\nTo learn more about"
            ),
            "exec: executable login not found; install this program, which the kubeconfig runs to log in",
            5,
        ),
        (
            "Error from server (ServiceUnavailable): the server is currently unable to handle the request",
            "the API server is starting or overloaded: run the command again\n",
            6,
        ),
        (
            (
                'Error from server (InternalError): Internal error occurred: failed calling webhook "m.kb.io": '
                'failed to call webhook: Post "https://x.svc:443/mutate": dial tcp 10.0.0.9:443: connection refused'
            ),
            "a webhook of the cluster does not answer",
            2,
        ),
        (
            'Error from server (Forbidden): localqueues.kueue.x-k8s.io is forbidden: User "u" cannot list resource',
            "ask an administrator of the cluster for this permission",
            5,
        ),
        (
            'error: error loading config file "/home/u/.kube/config": yaml: line 2: mapping values are not allowed',
            "correct this file, or set KUBECONFIG to another one\n",
            2,
        ),
        (
            (
                "Warning: resource rljobs/x is missing the annotation which is required by kubectl apply.\n"
                f"Error from server (Forbidden): error when applying patch:\n{'{' * 5000}\nfor: job.yaml: forbidden"
            ),
            "rljob: kubectl: Error from server (Forbidden): error when applying patch: {{{",
            5,
        ),
        ("error: first\n  second", "rljob: kubectl: error: first second\n", 2),
        (LOG, NO_CLUSTER, 6),
        (LOG.replace("localhost:8080", "a:1"), "couldn't get current server API group list", 6),
        ("", "kubectl: failed without a message; run the same command with kubectl", 2),
    ],
)
def test_an_error_of_kubectl_is_one_line_with_the_fix_and_a_code(
    kubectl: Path, capsys: pytest.CaptureFixture[str], said: str, told: str, code: int
) -> None:
    (kubectl / "error").write_text(said)
    assert main(["status", "x"]) == code
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1
    assert len(err) < 1000


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_without_a_kubeconfig_the_real_kubectl_has_one_line_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["describe", "x"]) == 6
    assert capsys.readouterr().err == NO_CLUSTER


def test_an_answer_that_is_not_json_is_an_error(kubectl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kubectl / "answer").write_text("Flag --x is deprecated\n{}")
    assert main(["status", "x"]) == 2
    assert "the answer is not JSON" in capsys.readouterr().err


JOB = {"metadata": {"name": "a", "namespace": "team-a"}, "status": {"state": "Failed", "reason": "X", "message": "m"}}


def test_status_top_and_describe_are_data_too(kubectl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kubectl / "answer").write_text(json.dumps(JOB))
    assert main(["status", "a", "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"namespace": "team-a", "job": "a", **JOB["status"]}
    (kubectl / "answer").write_text(json.dumps({"items": [JOB, {"metadata": {"name": "b"}}]}))
    assert main(["top", "-A", "-o", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["jobs"]
    assert [(each["namespace"], each["job"], each["state"]) for each in listed] == [
        ("team-a", "a", "Failed"),
        ("default", "b", "Unknown"),
    ]
    assert main(["status", "a", "--watch", "-o", "json"]) == 2
    assert "--watch shows text; leave out --watch or -o json" in capsys.readouterr().err


def test_describe_is_data_too(kubectl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metadata = {**JOB["metadata"], "uid": "u"}
    (kubectl / "answer").write_text(json.dumps({**JOB, "metadata": metadata, "items": []}))
    assert main(["describe", "a", "-o", "yaml"]) == 1
    assert yaml.safe_load(capsys.readouterr().out) == {
        "namespace": "team-a",
        "job": "a",
        "state": "Failed",
        "why": "team-a/a is Failed (X). m.",
    }
