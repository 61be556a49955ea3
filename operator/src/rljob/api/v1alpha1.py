"""RLJob v1alpha1: the spec that a user writes, and the recipes that supply its defaults.

The docstring of a field is its description in the CRD. Types hold bounds and defaults. Arithmetic across fields is in
`core.validation.validate`, so that all violations are reported together.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, ValidatorFunctionWrapHandler, field_validator
from pydantic_core import PydanticKnownError

from rljob.api import forms, group
from rljob.api.accelerators import AcceleratorFacts
from rljob.api.base import ATOMIC, Count, Label, Model, ObjectName, Path, Text, keyed_by, rule
from rljob.api.evaluation import Evaluation
from rljob.api.export import Export
from rljob.api.launcher import (
    READS,
    REQUIRES_NOTHING,
    Command,
    Launcher,
    LauncherType,
)
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

GROUP = group.GROUP
VERSION = group.VERSION
API_VERSION = group.API_VERSION
MAX_NAME_LENGTH = 40
MANAGER = f"{GROUP}/operator"


class RecipeKind(enum.StrEnum):
    """Kinds of recipes."""

    RL_RECIPE = "RLRecipe"
    """A recipe in the job's namespace."""
    CLUSTER_RL_RECIPE = "ClusterRLRecipe"


class RecipeReference(Model):
    """A reference to a recipe."""

    kind: RecipeKind = RecipeKind.CLUSTER_RL_RECIPE
    """RLRecipe: a recipe in the same namespace. ClusterRLRecipe: a recipe for all namespaces. Defaults to
    ClusterRLRecipe."""
    name: ObjectName
    """Name of the recipe."""


class Packages(Model):
    """Python packages that the image lacks."""

    requirements: Annotated[
        list[Annotated[str, Field(max_length=512, pattern=forms.PINNED_WHEEL.pattern)]],
        Field(min_length=1, max_length=32, json_schema_extra=ATOMIC),
    ]
    """Wheels to install, with their hashes, as name==version --hash=sha256:…. Nothing that they depend on is installed
    unless it is listed. Not torch, torch_npu or parts of CANN, which belong to the image."""
    wheelhouse: Path | None = None
    """Folder with the wheels, on a volume that the pods mount: a claim or an image. Defaults to a package index, which
    PIP_INDEX_URL in template.env names."""


class Runtime(Model):
    """The image of the Ray pods and how it is pulled."""

    image: ObjectName
    """Image of the Ray pods."""
    ray_version: Annotated[str, Field(max_length=32, pattern=forms.RELEASE.pattern)] = "2.60.0"
    """Version of Ray in the image. Defaults to 2.60.0."""
    unauthenticated_ray: bool = False
    """Run a Ray before 2.52, which has no token authentication: its dashboard and job API listen on 127.0.0.1 only, and
    a NetworkPolicy of the job's own closes all other ports of Ray to other pods. Requires the limit unauthenticated-ray
    of the namespace. Defaults to false."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    """When the image is pulled. Defaults to IfNotPresent."""
    image_pull_secrets: Annotated[list[ObjectName], Field(max_length=8, json_schema_extra=ATOMIC)] = []
    """Secrets in the job's namespace with credentials for the registry."""
    service_account_name: ObjectName | None = None
    """Service account of the pods. Its token is not mounted."""
    runtime_class_name: ObjectName | None = None
    """RuntimeClass of the worker pods, such as ascend."""
    injection: Literal["Auto", "Never"] = "Auto"
    """Auto: an init container copies the operator's runtime into the pods, so that any image with Ray, verl and vLLM in
    the versions of the release can be used, and the exporter runs from the operator's image. Never: the image contains
    the runtime. Defaults to Auto."""
    packages: Packages | None = None
    """Packages that an init container of the image installs before Ray starts. They precede those of the image."""
    _operator_image: str = PrivateAttr(default="")

    def model_post_init(self, context: object, /) -> None:
        """Keep the operator's image, which the validation context of a spec names beside the accelerator table."""
        self._operator_image = str(getattr(context, "operator_image", ""))

    @property
    def injected_image(self) -> str | None:
        """Return the image whose runtime the pods get; None if they use that of their own image."""
        return self._operator_image if self.injection == "Auto" else None

    @property
    def helper_image(self) -> str:
        """Return the image of the helpers that run the runtime's programs beside Ray: exporter and fetch-code."""
        return self.injected_image or self.image


