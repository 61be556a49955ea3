"""The lifecycle of a job: queueing, network, checkpoints, restarts, stopping, deadlines, cleanup and logs."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from rljob.api.base import ATOMIC, Count, Label, Model, NonNegative, Path, SignedDecimal, keyed_by, rule
from rljob.api.sources import CheckpointSource

ClassName = Annotated[str, Field(min_length=1, max_length=253)]


class Topology(Model):
    """Placement of the worker pods relative to each other."""

    nodes_per_super_pod_block: Count | None = None
    """Number of nodes per super-pod that are allocated as one block. Unset, blocks are not required."""
    level: Annotated[str, Field(min_length=1, max_length=316)] | None = None
    """Node label of the domain that should contain the whole job."""
    mode: Literal["Required", "Preferred"] = "Preferred"
    """Required: wait until the domain has room. Preferred: spread the job if the domain has no room. Defaults to
    Preferred."""


class Scheduling(Model):
    """How the job is queued and scheduled."""

    queue_name: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """Name of the Kueue LocalQueue, or of the Volcano Queue if gang is Volcano. Unset, the job is not queued."""
    workload_priority_class_name: ClassName | None = None
    """Kueue WorkloadPriorityClass, which affects only the order in the queue."""
    priority_class_name: ClassName | None = None
    """PriorityClass of the pods."""
    gang: Literal["Auto", "None", "Volcano", "Kueue"] = "Auto"
    """Scheduler that starts all pods of the job together. Auto: Kueue if queueName is set, else Volcano if the cluster
    serves PodGroups and the accelerator class has a schedulePolicy, else none. Defaults to Auto."""
    topology: Topology = Topology()
    """Placement of the worker pods relative to each other."""


class HcclNetwork(Model):
    """HCCL, the collective communication library of Ascend. Bounds are those of HCCL's environment variables."""

    socket_interface: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Network interface for HCCL and gloo. Unset, each library chooses."""
    connect_timeout_seconds: Annotated[int, Field(ge=120, le=7200, json_schema_extra={"format": "int32"})] | None = None
    """HCCL_CONNECT_TIMEOUT: seconds that ranks wait for each other when they connect. Unset, HCCL's default applies."""
    exec_timeout_seconds: (
        Annotated[int, Field(ge=1, le=2_147_483_647, json_schema_extra={"format": "int32"})] | None
    ) = None
    """HCCL_EXEC_TIMEOUT: seconds that a collective operation may take. Unset, HCCL's default applies."""


class Network(Model):
    """Network settings of the pods."""

    mode: Literal["Pod", "Host"] = "Pod"
    """Pod: each pod has its own network. Host: pods share the node's network, which HCCL requires on some fabrics.
    Defaults to Pod."""
    hccl: HcclNetwork = HcclNetwork()
    """Settings of the collective communication library."""


class Checkpoint(Model):
    """Where and how often the trainer saves checkpoints, and what the run starts from."""

    path: Path
    """Checkpoint folder, on a volume that every pod mounts."""
    volume: Label | None = None
    """Name of the volume that holds path. Defaults to the volume with the longest mount path that is a prefix of path.
    """
    every_steps: Count | None = None
    """Number of steps between checkpoints; the last step saves one as well. Without it, as often as loses least by the
    measured seconds of saves and steps and the losses to expect: shown as status.progress.saveEverySteps. A command
    decides that by itself."""
    keep: Count | None = None
    """Number of checkpoints to keep. Defaults to all."""
    resume: Literal["Auto", "Never", "Required"] = "Auto"
    """Auto: resume from the last complete checkpoint, if there is one. Never: start at step 0. Required: fail instead
    of starting at step 0. Defaults to Auto."""
    data: Literal["Same", "NewEpoch"] = "Same"
    """What a run does if the checkpoint was saved with other training data. Same: fail. NewEpoch: keep the weights and
    begin an epoch of the new data, in trainer.mode Sync only. Defaults to Same."""
    async_: Annotated[Literal["Auto", "Off"], Field(alias="async")] = "Auto"
    """Auto: where it is proved, each rank copies its part into host memory and writes it while the run continues: 12
    bytes for each parameter, shared by the ranks. A killed run loses at most the save under way. Off: the run waits for
    each save. Defaults to Auto."""
    from_: Annotated[CheckpointSource | None, Field(alias="from")] = None
    """Checkpoint of another job to start from, used while this job has none of its own."""


