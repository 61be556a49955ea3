"""What an initializer of type Model, Dataset or Conversion does, as the operator asks for it.

The request is an argument of `python -m rljob_runtime initialize`, which everyone who may read the Job sees, so it
holds no secret: the token of a hub is in the variable TOKEN_VARIABLE.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rljob_runtime.contract import codec

TOKEN_VARIABLE = "RLJOB_HUB_TOKEN"  # noqa: S105 - a name
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""Set by Kubernetes in the pods of a Job of completion mode Indexed."""
SOURCE_FOLDER = "/rljob-source"
"""Where the claim of source PVC is mounted."""


class DatasetName(enum.StrEnum):
    """Data sets that the runtime can convert to verl's columns."""

    GSM8K = "GSM8K"
    MATH_LIGHTEVAL = "MATHLighteval"
    DAPO_MATH = "DAPOMath"
    AIME_2024 = "AIME2024"
    DEEP_SCALE_R = "DeepScaleR"


class Hub(enum.StrEnum):
    """Protocols of hubs."""

    HUGGING_FACE = "HuggingFace"
    MODEL_SCOPE = "ModelScope"


@dataclass(frozen=True)
class InitializerRequest:
    """A download or a conversion. Without hub, the files are copied or converted from a folder."""

    to: str
    source: str = ""
    """Folder with the files; empty for a hub."""
    hub: Hub | None = None
    endpoint: str = ""
    """URL of the hub or its mirror; empty for the hub itself."""
    repository: str = ""
    """Owner and name; empty for a data set, whose repository the runtime knows."""
    revision: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    sha256: str = ""
    """SHA-256 of the list of files; empty to accept what the hub states."""
    dataset: DatasetName | None = None
    convert: bool = False
    """Whether FP8 weights of `source` become bf16."""
    checkpoint: bool = codec.added(default=False)
    """Whether a checkpoint of verl in `source` becomes a model in the format of Hugging Face."""
    step: int = codec.added(default=0)
    """Step of the checkpoint; 0: the last complete one."""
    trust_remote_code: bool = codec.added(default=False)
    """Whether the model's own code may run."""
    pods: int = codec.added(default=1)
    """Number of pods that share a conversion; each finds its own index in INDEX_VARIABLE."""

    def to_argument(self) -> str:
        """Return the request as JSON."""
        return codec.dumps(self).decode()

    @classmethod
    def from_argument(cls, text: str) -> InitializerRequest:
        """Read one. Raises ContractError."""
        return codec.loads(cls, text)
