"""What a job brings along beside its image: code, initializers, secrets, helper services, an earlier checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rljob.api.base import ATOMIC, Count, Label, Model, NonNegative, ObjectName, Path, Quantity, keyed_by
from rljob.api.pods import EnvName, EnvVar, ObjectReference

Word = Annotated[str, Field(max_length=4096)]
Command = Annotated[list[Word], Field(max_length=64, json_schema_extra=ATOMIC)]


class CodeClaim(Model):
    """A folder of a PersistentVolumeClaim."""

    claim_name: ObjectName
    """A claim of the job's namespace."""
    sub_path: Annotated[str, Field(max_length=1024)] | None = None
    """Folder in the volume; default: its root."""


class GitSource(Model):
    """One commit of a Git repository, fetched by every pod before Ray starts."""

    url: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^(https?|git|file)://[^@]+$")]
    """Address of the repository, without credentials: those come through secretRef."""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$", max_length=40)]
    """Full commit hash: a branch could move between two pods."""
    sub_path: Annotated[str, Field(max_length=1024)] | None = None
    """Folder in the repository; default: its root."""
    secret_ref: ObjectReference | None = None
    """Secret of type kubernetes.io/basic-auth for a private repository."""


class Code(Model):
    """Where reward functions and scripts come from, beside the image."""

    REPLACED_WHOLE: ClassVar[bool] = True
    MEMBERS_BY_TYPE: ClassVar[Mapping[str, str]] = {
        "ConfigMap": "configMap",
        "PVC": "persistentVolumeClaim",
        "Git": "git",
    }

    type: Literal["Image", "ConfigMap", "PVC", "Git"] = "Image"
    """Which of the sources holds the code."""
    config_map: ObjectReference | None = None
    """A ConfigMap of the job's namespace, one file a key; copied when the job begins, so later edits do no harm."""
    persistent_volume_claim: CodeClaim | None = None
    """A folder of a volume, mounted read-only."""
    git: GitSource | None = None
    """A commit."""
    mount_path: Path = "/code"
    """Where the code appears in every container."""


class Initializer(Model):
    """A Job that runs to its end before any NPU is held: downloads, conversions, data preparation."""

    name: Label
    """Its name among the initializers."""
    command: Annotated[list[Word], Field(min_length=1, max_length=64, json_schema_extra=ATOMIC)]
    """Program and arguments."""
    image: ObjectName | None = None
    """Default: runtime.image."""
    creates: Path | None = None
    """What the command makes, last of all: where it is there already, the command is skipped."""
    env: Annotated[list[EnvVar], Field(max_length=64, json_schema_extra=keyed_by("name"))] = []
    """Further variables; those of the worker group are set too."""
    cpu: Quantity | None = None
    """CPU request."""
    memory: Quantity | None = None
    """Memory request and limit."""
    retries: NonNegative = 2
    """Further tries after a failure."""
    timeout_seconds: Count = 3600
    """Bound on all tries together."""


class SecretItem(Model):
    """One key as a variable."""

    key: Annotated[str, Field(min_length=1, max_length=253)]
    """Key in the Secret's data."""
    env: EnvName
    """Name of the variable."""


class SecretReference(Model):
    """A Secret whose keys become variables of the Ray containers and initializers: tracker keys, hub tokens."""

    name: ObjectName
    """A Secret of the job's namespace."""
    items: Annotated[list[SecretItem], Field(max_length=32, json_schema_extra=keyed_by("env"))] = []
    """Which keys, under which names; default: all keys under their own names."""


class Service(Model):
    """A helper beside Ray in every pod, such as a code sandbox or a reward model: always at localhost:<port>."""

    name: Label
    """Its name among the services."""
    image: ObjectName
    """Image of the container."""
    command: Command = []
    """Default: the image's."""
    args: Command = []
    """Arguments of the command."""
    port: Annotated[int, Field(ge=1, le=65_535, json_schema_extra={"format": "int32"})]
    """Where it listens; Ray starts once it accepts connections."""
    env: Annotated[list[EnvVar], Field(max_length=64, json_schema_extra=keyed_by("name"))] = []
    """Variables."""
    cpu: Quantity | None = None
    """CPU request."""
    memory: Quantity | None = None
    """Memory request and limit."""


class CheckpointSource(Model):
    """A checkpoint to begin from."""

    REPLACED_WHOLE: ClassVar[bool] = True
    EXACTLY_ONE_OF: ClassVar[tuple[str, ...]] = ("job", "path")

    job: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    """An RLJob of the same namespace; its checkpoint.path is read."""
    path: Path | None = None
    """A checkpoint folder of verl, with global_step_<n> in it."""
    step: Count | None = None
    """Default: the last complete one."""
