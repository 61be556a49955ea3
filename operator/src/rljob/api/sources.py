"""What a job uses in addition to its image: code, initializers, secrets, helper services and an earlier checkpoint."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rljob.api import forms
from rljob.api.base import ATOMIC, Count, Label, Model, NonNegative, ObjectName, Path, Quantity, keyed_by
from rljob.api.pods import EnvName, EnvVar, KeySelector, ObjectReference, Word
from rljob_runtime.contract.downloads import DatasetName

Command = Annotated[list[Word], Field(max_length=32, json_schema_extra=ATOMIC)]


class CodeClaim(Model):
    """A folder of a PersistentVolumeClaim."""

    claim_name: ObjectName
    """Name of the claim, in the job's namespace."""
    sub_path: Annotated[str, Field(max_length=1024)] | None = None
    """Folder in the volume. Defaults to the volume's root."""


class GitSource(Model):
    """One commit of a Git repository, which every pod fetches before Ray starts."""

    url: Annotated[str, Field(min_length=1, max_length=1024, pattern=forms.REPOSITORY_URL.pattern)]
    """URL of the repository, without credentials. Provide credentials with secretRef."""
    revision: Annotated[str, Field(pattern=forms.COMMIT.pattern, max_length=40)]
    """Full commit hash. Branches and tags are not accepted, because they could move between two pods."""
    sub_path: Annotated[str, Field(max_length=1024)] | None = None
    """Folder in the repository. Defaults to the repository's root."""
    secret_ref: ObjectReference | None = None
    """Secret of type kubernetes.io/basic-auth for a private repository."""


class Code(Model):
    """Source of reward functions and scripts that are not in the image."""

    REPLACED_WHOLE: ClassVar[bool] = True
    MEMBERS_BY_TYPE: ClassVar[Mapping[str, str]] = {
        "ConfigMap": "configMap",
        "PVC": "persistentVolumeClaim",
        "Git": "git",
    }

    type: Literal["Image", "ConfigMap", "PVC", "Git"] = "Image"
    """Source that holds the code. Image: the image contains it, and the other sources are not set. Defaults to Image.
    """
    config_map: ObjectReference | None = None
    """ConfigMap in the job's namespace, mounted as one file per key. It is copied when the job starts, so later edits
    have no effect on the job."""
    persistent_volume_claim: CodeClaim | None = None
    """Folder of a volume, mounted read-only."""
    git: GitSource | None = None
    """Commit of a Git repository."""
    mount_path: Path = "/code"
    """Path of the code in every container. Defaults to /code."""


class DownloadSource(enum.StrEnum):
    """Where the files of a repository come from."""

    HUGGING_FACE = "HuggingFace"
    MODEL_SCOPE = "ModelScope"
    PATH = "Path"
    """A folder on a volume of the worker group."""
    PVC = "PVC"
    """A folder of another PersistentVolumeClaim, mounted read-only."""


Globs = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=255)]], Field(max_length=32, json_schema_extra=ATOMIC)
]


class Download(Model):
    """A model, or a data set that is converted to the columns that verl reads."""

    dataset: DatasetName | None = None
    """Data set, for type Dataset. It is written as train.parquet and test.parquet: AIME2024 has only a test set,
    DAPOMath only a training set, and every tenth prompt of DeepScaleR is in its test set."""
    repository: Annotated[str, Field(max_length=255, pattern=forms.HUB_REPOSITORY.pattern)] | None = None
    """Owner and name on the hub, such as Qwen/Qwen3-8B. Required for type Model; defaults to the data set's own."""

    source: DownloadSource = DownloadSource.HUGGING_FACE
    """HuggingFace or ModelScope: a hub or a mirror of it. Path: a folder on a volume of the worker group. PVC: a
    folder of another claim. Defaults to HuggingFace."""
    revision: Annotated[str, Field(max_length=255, pattern=forms.HUB_REVISION.pattern)] | None = None
    """Branch, tag or commit, for a hub. Defaults to main on Hugging Face and to master on ModelScope."""
    endpoint: Annotated[str, Field(max_length=1024, pattern=forms.HUB_URL.pattern)] | None = None
    """URL of a mirror of the hub. Defaults to https://huggingface.co or https://www.modelscope.cn."""
    credentials: KeySelector | None = None
    """Key of a Secret with a token of the hub, which is sent only to the host of endpoint."""
    path: Path | None = None
    """Folder with the files, for source Path."""
    claim: CodeClaim | None = None
    """Claim with the files, for source PVC."""
    include: Globs = []
    """Patterns of the files to take, such as *.safetensors, for type Model. Defaults to all."""
    exclude: Globs = []
    """Patterns of files to leave out, such as original/*, for type Model."""
    to: Path
    """Folder to write to, on a volume that all pods share. It is created."""
    sha256: Annotated[str, Field(max_length=64, pattern=forms.SHA256.pattern)] | None = None
    """SHA-256 of .rljob/SHA256SUMS in `to`, which lists the files that were downloaded; the log states it. Other files
    end the job. Unset, files are compared with what the hub states."""


class ConversionFormat(enum.StrEnum):
    """Conversions of weights."""

    FP8_TO_BF16 = "FP8ToBF16"
    """Weights in FP8 with a scale per block, as DeepSeek publishes them, become bf16."""
    CHECKPOINT = "Checkpoint"
    """A checkpoint of verl becomes a model in the format of Hugging Face."""


