"""RLJob v1alpha1: the spec that a user writes, and the recipes that give it its defaults.

Statements about a field stand under it and reach the CRD. Types hold bounds and defaults; arithmetic across fields is
`core.validation.validate`, so that all violations are told at once.
"""

from __future__ import annotations

import enum
from typing import Annotated, Literal

from pydantic import Field

from rljob.api.base import ATOMIC, Count, Label, Model, ObjectName, Text, keyed_by, rule
from rljob.api.lifecycle import (
    Checkpoint,
    Cleanup,
    Deadlines,
    Network,
    Observability,
    Restart,
    Scheduling,
    Stop,
    StopRule,
)
from rljob.api.pods import PodSpecPatch, PodTemplate
from rljob.api.sources import Code, Initializer, SecretReference, Service
from rljob.api.training import (
    Algorithm,
    Critic,
    Data,
    ModelSource,
    Optimizations,
    Reward,
    Rollout,
    Trainer,
    Verl,
)

GROUP = "rljob.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
MAX_NAME_LENGTH = 40
MANAGER = f"{GROUP}/operator"


class RecipeKind(enum.StrEnum):
    """Where a recipe lives."""

    RL_RECIPE = "RLRecipe"
    """In the job's namespace."""
    CLUSTER_RL_RECIPE = "ClusterRLRecipe"


class RecipeReference(Model):
    """A recipe."""

    kind: RecipeKind = RecipeKind.CLUSTER_RL_RECIPE
    """RLRecipe of the same namespace, or ClusterRLRecipe."""
    name: ObjectName
    """Its name."""


