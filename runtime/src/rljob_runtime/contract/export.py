"""One export of a checkpoint: what the operator asks for, and what the container reports at its end.

A request contains no credentials; those are variables of the container.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rljob_runtime.contract import codec

CHECKPOINT_SCORE = "rljob-score.json"
"""In the folder of a step: the score by which the best checkpoint is chosen."""
EXPORT_MANIFEST = "rljob-export.json"
"""In an exported folder: where the model comes from, and the SHA-256 of every file."""
RESULT_BYTES_MAX = 4096
"""The kubelet keeps so much of a termination message (kubernetes v1.36.2, pkg/kubelet/container/runtime.go,
MaxContainerTerminationMessageLength)."""


class ExportPlace(enum.StrEnum):
    """Where an export goes."""

    FOLDER = "Folder"
    HUGGING_FACE = "HuggingFace"
    MODEL_SCOPE = "ModelScope"
    MLFLOW = "MLflow"


@dataclass(frozen=True)
class ExportRequest:
    """What to export."""

    namespace: str
    job: str
    uid: str
    """The RLJob."""
    checkpoint: str
    """Folder of the job's checkpoints."""
    step: int
    """0: the complete step with the best score."""
    place: ExportPlace
    folder: str = ""
    """For a folder: each export is a folder of its own below it."""
    repository: str = ""
    private: bool = True
    address: str = ""
    """URL of the hub or of the tracking server; empty for the hub's own."""
    experiment: str = ""
    trust_remote_code: bool = False

    def to_json(self) -> bytes:
        """Return canonical bytes."""
        return codec.dumps(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> ExportRequest:
        """Read one, strictly. Raises ContractError."""
        return codec.loads(cls, data)


@dataclass(frozen=True)
class ExportResult:
    """How an export ended: the termination message of its container."""

    reason: str
    """A CamelCase word."""
    message: str = ""
    step: int = 0
    path: str = ""
    """Where the export is: a folder or a URL."""
    digest: str = ""
    """SHA-256 of its manifest."""
    size: int = 0
    """Bytes of the model's files."""

    def to_json(self) -> bytes:
        """Return canonical bytes."""
        return codec.dumps(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> ExportResult:
        """Read one, leniently. Raises ContractError."""
        return codec.loads(cls, data, strict=False)
