"""Exceptions of the client: one class for each case that callers handle differently.

    RLJobError
    ├── ConfigurationError    no kubeconfig and no service account, or one that cannot be used
    ├── Unreachable           the API server does not answer, or it fails
    │   └── OutcomeUnknown    a write was sent and its answer was lost: look before you repeat it
    ├── Unauthorized          the credentials are missing, wrong or expired
    ├── Forbidden             the account may not do this, or a policy or quota of the cluster refuses it
    ├── NotInstalled          the cluster has no RLJobs: the chart rljob-operator is not installed
    ├── NotFound              there is no such job
    │   └── Deleted           the job was deleted while it was followed
    ├── AlreadyExists         the name is in use
    ├── Conflict              the object changed in the meantime
    ├── Invalid               the job is refused; `violations` has every error with its field
    ├── NotAvailable          logs or metrics cannot be read: not yet, or not any more
    ├── JobEnded              the job ended before the state that was waited for; `job` is its last state
    │   └── JobFailed         it ended in Failed or Invalid
    └── Timeout               the deadline of a wait has passed; also a TimeoutError; `job` is the last state

Every message says what was seen, where, and what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rljob.core.validation.violation import Violation

if TYPE_CHECKING:
    from rljob.client.job import Job


class RLJobError(Exception):
    """Base class of all exceptions of the client."""


class ConfigurationError(RLJobError):
    """There is no usable kubeconfig, and no service account."""


class Unreachable(RLJobError):  # noqa: N818 - the short names, here and below, as Kubernetes has them
    """The API server does not answer, or answers that it has failed."""


class OutcomeUnknown(Unreachable):
    """A write was sent, but its answer was lost, so it may have been applied."""


class Unauthorized(RLJobError):  # noqa: N818
    """The credentials are missing, wrong or expired."""


class Forbidden(RLJobError):  # noqa: N818
    """The account has no permission, or a policy or quota of the cluster refuses the request."""


class NotInstalled(RLJobError):  # noqa: N818
    """The cluster has no RLJobs."""


class NotFound(RLJobError):  # noqa: N818
    """The job, or another object that the request needs, does not exist."""


class Deleted(NotFound):
    """The job was deleted while it was followed."""


class AlreadyExists(RLJobError):  # noqa: N818
    """The name is in use."""


class Conflict(RLJobError):  # noqa: N818
    """The object changed in the meantime, or another one has its name."""


class Invalid(RLJobError):  # noqa: N818
    """The job is refused, by the checks of this client or by the API server."""

    def __init__(self, message: str, violations: tuple[Violation, ...] = ()) -> None:
        super().__init__("\n  ".join([message, *map(str, violations)]))
        self.violations = violations


class NotAvailable(RLJobError):  # noqa: N818
    """Logs or metrics cannot be read: the run has not begun, or its pods are gone and nothing was kept."""


class JobEnded(RLJobError):  # noqa: N818
    """The job ended before it reached the state that was waited for."""

    def __init__(self, message: str, job: Job) -> None:
        super().__init__(message)
        self.job = job


class JobFailed(JobEnded):
    """The job ended in Failed or Invalid."""


class Timeout(RLJobError, TimeoutError):  # noqa: N818
    """The deadline of a wait has passed."""

    def __init__(self, message: str, job: Job | None) -> None:
        super().__init__(message)
        self.job = job