class Runtime(Model):
    """The image and how it is pulled."""

    image: ObjectName
    """Image of the Ray pods."""
    ray_version: Annotated[str, Field(max_length=32, pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")] = "2.60.0"
    """Version of Ray in the image."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the image is pulled."""
    image_pull_secrets: Annotated[list[ObjectName], Field(max_length=8, json_schema_extra=ATOMIC)] = []
    """Secrets of the job's namespace for the registry."""
    service_account_name: ObjectName | None = None
    """Service account of the pods; its token is not mounted."""
    runtime_class_name: ObjectName | None = None
    """RuntimeClass of the worker pods, such as ascend."""


class Accelerator(Model):
    """The hardware."""

    class_: Annotated[Label, Field(alias="class")]
    """A row of the accelerator table: resource name, devices of a node, dies of a card, mounts, labels."""
    driver_mounts: Literal["Auto", "HostPath", "RuntimeClass", "None"] = "Auto"
    """How the node's driver comes into the worker pods. Auto: RuntimeClass where runtime.runtimeClassName is set, else
    as the table says."""


class Head(Model):
    """The pod with Ray's head, the driver and the exporter; it holds no NPU."""

    template: PodTemplate = PodTemplate()
    """What is set on the pod."""


class WorkerGroup(Model):
    """Pods that train and generate, one a node."""

    name: Label
    """Its name among the groups."""
    nodes: Count = 1
    """Pods, one a node."""
    devices_per_node: Count
    """NPU devices (dies) of each pod."""
    template: PodTemplate = PodTemplate()
    """What is set on the pods."""


UnsetPath = Annotated[str, Field(min_length=1, max_length=512)]


class RLJobSpec(Model):
    """What to train, on what, until when."""

    recipe_ref: RecipeReference | None = None
    """A recipe whose fields this spec completes and overrides."""
    unset: Annotated[list[UnsetPath], Field(max_length=64, json_schema_extra=ATOMIC)] = []
    """Fields of the recipe to leave out, such as rollout.captureSizes or workerGroups[trainer].template.env[FOO]."""
    managed_by: Annotated[str, Field(min_length=1, max_length=253)] = MANAGER
    """Who runs the job; this operator leaves alone what names another one."""
    suspend: bool = False
    """True frees the NPUs; false goes on with the spec that the job started with."""
    runtime: Runtime
    """The image and how it is pulled."""
    scheduling: Scheduling = Scheduling()
    """How the job is queued and placed."""
    accelerator: Accelerator
    """The hardware."""
    head: Head = Head()
    """The pod with Ray's head."""
    worker_groups: Annotated[list[WorkerGroup], Field(min_length=1, max_length=1, json_schema_extra=keyed_by("name"))]
    """Exactly one: trainer and rollout share its devices."""
    pod_spec_patch: PodSpecPatch = PodSpecPatch()
    """Patches of the rendered pods."""
    services: Annotated[list[Service], Field(max_length=8, json_schema_extra=keyed_by("name"))] = []
    """Helpers beside Ray in every pod."""
    code: Code = Code()
    """Where reward functions come from."""
    initializers: Annotated[list[Initializer], Field(max_length=8, json_schema_extra=keyed_by("name"))] = []
    """Run one after another before the cluster exists."""
    secret_refs: Annotated[list[SecretReference], Field(max_length=16, json_schema_extra=keyed_by("name"))] = []
    """Secrets whose keys become variables."""
    model: ModelSource
    """The model to train."""
    data: Data
    """Prompts."""
    reward: Reward
    """The rule that scores a response."""
    algorithm: Algorithm = Algorithm()
    """The learning rule."""
    critic: Critic | None = None
    """The value model, with PPO only."""
    trainer: Trainer
    """The update."""
    rollout: Rollout = Rollout()
    """The generation."""
    optimizations: Optimizations = Optimizations()
    """What makes it faster."""
    network: Network = Network()
    """Networking of the pods."""
    checkpoint: Checkpoint | None = None
    """Where and how often the trainer saves."""
    restart: Restart = Restart()
    """How failures are answered."""
    stop_rules: Annotated[list[StopRule], Field(max_length=16, json_schema_extra=keyed_by("name"))] = []
    """When the run ends by its own figures."""
    deadlines: Deadlines = Deadlines()
    """Bounds on waiting."""
    stop: Stop = Stop()
    """How a run is stopped on request."""
    cleanup: Cleanup = Cleanup()
    """What remains after the end."""
    observability: Observability = Observability()
    """Where records outlive the pods."""
    verl: Verl = Verl()
    """The rest of verl's configuration."""

    @property
    def devices(self) -> int:
        """Return the number of NPU devices of all workers."""
        return sum(group.nodes * group.devices_per_node for group in self.worker_groups)


LIVE_RULES = [
    rule(
        "has(self.managedBy) == has(oldSelf.managedBy)"
        " && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
        "managedBy cannot change; create the job anew",
    ),
    rule(
        "!has(self.trainer) || !has(self.trainer.steps) || !has(oldSelf.trainer)"
        " || !has(oldSelf.trainer.steps) || self.trainer.steps >= oldSelf.trainer.steps",
        "trainer.steps may grow, not shrink; use a stop rule or suspend to end a run early",
    ),
]
"""Rules on the change of RLJob.spec; a recipe may change in every way."""

NOT_IN_A_RECIPE = frozenset({"recipeRef", "unset", "managedBy", "suspend"})
"""Fields of RLJob.spec that belong to one job."""


class RecipeSpec(Model):
    """Defaults for jobs: a part of RLJob.spec that was tried on some hardware."""

    description: Annotated[str, Field(max_length=4096)] = ""
    """What the recipe is for."""
    hardware: Text = ""
    """What it was made for, such as 8 nodes of Atlas A3."""
    source: Text = ""
    """Where its figures come from."""
    recipe_ref: RecipeReference | None = None
    """A recipe below this one; at most four deep."""
    unset: Annotated[list[UnsetPath], Field(max_length=64, json_schema_extra=ATOMIC)] = []
    """Fields of the recipe below to leave out."""
    template: RLJobSpec
    """A part of RLJob.spec."""


MAX_RECIPE_DEPTH = 4

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
