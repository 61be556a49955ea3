"""A request, and which exception its refusal becomes, with what to do about it. Pure.

The server's own text is quoted: it names what was refused. Bodies of requests are not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from rljob.api.printing import encodable, printable
from rljob.client import errors
from rljob.core.observed import Manifest
from rljob.core.validation.violation import Violation

if TYPE_CHECKING:
    from rljob.client.login import Login

JSON: Final = "application/json"
MESSAGE_CHARACTERS = 1000
CAUSES_MAX = 64
UNKNOWN_RESOURCE = "the server could not find the requested resource"
"""Message of a 404 whose kind is not served (apiserver v0.36, pkg/endpoints/handlers/responsewriters/errors.go)."""


@dataclass(frozen=True)
class ApiRequest:
    """One request, before authentication."""

    method: str
    path: str
    subject: str
    """What it is about, for messages: `rljob team-a/sums`."""
    query: tuple[tuple[str, str], ...] = ()
    body: Manifest | None = None
    content_type: str = JSON

    @property
    def writes(self) -> bool:
        """Return whether the request changes something."""
        return self.method != "GET"


class Expired(errors.Unreachable):
    """410: a version or a page of a list is older than what etcd keeps."""


def refusal(request: ApiRequest, login: Login, status: int, text: bytes) -> errors.RLJobError:
    """Return the exception for an answer that is not a success."""
    body = _body(text)
    said = printable(encodable(str(body.get("message") or _phrase(status))))[:MESSAGE_CHARACTERS]
    what = f"{request.subject}: {said}"
    match status:
        case 401:
            return errors.Unauthorized(f"{what} ({login.source}); {_log_in(login)}")
        case 403:
            return errors.Forbidden(f"{what}; {_permission(login, said)}")
        case 404:
            return _not_found(request, login, body, said)
        case 409 if body.get("reason") == "AlreadyExists":
            return errors.AlreadyExists(f"{what}; choose another name, or delete the other one first")
        case 409:
            return errors.Conflict(f"{what}; read the job again and repeat the change")
        case 410:
            return Expired(what)
        case 400 | 405 | 413 | 422 if body.get("kind") == "Status":
            return errors.Invalid(what, _violations(body))
        case _:
            kind = errors.OutcomeUnknown if request.writes else errors.Unreachable
            hint = "it may have been applied, so look before you repeat it" if request.writes else "try again later"
            return kind(f"{request.subject}: {login.server} answered {status} {said}; {hint}")


def _log_in(login: Login) -> str:
    if login.is_anonymous:
        return (
            "no credentials were found there: if its user has a credential plug-in, run `kubectl get rljobs` to see "
            "why the plug-in fails"
        )
    return "log in to the cluster again, or choose another context"


def _permission(login: Login, said: str) -> str:
    if "quota" in said:
        return "wait until others free their part of the namespace's ResourceQuota, or use another namespace"
    if "denied" in said:
        return "a policy of the cluster refuses it: use another namespace, or ask an administrator for an exception"
    return f"ask an administrator of the cluster for this permission, for the account of {login.source}"


def _not_found(request: ApiRequest, login: Login, body: dict[str, Any], said: str) -> errors.RLJobError:
    details = body.get("details") or {}
    if details.get("kind") == "namespaces":
        return errors.NotFound(f"{request.subject}: {said}; create the namespace, or choose another one")
    if not details.get("name") or UNKNOWN_RESOURCE in said:
        return errors.NotInstalled(
            f"{request.subject}: {login.server} ({login.source}) serves no such kind; install the chart rljob-operator "
            "there, or choose another context"
        )
    return errors.NotFound(f"{request.subject} does not exist; check the name and the namespace")


def _violations(body: dict[str, Any]) -> tuple[Violation, ...]:
    """Return the causes of a Status, which name a field each."""
    details = body.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return tuple(
        Violation(str(cause.get("field") or "<object>"), str(cause.get("message") or "")[:MESSAGE_CHARACTERS])
        for cause in (causes if isinstance(causes, list) else [])[:CAUSES_MAX]
        if isinstance(cause, dict)
    )


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase if status in list(HTTPStatus) else "no known status"


def _body(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    # What a proxy answers may be any JSON, with any code.
    return found if isinstance(found, dict) else {}