class RestartRule(Model):
    """Action for one kind of failure. The first rule that matches applies."""

    REPLACED_WHOLE: ClassVar[bool] = True
    EXACTLY_ONE_OF: ClassVar[tuple[str, ...]] = ("onExitCodes", "onLogPattern", "onReason", "onFault")

    name: Label
    """Name of the rule in status and events."""
    on_exit_codes: Annotated[
        list[Annotated[int, Field(ge=1, le=255, json_schema_extra={"format": "int32"})]],
        Field(max_length=16, json_schema_extra=ATOMIC),
    ] = []
    """Exit codes of the driver."""
    on_log_pattern: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Regular expression (RE2 syntax) that is matched against each line in the last 16 MiB of the failed driver's log.
    """
    on_reason: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Reason with which the attempt ended."""
    on_fault: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Class of an NPU fault."""
    action: Literal["Fail", "Restart", "RestartWithoutCounting", "ExcludeNodeAndRestart", "Stop"]
    """Action to take. ExcludeNodeAndRestart excludes the faulty node for one day, if it is known.
    RestartWithoutCounting does not count against maxRestarts and maxInfrastructureRestarts."""


class Restart(Model):
    """How failures are handled."""

    max_restarts: NonNegative = 0
    """Maximum number of restarts after failures of the run itself. Defaults to 0."""
    max_infrastructure_restarts: NonNegative | None = None
    """Maximum number of restarts after losses of pods, nodes or devices. Defaults to 3 with `checkpoint`, otherwise to
    0."""
    scope: Literal["Auto", "Driver", "Workers", "Cluster"] = "Auto"
    """What a restart replaces. Driver: only the driver, where no pod was lost. Workers: also the workers that were
    lost, while the other pods keep their nodes and devices. Cluster: the whole RayCluster. Auto: the driver after a
    failure of the run itself, lost workers after a loss of workers, if it is the first failure since the last
    checkpoint; otherwise the cluster. A lost head or a node to avoid always takes a new cluster. Defaults to Auto."""
    backoff_seconds: Count = 30
    """Seconds from a failure to the first restart, doubled for each further restart. Pods that stay after the first
    failure since the last checkpoint wait for nothing but lost workers. Defaults to 30."""
    rules: Annotated[list[RestartRule], Field(max_length=16, json_schema_extra=keyed_by("name"))] = []
    """Rules that take precedence over the budgets and the scope above."""


class StopRule(Model):
    """A condition on the run's metrics that ends the run."""

    REPLACED_WHOLE: ClassVar[bool] = True
    CEL: ClassVar[tuple[JsonValue, ...]] = (
        rule(
            "!has(self.condition) || (self.condition == 'IsNaN') == !has(self.threshold)",
            "threshold goes with Above and Below, and only with them",
        ),
    )

    name: Label
    """Name of the rule in status and events."""
    metric: Annotated[str, Field(min_length=1, max_length=253)]
    """Metric of verl or of the operator, such as critic/score/mean or actor/entropy."""
    condition: Literal["IsNaN", "Above", "Below"]
    """Comparison that ends the run. NaN is neither above nor below any threshold."""
    threshold: SignedDecimal | None = None
    """Value that the metric is compared with, for Above and Below only."""
    for_steps: Count = 1
    """Number of consecutive steps for which the condition must hold. Defaults to 1."""
    result: Literal["Succeeded", "Failed"] = "Failed"
    """Result of a run that this rule ends: Succeeded for a target that was reached, Failed for a run that diverged.
    Defaults to Failed."""


class Stop(Model):
    """How a run is stopped on request."""

    requested: bool = False
    """If true, the run is stopped, with a checkpoint unless mode is Immediate, and the job finishes as Stopped. Set it
    on a job that exists; a stopped job does not continue when it is false again. Defaults to false."""
    mode: Literal["Auto", "AfterStep", "AbortRollout", "Immediate"] = "Auto"
    """AfterStep: finish the current step. AbortRollout: cancel the generation and save the last step. Immediate: do not
    save. Auto: AfterStep, or AbortRollout if a measured step does not fit into graceSeconds and consists mostly of
    rollout; pods that are evicted or preempted always ask for AfterStep. Defaults to Auto."""
    grace_seconds: Count = 300
    """Seconds that the run may take to save before its pods are killed. Defaults to 300."""
    require_checkpoint: bool = False
    """Delay the deletion of the job until a checkpoint is saved or graceSeconds have passed. Defaults to false."""