class Conversion(Model):
    """Conversion of a model into another folder."""

    format: ConversionFormat = ConversionFormat.FP8_TO_BF16
    """FP8ToBF16: weights in FP8 with a scale per block, as DeepSeek publishes them, become bf16. Checkpoint: a step
    that verl saved becomes Hugging Face files; one of another step in `to` is replaced. Defaults to FP8ToBF16."""
    from_: Annotated[Path, Field(alias="from")]
    """Folder with the model's Hugging Face files, or with checkpoints."""
    step: Count | None = None
    """Step to convert, for Checkpoint. Defaults to the last complete one."""
    to: Path
    """Folder to write to, on a volume that all pods share. It is created."""
    pods: Annotated[int, Field(ge=1, le=64, json_schema_extra={"format": "int32"})] = 1
    """Number of pods that share the weight files, for FP8ToBF16. Defaults to 1."""


class InitializerType(enum.StrEnum):
    """What an initializer does."""

    COMMAND = "Command"
    MODEL = "Model"
    DATASET = "Dataset"
    CONVERSION = "Conversion"


class Initializer(Model):
    """A Job that runs to completion before any NPU is allocated, for downloads, conversions and data preparation."""

    name: Label
    """Name of the initializer, unique in the list."""
    type: InitializerType = InitializerType.COMMAND
    """Command: run command. Model, Dataset: run download. Conversion: run conversion. All but Command continue where a
    killed try ended, and are skipped if their result exists. Defaults to Command."""
    command: Command = []
    """Program and arguments to run, for type Command."""
    download: Download | None = None
    """What to download, for types Model and Dataset."""
    conversion: Conversion | None = None
    """Weights to convert, for type Conversion."""
    image: ObjectName | None = None
    """Image to run. Defaults to runtime.image."""
    creates: Path | None = None
    """Path that the command creates as its last step. If the path exists already, the command is skipped."""
    env: Annotated[list[EnvVar], Field(max_length=32, json_schema_extra=keyed_by("name"))] = []
    """Additional environment variables. The variables of the worker group are set too."""
    cpu: Quantity | None = None
    """CPU request. The limit is the same, but at least 4. Defaults to 100m."""
    memory: Quantity | None = None
    """Memory request and limit. Defaults to a request of 256Mi and a limit of 64Gi."""
    retries: NonNegative = 2
    """Number of retries after a failure. Defaults to 2."""
    timeout_seconds: Count = 3600
    """Seconds that all tries together may take. Defaults to 3600."""


class SecretItem(Model):
    """A key of a Secret that becomes an environment variable."""

    key: Annotated[str, Field(min_length=1, max_length=253)]
    """Key in the Secret's data."""
    env: EnvName
    """Name of the environment variable."""


class SecretReference(Model):
    """A Secret whose keys become variables of the Ray containers and initializers, such as tracker keys."""

    name: ObjectName
    """Name of the Secret, in the job's namespace."""
    items: Annotated[list[SecretItem], Field(max_length=32, json_schema_extra=keyed_by("env"))] = []
    """Keys to use and the variables that they become. Defaults to all keys under their own names."""


class ServicePlacement(enum.StrEnum):
    """Where a service runs."""

    POD = "Pod"
    """In every Ray pod, at localhost:<port>."""
    SHARED = "Shared"
    """In pods of its own, which all pods of the job share, at the address of a Kubernetes Service."""


class Service(Model):
    """A helper of the Ray pods, such as a code sandbox or a reward model.

    The Ray containers find its URL in RLJOB_SERVICE_<NAME>_URL.
    """

    name: Label
    """Name of the service, unique in the list."""
    image: ObjectName
    """Image of the container."""
    command: Command = []
    """Command of the container. Defaults to the image's command."""
    args: Command = []
    """Arguments of the command."""
    port: Annotated[int, Field(ge=1, le=65_535, json_schema_extra={"format": "int32"})]
    """Port that the service listens on. Ray starts when the port accepts connections."""
    placement: ServicePlacement = ServicePlacement.POD
    """Pod: beside Ray in every pod, at localhost:<port>. Shared: in pods of its own without NPUs, which start before
    the Ray pods and are deleted when the job ends or is suspended. Defaults to Pod."""
    replicas: Annotated[int, Field(ge=1, le=64, json_schema_extra={"format": "int32"})] = 1
    """Number of pods of a Shared service. Defaults to 1."""
    env: Annotated[list[EnvVar], Field(max_length=32, json_schema_extra=keyed_by("name"))] = []
    """Environment variables of the container."""
    cpu: Quantity | None = None
    """CPU request. The limit is the same, but at least 4. Defaults to 100m."""
    memory: Quantity | None = None
    """Memory request and limit. Defaults to a request of 256Mi and a limit of 16Gi."""


class CheckpointSource(Model):
    """A checkpoint to start from."""

    REPLACED_WHOLE: ClassVar[bool] = True
    EXACTLY_ONE_OF: ClassVar[tuple[str, ...]] = ("job", "path")

    job: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    """Name of an RLJob in the same namespace, whose checkpoint.path is read."""
    path: Path | None = None
    """Checkpoint folder of verl, which contains global_step_<n>."""
    step: Count | None = None
    """Step to start from. Defaults to the last complete one."""
