"""Python client of RLJob: create, follow and control jobs from programs and notebooks.

    from rljob.client import Client

    with Client() as client:
        job = client.create(manifest)
        client.wait(job, timeout=3600, on_change=print)
        rows = client.metrics(job)

`AsyncClient` has the same methods as coroutines. What is listed in `__all__` is the interface; everything else may
change. Exceptions are in a tree below `RLJobError` (`rljob.client.errors`).
"""

from __future__ import annotations

from rljob.api.status import RLJobStatus, State
from rljob.api.v1alpha1 import RLJobSpec

try:
    from rljob.client.asynchronous import AsyncClient, RLJobWarning
except ModuleNotFoundError as error:
    raise ImportError(
        f"rljob.client needs {error.name}, which is not installed; run: pip install 'rljob[client]'"
    ) from error
from rljob.client.blocking import Client
from rljob.client.checks import Validated
from rljob.client.errors import (
    AlreadyExists,
    ConfigurationError,
    Conflict,
    Deleted,
    Forbidden,
    Invalid,
    JobEnded,
    JobFailed,
    NotAvailable,
    NotFound,
    NotInstalled,
    OutcomeUnknown,
    RLJobError,
    Timeout,
    Unauthorized,
    Unreachable,
)
from rljob.client.job import EventType, Job, JobEvent, LogRole, Row, Rows
from rljob.client.watching import Until
from rljob.core.validation.violation import Violation

__all__ = [
    "AlreadyExists",
    "AsyncClient",
    "Client",
    "ConfigurationError",
    "Conflict",
    "Deleted",
    "EventType",
    "Forbidden",
    "Invalid",
    "Job",
    "JobEnded",
    "JobEvent",
    "JobFailed",
    "LogRole",
    "NotAvailable",
    "NotFound",
    "NotInstalled",
    "OutcomeUnknown",
    "RLJobError",
    "RLJobSpec",
    "RLJobStatus",
    "RLJobWarning",
    "Row",
    "Rows",
    "State",
    "Timeout",
    "Unauthorized",
    "Unreachable",
    "Until",
    "Validated",
    "Violation",
]
