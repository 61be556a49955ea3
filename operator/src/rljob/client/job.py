"""An RLJob as the client returns it: what the API server sent, with the status as a typed object. Immutable."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from rljob.api.printing import one_line
from rljob.api.status import RLJobStatus, State
from rljob.client.errors import RLJobError
from rljob.reading import figures

ENDED: Final = frozenset({State.SUCCEEDED, State.FAILED, State.STOPPED, State.INVALID})
"""States that do not change without a change of the spec."""
FAILED: Final = frozenset({State.FAILED, State.INVALID})


@dataclass(frozen=True)
class Job:
    """An RLJob at one moment. It does not change; `get`, `watch` and `wait` return newer ones."""

    namespace: str
    name: str
    uid: str
    created: datetime
    spec: Mapping[str, Any] = field(repr=False)
    """The spec as it was written, without the fields that a recipe supplies. `validate` returns the merged one."""
    status: RLJobStatus = field(repr=False)
    """What the operator has observed."""
    manifest: Mapping[str, Any] = field(repr=False, compare=False)
    """The whole object, as the API server sent it."""

    @property
    def state(self) -> State:
        """Return the summary of the status, such as Training."""
        return self.status.state

    @property
    def ended(self) -> bool:
        """Return whether the job has ended, well or not."""
        return self.state in ENDED

    @property
    def failed(self) -> bool:
        """Return whether the job ended in Failed or Invalid."""
        return self.state in FAILED

    def __str__(self) -> str:
        """Return one line: where, state, progress, and the message of the state."""
        progress = self.status.progress
        words = [f"{self.namespace}/{self.name}", self.state.value]
        if progress is not None:
            shown = progress.model_dump(by_alias=True, exclude_none=True)
            words += [figures.steps(shown)] if figures.steps(shown) != figures.ABSENT else []
            words += [f"reward {figures.reward(progress.reward)}"] if progress.reward is not None else []
        line = "  ".join(words)
        return f"{line}: {one_line(self.status.message)}" if self.status.message else line


class EventType(enum.StrEnum):
    """What happened to a job."""

    ADDED = "Added"
    """It exists: when the watch began, or since it was created."""
    MODIFIED = "Modified"
    DELETED = "Deleted"


@dataclass(frozen=True)
class JobEvent:
    """A change that a watch has seen."""

    type: EventType
    job: Job
    """The job after the change; of a deleted one, its last state."""


class LogRole(enum.StrEnum):
    """Whose log to read."""

    DRIVER = "driver"
    """The trainer: its own lines, and those that Ray forwards from workers on all nodes."""
    HEAD = "head"
    """The container of Ray's head."""
    WORKER = "worker"
    """The container of a Ray worker."""


Row = dict[str, Any]
"""The metrics of one step, or an answer of the model, with attempt and step: a row for `pandas.DataFrame`."""
Rows = list[Row]


def read_job(manifest: Mapping[str, Any]) -> Job:
    """Return the job of a manifest that the API server sent."""
    metadata = manifest["metadata"]
    try:
        status = RLJobStatus.model_validate(manifest.get("status") or {})
    except ValidationError as error:
        raise RLJobError(
            f"rljob {metadata['namespace']}/{metadata['name']}: its status is not one that this release knows "
            f"({error.error_count()} fields); install the rljob of the operator's release"
        ) from error
    return Job(
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        datetime.fromisoformat(metadata["creationTimestamp"]),
        manifest.get("spec") or {},
        status,
        manifest,
    )
