"""Errors of the Kubernetes API and of Ray head pods: one type for each case that callers distinguish.

    OutsideError
    ├── ClusterError             the Kubernetes API
    │   ├── NotFound             404
    │   ├── AlreadyExists        409 on create
    │   ├── Conflict             409 on a precondition (resourceVersion or uid)
    │   ├── Forbidden            401, 403: permissions, quota, admission
    │   ├── Invalid              400, 405, 413, 422: the same request will never succeed
    │   ├── RateLimited          429, possibly with a Retry-After
    │   └── Unavailable          no connection, 5xx
    │       └── OutcomeUnknown   a write was sent and its answer lost: it may have been applied
    └── RayError                 a Ray head pod
        ├── HeadUnreachable      no connection: the head is starting or gone
        │   └── HeadSilent       no answer in time: each such request costs its whole timeout
        ├── HeadRefused          401, 403: the head of another cluster, or another key
        ├── HeadBusy             an answer that asks to retry later
        └── HeadNonsense         not an answer of Ray's job API or of our exporter

`transient` errors are retried with backoff and logged; the others also become a Warning event.
"""

from __future__ import annotations


class OutsideError(Exception):
    """Any error that an adapter raises."""

    transient = False

    @property
    def reason(self) -> str:
        """The name for metrics and logs."""
        return type(self).__name__


class ClusterError(OutsideError):
    """A request to the Kubernetes API failed."""


class NotFound(ClusterError):  # noqa: N818 - Kubernetes' own names of its failures, here and below
    """The object or its kind does not exist."""


class AlreadyExists(ClusterError):  # noqa: N818
    """The name is already in use."""


class Conflict(ClusterError):  # noqa: N818
    """The object does not match the precondition."""

    transient = True


class Forbidden(ClusterError):  # noqa: N818
    """Permissions, quota or admission reject the request."""


class Invalid(ClusterError):  # noqa: N818
    """The request is invalid and will not succeed when repeated."""


class RateLimited(ClusterError):  # noqa: N818
    """The server asks to wait before the next request."""

    transient = True

    def __init__(self, message: str, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(ClusterError):  # noqa: N818
    """There is no connection, or the server failed."""

    transient = True


class OutcomeUnknown(Unavailable):
    """A write was sent and its answer was not received, so it may have been applied."""


class RayError(OutsideError):
    """A request to a head pod failed."""


class HeadUnreachable(RayError):  # noqa: N818
    """There is no connection, or it ended before the answer was complete."""

    transient = True


class HeadSilent(HeadUnreachable):
    """There is no answer in time."""


class HeadRefused(RayError):  # noqa: N818
    """The head has another token."""


class HeadOpen(RayError):  # noqa: N818
    """The head accepts requests without a token."""


class HeadBusy(RayError):  # noqa: N818
    """The head cannot handle the request yet."""

    transient = True


class HeadNonsense(RayError):  # noqa: N818
    """The answer is too long, not JSON, or violates the contract."""
