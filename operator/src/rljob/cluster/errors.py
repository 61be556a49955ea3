"""How the outside world can fail, as few types as the callers distinguish.

    OutsideError
    ├── ClusterError             the Kubernetes API
    │   ├── NotFound             404
    │   ├── AlreadyExists        409 on create
    │   ├── Conflict             409 on a precondition (resourceVersion or uid)
    │   ├── Forbidden            401, 403: permissions, quota, admission
    │   ├── Invalid              400, 405, 413, 422: the same request will never work
    │   ├── RateLimited          429, with the server's wish for a pause
    │   └── Unavailable          no connection, 5xx
    │       └── OutcomeUnknown   a write was sent and its answer lost: it may be done
    └── RayError                 a Ray head pod
        ├── HeadUnreachable      no connection or no answer in time: a young head, or a dead one
        ├── HeadRefused          401, 403: another cluster's head, or another key
        ├── HeadBusy             an answer that says: again later
        └── HeadNonsense         not an answer of Ray's job API or of our exporter

`transient` errors are retried with backoff and told in the log; the others also become a Warning event.
"""

from __future__ import annotations


class OutsideError(Exception):
    """Anything that an adapter raises."""

    transient = False

    @property
    def reason(self) -> str:
        """The name for metrics and logs."""
        return type(self).__name__


class ClusterError(OutsideError):
    """The Kubernetes API did not do as asked."""


class NotFound(ClusterError):  # noqa: N818 - Kubernetes' own names of its failures, here and below
    """The object, or its kind, is not there."""


class AlreadyExists(ClusterError):  # noqa: N818
    """The name is taken."""


class Conflict(ClusterError):  # noqa: N818
    """The object is not the one that the precondition names."""

    transient = True


class Forbidden(ClusterError):  # noqa: N818
    """Permissions, quota or admission say no."""


class Invalid(ClusterError):  # noqa: N818
    """The request is wrong and stays wrong."""


class RateLimited(ClusterError):  # noqa: N818
    """The server asks for a pause."""

    transient = True

    def __init__(self, message: str, retry_after_seconds: float) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(ClusterError):  # noqa: N818
    """No connection, or the server failed."""

    transient = True


class OutcomeUnknown(Unavailable):
    """A write was sent, its answer was not received: it may have been done."""


class RayError(OutsideError):
    """A head pod did not do as asked."""


class HeadUnreachable(RayError):  # noqa: N818
    """No connection, or no answer in time."""

    transient = True


class HeadRefused(RayError):  # noqa: N818
    """The token is not the one of this head."""


class HeadBusy(RayError):  # noqa: N818
    """The head cannot do it yet."""

    transient = True


class HeadNonsense(RayError):  # noqa: N818
    """The answer is too long, not JSON, or not what the contract says."""
