"""The errors of kubectl: what it wrote becomes one line with the cause and the fix, and an exit code.

`rljob.cli.kubectl` raises them. A text that is not known keeps its words and the exit code of a wrong use. Pure.
"""

from __future__ import annotations

import re
from typing import ClassVar

from rljob.cli.errors import UsageError
from rljob.cli.exits import Exit


class NotFoundError(UsageError):
    """The cluster has no such object."""

    code: ClassVar[Exit] = Exit.NOT_FOUND


class UnreadableError(UsageError):
    """The caller may not read the object, or the cluster does not know the kind."""

    code: ClassVar[Exit] = Exit.DENIED


class MissingKindError(UnreadableError):
    """The cluster lacks a kind, a field or a program: RLJob, KubeRay or Kueue is not installed, or is older."""

    code: ClassVar[Exit] = Exit.INCOMPLETE


class LoginError(UsageError):
    """The cluster does not accept the credentials."""

    code: ClassVar[Exit] = Exit.DENIED


class UnreachableError(UsageError):
    """No API server answers."""

    code: ClassVar[Exit] = Exit.UNREACHABLE


_LOG_LINE = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ .*\.go:\d+\] .*")
"""A line of klog, which client-go writes for each request that failed before kubectl prints the cause."""
NO_CLUSTER = (
    "kubectl knows no cluster: there is no kubeconfig; set KUBECONFIG to the kubeconfig of your cluster, or put it at "
    "~/.kube/config"
)
_NOISE = (
    # kubectl v1.36, pkg/cmd/util/helpers.go and pkg/validation: an option that the commands of rljob do not have.
    (re.compile(r"; if you choose to ignore these errors, turn validation off with --validate=false"), ""),
    (re.compile(r"error validating \S+: error validating data: (?=failed to download openapi)"), ""),
    # client-go v0.36, plugin/pkg/client/auth/exec/exec.go: what a plug-in is, after the cause.
    (re.compile(r" It looks like you are trying to use a client-go credential plugin.*", re.DOTALL), ""),
)
"""What kubectl adds to a cause, and what replaces it."""
HEAD_CHARACTERS, TAIL_CHARACTERS = 200, 500
"""Characters that are kept of the start and of the end of a longer text; kubectl quotes a whole patch between what it
did and the cause."""
_SILENT = (
    r"(was|connection) refused|refused the connection|Unable to connect|no such host|no route to host|network is "
    r"unreachable|i/o timeout|handshake timeout|deadline exceeded|connection reset|EOF$"
)
_FIXES: tuple[tuple[type[UsageError], str, str], ...] = (
    (
        UsageError,
        r"context was not found|context \S+ does not exist",
        "`kubectl config get-contexts` lists those to pass with --context",
    ),
    (UsageError, r"error loading config file", "correct this file, or set KUBECONFIG to another one"),
    (
        MissingKindError,
        r"the server doesn't have a resource type \"?(rl|clusterrl)|no matches for kind \"?(Cluster)?RL",
        "the cluster has no RLJobs: install the chart rljob-operator, or choose another cluster with --context",
    ),
    (
        MissingKindError,
        r"the server doesn't have a resource type \"?ray",
        "install KubeRay in the cluster (docs/install.md), or choose another cluster with --context",
    ),
    (
        MissingKindError,
        r"the server doesn't have a resource type \"?(\S*kueue|clusterqueues|localqueues|resourceflavors|workloads)",
        "install Kueue in the cluster",
    ),
    (MissingKindError, r"the server doesn't have a resource type|no matches for kind", "install its CRD first"),
    (
        UsageError,
        r"exceeded quota|failed quota",
        "wait until others free their part of the namespace's ResourceQuota, or use another namespace with -n",
    ),
    (
        UsageError,
        r"violates PodSecurity|denied the request|denied request",
        "a rule of the cluster refuses it: use another namespace with -n, or ask an administrator for an exception",
    ),
    (
        UsageError,
        r"failed calling webhook",
        "a webhook of the cluster does not answer: ask an administrator to look at the service that it names",
    ),
    (NotFoundError, r"namespaces \S+ not found", "check -n; `kubectl get namespaces` lists those that exist"),
    (
        NotFoundError,
        r"\(NotFound\): rljobs",
        "check the name, and the namespace with -n; `rljob list -A` lists the jobs of all namespaces",
    ),
    (NotFoundError, r"\(NotFound\)", "check the name, and the namespace with -n"),
    (UnreadableError, r"\(Forbidden\)", "ask an administrator of the cluster for this permission"),
    (
        LoginError,
        r"exec: executable \S+ not found",
        "install this program, which the kubeconfig runs to log in, or choose another context with --context",
    ),
    (
        LoginError,
        r"Unauthorized|must be logged in|asked for the client to provide credentials|getting credentials",
        "log in to the cluster again, or choose another context with --context",
    ),
    (
        UnreachableError,
        r"x509: certificate has expired or is not yet valid",
        "compare the time of this machine with the certificate's, and ask an administrator to renew the certificate",
    ),
    (
        UnreachableError,
        r"x509: |tls: ",
        "the server's certificate does not fit the kubeconfig: get a new kubeconfig of the cluster",
    ),
    (
        UnreachableError,
        r"\((ServiceUnavailable|Timeout|ServerTimeout|TooManyRequests)\)|currently unable to handle the request",
        "the API server is starting or overloaded: run the command again",
    ),
    (
        UnreachableError,
        _SILENT,
        "check that the cluster runs, and that the kubeconfig or --context names the right one",
    ),
)
"""Kind of an error of kubectl and what to do, by its message (kubectl v1.32 to v1.36); the first that matches."""


def error_of(said: str) -> UsageError:
    """Return the error for what kubectl wrote: one line with the cause and the fix."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    causes = [line for line in lines if not _LOG_LINE.fullmatch(line) and not line.startswith("Warning: ")]
    text = " ".join(causes or lines[-1:]) or "failed without a message; run the same command with kubectl"
    if "localhost:8080" in text and "refused" in text:
        # The address that client-go tries without any configuration.
        return UnreachableError(NO_CLUSTER)
    for pattern, instead in _NOISE:
        text = pattern.sub(instead, text)
    for kind, pattern_of_kind, fix in _FIXES:
        if re.search(pattern_of_kind, text):
            return kind(f"kubectl: {_shortened(text)}; {fix}")
    return UsageError(f"kubectl: {_shortened(text)}")


def _shortened(text: str) -> str:
    if len(text) <= HEAD_CHARACTERS + TAIL_CHARACTERS:
        return text
    return f"{text[:HEAD_CHARACTERS]} … {text[-TAIL_CHARACTERS:]}"