class Deadlines(Model):
    """Upper bounds on waiting."""

    start_seconds: Count = 1800
    """Seconds from the decision to start an attempt until the driver reports for the first time. Defaults to 1800."""
    active_seconds: Count | None = None
    """Seconds that all attempts together may take, each measured from its submission to its end. Unset, there is no
    bound."""
    progress_seconds: Count = 14400
    """Seconds that may pass between two steps, but never less than three times the usual step, or the usual time
    between two records of a command that does not record every step. Before the first step, at least startSeconds
    apply. Defaults to 14400; while a model of known size is loaded, to startSeconds and 10 s for
    each GB of its checkpoint, if that is less."""


class Cleanup(Model):
    """What is kept after the run has ended."""

    cluster_after_seconds: NonNegative = 0
    """Seconds that the RayCluster, including its NPUs, is kept after the run. Defaults to 0."""
    job_after_seconds: NonNegative | None = None
    """Seconds that the RLJob is kept after it has finished. Unset, it is never deleted."""
    keep_on_failure: bool = False
    """Keep only the cluster of a failed job for clusterAfterSeconds. Defaults to false."""


class Profile(Model):
    """Traces of chosen steps by verl's own profiler: torch_npu's on NPUs, PyTorch's on CPUs.

    Their files are in `<logPath>/<cluster>/profile`. A profiled step is slower, and the trace of one rank and step on
    an NPU may have a gigabyte.
    """

    steps: Annotated[
        list[Count], Field(min_length=1, max_length=8, json_schema_extra={"x-kubernetes-list-type": "set"})
    ]
    """Steps to trace. Each is traced in every attempt that trains it, until the folder has 16 GiB."""
    ranks: Annotated[
        list[NonNegative], Field(min_length=1, max_length=16, json_schema_extra={"x-kubernetes-list-type": "set"})
    ] = [0]
    """Ranks of the trainer to trace. Defaults to rank 0."""
    level: Literal["Level0", "Level1", "Level2"] = "Level0"
    """On NPUs: Level0 has operators and communication, Level1 also AscendCL and metrics of the AI cores, Level2 also
    CANN's runtime and the AI CPUs. Defaults to Level0."""
    details: Annotated[
        list[Literal["Memory", "Shapes", "Stacks"]],
        Field(max_length=3, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = []
    """What is recorded of each operator in addition to its times: memory, shapes of its inputs, Python stacks. Each
    makes traces larger and steps slower."""


class Samples(Model):
    """Some of the model's answers with prompt and score, which are recorded for `rljob samples` and the report."""

    every_steps: NonNegative = 10
    """Steps between two records. The first step of an attempt, the last one and every validation are recorded as well.
    0 records no answer. Defaults to 10."""
    per_step: Annotated[int, Field(ge=1, le=64, json_schema_extra={"format": "int32"})] = 8
    """Answers of a recorded step: evenly spread from the best to the worst, and the longest. Of a validation, those to
    the same prompts each time. Defaults to 8."""
    max_characters: Annotated[int, Field(ge=100, le=20_000, json_schema_extra={"format": "int32"})] = 4000
    """Characters of a prompt and of an answer; longer ones lack their middle. Defaults to 4000."""


class Observability(Model):
    """Records that outlive the pods."""

    log_path: Path | None = None
    """Folder on a volume. Step records, the driver's log and other files that explain how an attempt ended are mirrored
    to `<logPath>/<cluster>/attempt-<n>/`. Unset, nothing is mirrored."""
    samples: Samples = Samples()
    """Which of the model's answers are recorded in the step records. Without logPath, the head pod keeps the newest."""
    profile: Profile | None = None
    """Steps of which traces are written to logPath. Unset, none."""
    trackers: Annotated[
        list[Literal["tensorboard", "wandb", "swanlab", "mlflow", "clearml", "trackio", "rl_insight"]],
        Field(max_length=8, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = []
    """Experiment trackers of verl, in addition to the operator's own records. Provide their keys with secretRefs."""
