"""How a job lives: queueing, network, checkpoints, restarts, stopping, deadlines, cleaning up, records."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from rljob.api.base import ATOMIC, Count, Label, Model, NonNegative, Path, SignedDecimal, keyed_by, rule
from rljob.api.sources import CheckpointSource

ClassName = Annotated[str, Field(min_length=1, max_length=253)]


class Topology(Model):
    """Which nodes belong together."""

    nodes_per_super_pod_block: Count | None = None
    """Nodes of one super-pod that are given out together."""
    level: Annotated[str, Field(min_length=1, max_length=316)] | None = None
    """Node label of the domain that should hold the whole job."""
    mode: Literal["Required", "Preferred"] = "Preferred"
    """Required: rather wait than spread."""


class Scheduling(Model):
    """How the job is queued and placed."""

    queue_name: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """LocalQueue of Kueue; with gang Volcano, a Queue of Volcano."""
    workload_priority_class_name: ClassName | None = None
    """Kueue's priority, for the order in the queue only."""
    priority_class_name: ClassName | None = None
    """Priority of the pods."""
    gang: Literal["Auto", "None", "Volcano", "Kueue"] = "Auto"
    """Who starts all pods or none."""
    topology: Topology = Topology()
    """Which nodes belong together."""


class HcclNetwork(Model):
    """Collective communication of Ascend; bounds as HCCL's environment variables have them."""

    socket_interface: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Network interface of HCCL and gloo; default: theirs."""
    connect_timeout_seconds: Annotated[int, Field(ge=120, le=7200, json_schema_extra={"format": "int32"})] | None = None
    """HCCL_CONNECT_TIMEOUT: how long ranks wait for each other."""
    exec_timeout_seconds: (
        Annotated[int, Field(ge=1, le=2_147_483_647, json_schema_extra={"format": "int32"})] | None
    ) = None
    """HCCL_EXEC_TIMEOUT: how long a collective may take."""


class Network(Model):
    """Networking of the pods."""

    mode: Literal["Pod", "Host"] = "Pod"
    """Host: the pods share the node's network, as HCCL on some fabrics needs."""
    hccl: HcclNetwork = HcclNetwork()
    """Collective communication."""


class Checkpoint(Model):
    """Where and how often the trainer saves, and where it begins."""

    path: Path
    """Folder on a volume that every pod mounts."""
    volume: Label | None = None
    """The volume that holds path; default: the one whose mount path is its longest beginning."""
    every_steps: Count
    """Steps between saves."""
    keep: Count | None = None
    """Checkpoints kept; default: all."""
    resume: Literal["Auto", "Never", "Required"] = "Auto"
    """Auto: from the last complete checkpoint, if any. Required: fail rather than begin at step 0."""
    from_: Annotated[CheckpointSource | None, Field(alias="from")] = None
    """Begin from another job's checkpoint, as long as this job has none of its own."""


class RestartRule(Model):
    """What to do about one kind of failure; the first rule that matches decides."""

    REPLACED_WHOLE: ClassVar[bool] = True
    EXACTLY_ONE_OF: ClassVar[tuple[str, ...]] = ("onExitCodes", "onLogPattern", "onReason", "onFault")

    name: Label
    """Its name in status and events."""
    on_exit_codes: Annotated[
        list[Annotated[int, Field(ge=1, le=255, json_schema_extra={"format": "int32"})]],
        Field(max_length=16, json_schema_extra=ATOMIC),
    ] = []
    """Exit codes of the driver."""
    on_log_pattern: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Regular expression (RE2's syntax) that a line of the failed driver's log matches, in its last 16 MiB."""
    on_reason: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Reason of the attempt's end."""
    on_fault: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Class of an NPU fault."""
    action: Literal["Fail", "Restart", "RestartWithoutCounting", "ExcludeNodeAndRestart", "Stop"]
    """What is done; a node is excluded for a day, if one is known."""


class Restart(Model):
    """How failures are answered."""

    max_restarts: NonNegative = 0
    """Restarts after failures of the run itself."""
    max_infrastructure_restarts: NonNegative | None = None
    """Restarts after losses of pods, nodes and devices; default: 3 with `checkpoint`, else none."""
    scope: Literal["Auto", "Driver", "Cluster"] = "Auto"
    """What begins anew."""
    backoff_seconds: Count = 30
    """Wait before the first restart; doubled for each further one."""
    rules: Annotated[list[RestartRule], Field(max_length=16, json_schema_extra=keyed_by("name"))] = []
    """Exceptions from the above."""


class StopRule(Model):
    """When the run ends by its own figures."""

    REPLACED_WHOLE: ClassVar[bool] = True
    CEL: ClassVar[tuple[JsonValue, ...]] = (
        rule(
            "!has(self.condition) || (self.condition == 'IsNaN') == !has(self.threshold)",
            "threshold goes with Above and Below, and only with them",
        ),
    )

    name: Label
    """Its name in status and events."""
    metric: Annotated[str, Field(min_length=1, max_length=253)]
    """A metric of verl or of the operator, such as critic/score/mean or actor/entropy."""
    condition: Literal["IsNaN", "Above", "Below"]
    """What is looked for; NaN is neither above nor below."""
    threshold: SignedDecimal | None = None
    """What it is compared with."""
    for_steps: Count = 1
    """Steps in a row for which it must hold."""
    result: Literal["Succeeded", "Failed"] = "Failed"
    """What such an end means: a target was reached, or the run went astray."""


class Stop(Model):
    """How a run is stopped on request."""

    mode: Literal["Auto", "AfterStep", "AbortRollout", "Immediate"] = "Auto"
    """AfterStep: finish the step. AbortRollout: give up the generation. Auto: AfterStep, but AbortRollout where a
    measured step does not fit graceSeconds and is mostly rollout; pods that are taken away ask for AfterStep."""
    grace_seconds: Count = 300
    """How long saving may take before the pods are killed."""
    require_checkpoint: bool = False
    """Hold the deletion of the job until a checkpoint is saved or graceSeconds passed."""


class Deadlines(Model):
    """Bounds on waiting."""

    start_seconds: Count = 1800
    """From the intent to the first sign of the driver."""
    active_seconds: Count | None = None
    """Of all attempts together, each from its submission to its end."""
    progress_seconds: Count = 14400
    """Between two steps, but never less than three usual ones; before the first, at least startSeconds."""


class Cleanup(Model):
    """What remains after the end."""

    cluster_after_seconds: NonNegative = 0
    """How long the RayCluster, and so its NPUs, outlives the run."""
    job_after_seconds: NonNegative | None = None
    """How long the RLJob itself outlives its end; default: for ever."""
    keep_on_failure: bool = False
    """Keep the cluster of a failed job for clusterAfterSeconds, and only that one."""


class Observability(Model):
    """Where records outlive the pods."""

    log_path: Path | None = None
    """Folder on a volume: step records, the driver's log and what else explains an end are mirrored to
    `<logPath>/<cluster>/attempt-<n>/`."""
    trackers: Annotated[
        list[Literal["tensorboard", "wandb", "swanlab", "mlflow", "clearml", "trackio", "rl_insight"]],
        Field(max_length=8, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = []
    """Experiment trackers of verl, beside the operator's own records; keys come through secretRefs."""