class Accelerator(Model):
    """The hardware to run on."""

    class_: Annotated[Label, Field(alias="class")]
    """Row of the accelerator table, which sets the resource name, devices per node, dies per card, mounts and labels.
    """
    driver_mounts: Literal["Auto", "HostPath", "RuntimeClass", "None"] = "Auto"
    """How the node's driver is made available in the worker pods. Auto: RuntimeClass if runtime.runtimeClassName is
    set, otherwise as the accelerator table states. Defaults to Auto."""
    _table: Mapping[str, AcceleratorFacts] | None = PrivateAttr(default=None)

    def model_post_init(self, context: Mapping[str, AcceleratorFacts] | None, /) -> None:
        """Keep the accelerator table, which pydantic's validation context holds where a spec of a job is parsed."""
        self._table = context

    @property
    def table(self) -> Mapping[str, AcceleratorFacts]:
        """Return the accelerator table that the spec was parsed with. It is not part of the manifest."""
        if self._table is None:
            raise AssertionError(
                f"the spec of class {self.class_} was parsed without an accelerator table; pass it as `context` to "
                "model_validate"
            )
        return self._table


class Head(Model):
    """The head pod, which runs Ray's head, the driver and the exporter. It holds no NPU."""

    template: PodTemplate = PodTemplate()
    """Settings of the head pod."""


class Role(enum.StrEnum):
    """What a group of workers does."""

    TRAINER = "Trainer"
    """Trains the policy."""
    ROLLOUT = "Rollout"
    """Generates responses."""
    JUDGE = "Judge"
    """Serves the model of reward.judge."""


POLICY_ROLES = (Role.TRAINER, Role.ROLLOUT)
"""Roles of workers that train and generate in turns."""


class WorkerGroup(Model):
    """Pods that train, generate, do both, or judge, one per node."""

    name: Label
    """Name of the group."""
    roles: Annotated[list[Role], Field(min_length=1, max_length=2, json_schema_extra=ATOMIC)] = [*POLICY_ROLES]
    """What the group does. trainer.mode SeparateAsync requires one group with role Trainer and one with role Rollout;
    in every other mode one group does both, in turns, and reward.judge requires one more, with role Judge. Defaults to
    Trainer and Rollout."""
    nodes: Count = 1
    """Number of pods, one per node. Defaults to 1."""
    devices_per_node: Count
    """Number of NPU devices (dies) per pod."""
    template: PodTemplate = PodTemplate()
    """Settings of the group's pods."""

    @property
    def devices(self) -> int:
        """Return the number of NPU devices of all pods of the group."""
        return self.nodes * self.devices_per_node


NOT_GIVEN: Final[Any] = object()
"""Stands for a field that the manifest does not set, until `_read_by_the_launcher` has judged it."""


def _not_given() -> Any:  # noqa: ANN401 - of any field
    return NOT_GIVEN


UnsetPath = Annotated[str, Field(min_length=1, max_length=512)]


