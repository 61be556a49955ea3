"""RLJob v1alpha1: the spec that a user writes. Statements about a field stand under it and reach the CRD.

Types hold bounds and defaults; arithmetic across fields is `core.policies.validation`, so that all violations are
told at once.
"""

from __future__ import annotations

import enum
from typing import Annotated, Literal

from pydantic import Field

from rljob.api.base import (
    ATOMIC,
    RULES,
    Anything,
    Count,
    Decimal,
    Label,
    Model,
    NonNegative,
    ObjectName,
    Path,
    keyed_by,
    rule,
)
from rljob.api.pods import PodTemplate

GROUP = "rljob.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
MAX_NAME_LENGTH = 40
MANAGER = f"{GROUP}/operator"


class AcceleratorClass(enum.StrEnum):
    """Rows of the accelerator table (`build.accelerators`)."""

    ATLAS_A3_SUPERPOD = "atlas-a3-superpod"
    ATLAS_A2 = "atlas-a2"
    CPU = "cpu"


class Runtime(Model):
    """The image and how it is pulled."""

    image: ObjectName
    ray_version: Annotated[str, Field(max_length=32, pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")] = "2.60.0"
    """Version of Ray in the image."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: Annotated[list[ObjectName], Field(max_length=8, json_schema_extra=ATOMIC)] = []
    service_account_name: ObjectName | None = None


class Scheduling(Model):
    """How the job is queued."""

    queue_name: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """Kueue LocalQueue; the cluster is created suspended and Kueue starts it."""


class Accelerator(Model):
    """The hardware."""

    class_: Annotated[AcceleratorClass, Field(alias="class")]
    """A row of the accelerator table: resource name, devices of a node, dies of a card."""


class Head(Model):
    """The pod with Ray's head, the driver and the exporter; it holds no NPU."""

    template: PodTemplate = PodTemplate()


class WorkerGroup(Model):
    """Pods that train and generate, one a node."""

    name: Label = "trainer"
    nodes: Count = 1
    devices_per_node: Count
    """NPU devices (dies) of each pod."""
    template: PodTemplate = PodTemplate()


class ConfigMapReference(Model):
    """A ConfigMap of the job's namespace."""

    name: ObjectName


class Code(Model):
    """Where reward functions and scripts come from, beside the image."""

    model_config = {
        "json_schema_extra": {
            RULES: [
                rule(
                    "!has(self.type) || (self.type == 'ConfigMap') == has(self.configMap)",
                    "configMap goes with type ConfigMap, and only with it",
                )
            ]
        }
    }

    type: Literal["Image", "ConfigMap"] = "Image"
    config_map: ConfigMapReference | None = None
    mount_path: Path = "/code"


class Initializer(Model):
    """A Job that runs to its end before any NPU is held: downloads, conversions, data preparation."""

    name: Label
    command: Annotated[
        list[Annotated[str, Field(max_length=4096)]], Field(min_length=1, max_length=64, json_schema_extra=ATOMIC)
    ]
    image: ObjectName | None = None
    """Default: runtime.image."""
    retries: NonNegative = 2
    timeout_seconds: Count = 3600


class ModelSource(Model):
    """The model to train."""

    path: Path
    """Folder with the Hugging Face files."""


class Data(Model):
    """Prompts."""

    train: Annotated[list[Path], Field(min_length=1, max_length=64, json_schema_extra=ATOMIC)]
    """Parquet files."""
    validation: Annotated[list[Path], Field(max_length=64, json_schema_extra=ATOMIC)] = []
    """Parquet files; default: those of train."""
    max_prompt_tokens: Count = 1024
    max_response_tokens: Count = 1024


class Reward(Model):
    """The rule that scores a response."""

    path: Path
    """Python file."""
    function: Annotated[str, Field(max_length=253, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = "compute_score"
    """Function in that file, with verl's signature (data_source, solution_str, ground_truth, extra_info)."""


class AlgorithmName(enum.StrEnum):
    """Advantage estimators."""

    GRPO = "GRPO"


class Algorithm(Model):
    """The learning rule."""

    name: AlgorithmName = AlgorithmName.GRPO
    kl_coefficient: Decimal = "0"
    """Weight of the KL loss against the reference policy; 0 leaves the reference model out."""


class Trainer(Model):
    """The update."""

    backend: Literal["FSDP2"] = "FSDP2"
    steps: Count
    global_batch_size: Count
    """Prompts of a step."""
    mini_batch_size: Count | None = None
    """Prompts of an optimizer update; default: globalBatchSize."""
    micro_batch_size_per_device: Count | None = None
    """Samples of one forward and backward pass on a device; default: all of the device's share of a mini batch."""
    samples_per_prompt: Count = 8
    """Responses of a prompt: the group of GRPO."""
    learning_rate: Decimal = "1e-6"


class RolloutParallelism(Model):
    """How a replica of the engine is spread."""

    tensor: Count = 1


class Rollout(Model):
    """The generation."""

    engine: Literal["vLLM"] = "vLLM"
    parallelism: RolloutParallelism = RolloutParallelism()
    max_sequences: Count | None = None
    """Sequences that a replica decodes at a time; default: the engine's."""


class Checkpoint(Model):
    """Where and how often the trainer saves."""

    path: Path
    """Folder on a volume that every pod mounts."""
    every_steps: Count


class Deadlines(Model):
    """Bounds on waiting."""

    start_seconds: Count = 1800
    """From the intent to the first sign of the driver."""
    active_seconds: Count | None = None
    """From the submission to the end."""
    progress_seconds: Count = 14400
    """Between two steps; Atlas runs have steps of over two hours."""


class Cleanup(Model):
    """What remains after the end."""

    cluster_after_seconds: NonNegative = 0
    """How long the RayCluster, and so its NPUs, outlives the run."""


class Observability(Model):
    """Where records outlive the pods."""

    log_path: Path | None = None
    """Folder on a volume: step records and the driver's log are mirrored to `<logPath>/<cluster>/attempt-<n>/`."""


class Verl(Model):
    """The rest of verl's configuration."""

    overrides: Annotated[dict[str, Anything], Field(max_length=256)] = {}
    """Hydra key -> JSON scalar or list; keys that a typed field sets are refused."""


class RLJobSpec(Model):
    """What to train, on what, until when."""

    model_config = {
        "json_schema_extra": {
            RULES: [
                rule(
                    "has(self.managedBy) == has(oldSelf.managedBy)"
                    " && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
                    "managedBy cannot change; create the job anew",
                )
            ]
        }
    }

    managed_by: Annotated[str, Field(min_length=1, max_length=253)] = MANAGER
    """Who runs the job; this operator leaves alone what names another one."""
    runtime: Runtime
    scheduling: Scheduling = Scheduling()
    accelerator: Accelerator
    head: Head = Head()
    worker_groups: Annotated[list[WorkerGroup], Field(min_length=1, max_length=1, json_schema_extra=keyed_by("name"))]
    """Exactly one: trainer and rollout share its devices."""
    code: Code = Code()
    initializers: Annotated[list[Initializer], Field(max_length=8, json_schema_extra=keyed_by("name"))] = []
    """Run one after another before the cluster exists."""
    model: ModelSource
    data: Data
    reward: Reward
    algorithm: Algorithm = Algorithm()
    trainer: Trainer
    rollout: Rollout = Rollout()
    checkpoint: Checkpoint | None = None
    deadlines: Deadlines = Deadlines()
    cleanup: Cleanup = Cleanup()
    observability: Observability = Observability()
    verl: Verl = Verl()


NAME_RULES = [
    rule(
        f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
        f"metadata.name is longer than {MAX_NAME_LENGTH} characters; names of pods are made from it",
    ),
    rule(
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name must be lower-case letters, digits and '-', beginning with a letter (DNS-1035)",
    ),
]
