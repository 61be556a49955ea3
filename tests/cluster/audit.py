"""What the API server's audit log says about an account: requests that were denied, or that no table contains.

`judge` is pure; `read` turns the lines of the log into requests. Format: audit.k8s.io/v1
(https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/), at level Metadata.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORBIDDEN = 403
DENIED = ("denied request", "denied the request")
"""What a ValidatingAdmissionPolicy and a webhook say, whatever the code of the answer is."""
ENDING = "because it is being terminated"
"""A namespace that is being deleted accepts nothing more: no rule denies it."""
SHOWN = 300
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True)
class Request:
    """One request of an account, with its answer."""

    verb: str
    group: str
    resource: str
    """With its subresource; empty for a path."""
    namespace: str
    name: str
    path: str
    code: int
    message: str
    uid: str = ""
    """Of the account: one that is created again under the same name has another."""

    @property
    def denied(self) -> bool:
        """Return whether a role, a policy, a webhook or a quota denied it."""
        if ENDING in self.message:
            return False
        return self.code == FORBIDDEN or any(words in self.message for words in DENIED)

    @property
    def kind(self) -> str:
        """Return the verb and what it was applied to, without names."""
        if not self.resource:
            return f"{self.verb} {self.path}"
        return f"{self.verb} {self.resource}{'.' + self.group if self.group else ''}"


def log_files(log: Path) -> list[Path]:
    """Return the files of a log, the oldest first; the API server adds its time to the name of a full one."""
    return [*sorted(log.parent.glob(f"{log.stem}-*{log.suffix}")), *([log] if log.exists() else [])]


def lines(log: Path) -> Iterator[str]:
    """Return the lines of a log that may still be written to."""
    for path in log_files(log):
        with path.open(encoding="utf-8") as file:
            yield from file


def read(text: Iterable[str], user: str) -> Iterator[Request]:
    """Return the completed requests of a user; those of somebody who impersonates it are not its own.

    The last line may be incomplete while the API server writes it.
    """
    for line in text:
        # Parsing is slow, and most lines are about others.
        if user not in line or not line.endswith("\n"):
            continue
        event = json.loads(line)
        completed = event.get("stage") in ("ResponseComplete", "Panic")
        if completed and event["user"].get("username") == user and "impersonatedUser" not in event:
            yield _request(event)


def _request(event: Mapping[str, Any]) -> Request:
    about, answer = event.get("objectRef") or {}, event.get("responseStatus") or {}
    parts = (about.get("resource"), about.get("subresource"))
    return Request(
        verb=str(event["verb"]),
        group=str(about.get("apiGroup", "")),
        resource="/".join(str(part) for part in parts if part),
        namespace=str(about.get("namespace", "")),
        name=str(about.get("name", "")),
        path=str(event.get("requestURI", "")).partition("?")[0],
        code=int(answer.get("code", 0)),
        message=str(answer.get("message", "")),
        uid=str(event["user"].get("uid", "")),
    )


@dataclass(frozen=True)
class Expected:
    """What the requests of an account may be."""

    verbs: Mapping[tuple[str, str], Collection[str]]
    """Group and resource -> verbs."""
    paths: Collection[str]
    """Paths without resources, with everything below them, that may be read."""
    provoked: Collection[tuple[str, str]] = ()
    """Beginning of the namespace, and words of the denial, that tests provoke on purpose."""


def judge(requests: Iterable[Request], expected: Expected) -> list[str]:
    """Return one complaint for each kind of request that was denied or is not expected, with the first such request."""
    count, first = Counter[tuple[str, str]](), dict[tuple[str, str], Request]()
    for request in requests:
        for problem in _problems(request, expected):
            count[problem, request.kind] += 1
            first.setdefault((problem, request.kind), request)
    return [
        f"{key[1]}: {key[0]}, {times} times; first: {_described(first[key])}" for key, times in sorted(count.items())
    ]


def _problems(request: Request, expected: Expected) -> Iterator[str]:
    if request.resource:
        known = request.verb in expected.verbs.get((request.group, request.resource), ())
    else:
        below = any(request.path == path or request.path.startswith(f"{path}/") for path in expected.paths)
        known = request.verb == "get" and below
    if not known:
        yield "not in the table of permissions"
    provoked = any(
        request.namespace.startswith(namespace) and words in request.message for namespace, words in expected.provoked
    )
    if request.denied and not provoked:
        yield "denied"


def _described(request: Request) -> str:
    place = "/".join(part for part in (request.namespace, request.name) if part)
    return f"{place or request.path}: {request.code} {request.message[:SHOWN]}".rstrip()