class RLJobSpec(Model):
    """What to train, on which hardware, and when to stop."""

    recipe_ref: RecipeReference | None = None
    """Recipe that supplies the fields that this spec does not set."""
    unset: Annotated[list[UnsetPath], Field(max_length=64, json_schema_extra=ATOMIC)] = []
    """Fields of the recipe to remove, such as rollout.captureSizes or workerGroups[trainer].template.env[FOO]."""
    managed_by: Annotated[str, Field(min_length=1, max_length=253)] = MANAGER
    """Controller that runs the job. This operator ignores jobs that name another controller. Defaults to
    rljob.dev/operator."""
    suspend: bool = False
    """If true, the run is stopped with a checkpoint and its NPUs are released. Set it back to false to resume
    from the last checkpoint; fields that were edited meanwhile take effect then. Defaults to false."""
    runtime: Runtime
    """The image of the Ray pods and how it is pulled."""
    scheduling: Scheduling = Scheduling()
    """How the job is queued and scheduled."""
    accelerator: Accelerator
    """The hardware to run on."""
    head: Head = Head()
    """The head pod."""
    worker_groups: Annotated[list[WorkerGroup], Field(min_length=1, max_length=2, json_schema_extra=keyed_by("name"))]
    """Worker groups: one that trains and generates, beside one for reward.judge; or with trainer.mode SeparateAsync one
    that trains and one that generates."""
    pod_spec_patch: PodSpecPatch = PodSpecPatch()
    """Strategic merge patches of the rendered pods."""
    services: Annotated[list[Service], Field(max_length=8, json_schema_extra=keyed_by("name"))] = []
    """Helpers that run beside Ray in every pod, or in pods of their own."""
    code: Code = Code()
    """Source of reward functions and scripts that are not in the image."""
    initializers: Annotated[list[Initializer], Field(max_length=8, json_schema_extra=keyed_by("name"))] = []
    """Jobs that run one after another before the cluster is created."""
    secret_refs: Annotated[list[SecretReference], Field(max_length=16, json_schema_extra=keyed_by("name"))] = []
    """Secrets whose keys become environment variables."""
    launcher: Launcher = Launcher()
    """What trains."""
    model: ModelSource = Field(default_factory=_not_given, validate_default=True)
    """The model to train."""
    data: Data = Field(default_factory=_not_given, validate_default=True)
    """The prompts to train and validate on."""
    reward: Reward = Field(default_factory=_not_given, validate_default=True)
    """The function that scores a response."""
    algorithm: Algorithm = Algorithm()
    """The reinforcement learning algorithm."""
    critic: Critic | None = None
    """The value model, for PPO only."""
    trainer: Trainer = Field(default_factory=_not_given, validate_default=True)
    """How the policy is updated."""
    rollout: Rollout = Rollout()
    """How responses are generated."""
    optimizations: Optimizations = Optimizations()
    """Optimizations of a run."""
    network: Network = Network()
    """Network settings of the pods."""
    checkpoint: Checkpoint | None = None
    """Where and how often the trainer saves checkpoints."""
    export: Export | None = None
    """Where the trained model goes."""
    evaluation: Evaluation | None = None
    """Checkpoints that are scored by jobs of their own."""
    restart: Restart = Restart()
    """How failures are handled."""
    stop_rules: Annotated[list[StopRule], Field(max_length=16, json_schema_extra=keyed_by("name"))] = []
    """Conditions on the run's metrics that end the run."""
    deadlines: Deadlines = Deadlines()
    """Upper bounds on waiting."""
    stop: Stop = Stop()
    """How a run is stopped on request."""
    cleanup: Cleanup = Cleanup()
    """What is kept after the run has ended."""
    observability: Observability = Observability()
    """Records that outlive the pods."""
    verl: Verl = Verl()
    """Settings of verl that have no field."""

    @field_validator("model", "data", "reward", "trainer", mode="wrap")
    @classmethod
    def _read_by_the_launcher(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:  # noqa: ANN401 - of several fields
        """Require what the launcher reads. It is parsed before these fields; one that is invalid requires nothing."""
        name, launcher = str(info.field_name), info.data.get("launcher")
        reads = REQUIRES_NOTHING if launcher is None else READS[launcher.type]
        part = reads.parts.get(name)
        if value is NOT_GIVEN or (launcher is None and part is not None):
            if name not in reads.stand_ins and launcher is not None:
                raise PydanticKnownError("missing")
            return reads.stand_ins.get(name)
        return handler(value) if value is None or part is None else part.model_validate(value, strict=True)

    def reads(self, field: str) -> bool:
        """Report whether the launcher reads a field, such as `rollout` or `trainer.backend`."""
        return READS[self.launcher.type].includes(field)

    @property
    def command(self) -> Command | None:
        """Return the command that trains; None if something else does."""
        return self.launcher.command if self.launcher.type is LauncherType.COMMAND else None

    @property
    def auto_saves(self) -> bool:
        """Report whether the trainer decides how often it saves."""
        every = "checkpoint.everySteps"
        return self.checkpoint is not None and self.checkpoint.every_steps is None and self.reads(every)

    @property
    def reports_steps(self) -> bool:
        """Report whether the run's steps can be seen; those of a command only with launcher.command.progress."""
        return self.command is None or self.command.progress is not None

    @property
    def total_steps(self) -> int | None:
        """Return the number of steps of the whole run; None for a command whose number is not stated."""
        return self.trainer.steps or None

    @property
    def trainer_group(self) -> WorkerGroup:
        """Return the workers that train. The driver, initializers and exports run with their template."""
        return self._group_of(Role.TRAINER)

    @property
    def rollout_group(self) -> WorkerGroup:
        """Return the workers that generate; in most modes they are those that train, in turns."""
        return self._group_of(Role.ROLLOUT)

    @property
    def judge_group(self) -> WorkerGroup | None:
        """Return the workers of the judge, if there is one."""
        return next((group for group in self.worker_groups if Role.JUDGE in group.roles), None)

    def _group_of(self, role: Role) -> WorkerGroup:
        # A job without one is refused (core.validation.roles); until then other checks may look at any group.
        return next((group for group in self.worker_groups if role in group.roles), self.worker_groups[0])

    @property
    def nodes(self) -> int:
        """Return the number of worker pods."""
        return sum(group.nodes for group in self.worker_groups)

    @property
    def devices(self) -> int:
        """Return the number of NPU devices of all workers."""
        return sum(group.devices for group in self.worker_groups)


LIVE_RULES = [
    rule(
        "has(self.managedBy) == has(oldSelf.managedBy)"
        " && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
        "managedBy is immutable; recreate the job to change it",
    ),
    rule(
        "!has(self.trainer) || !has(self.trainer.steps) || !has(oldSelf.trainer)"
        " || !has(oldSelf.trainer.steps) || self.trainer.steps >= oldSelf.trainer.steps",
        "trainer.steps may grow, not shrink; use a stop rule or stop.requested to end a run early",
    ),
]
"""Rules on changes of RLJob.spec. A recipe may change in any way."""

NOT_IN_A_RECIPE = frozenset({"recipeRef", "unset", "managedBy", "suspend", "stop.requested"})
"""Fields of RLJob.spec that belong to a single job, as paths."""


class RecipeSpec(Model):
    """Defaults for jobs: a part of RLJob.spec that was tested on specific hardware."""

    description: Annotated[str, Field(max_length=4096)] = ""
    """Purpose of the recipe."""
    hardware: Text = ""
    """Hardware that the recipe is written for, such as 8 nodes of Atlas A3."""
    source: Text = ""
    """Source of the recipe's values."""
    recipe_ref: RecipeReference | None = None
    """Recipe that this one is based on. At most four recipes can be chained."""
    unset: Annotated[list[UnsetPath], Field(max_length=64, json_schema_extra=ATOMIC)] = []
    """Fields of the base recipe to remove."""
    locked: Annotated[list[UnsetPath], Field(max_length=64, json_schema_extra=ATOMIC)] = []
    """Fields that jobs and recipes based on this one must not change or unset, such as runtime.image or reward. Their
    values may be repeated."""
    template: RLJobSpec
    """Part of RLJob.spec that the recipe supplies."""


MAX_RECIPE_DEPTH = 4

NAME_RULES = [
    rule(
        f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
        f"metadata.name is longer than {MAX_NAME_LENGTH} characters, but pod names are derived from it",
    ),
    rule(
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name must consist of lower-case letters, digits and '-', and start with a letter (DNS-1035)",
    ),
]
