"""What trains: verl, or a command of the user's.

The enums are those of job.json (`rljob_runtime.contract.command`), whose docstrings state what each value does.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from rljob.api.base import ATOMIC, Model, Path
from rljob.api.training import Data, ModelSource, Reward, Trainer
from rljob_runtime.contract.command import CheckpointFence, CheckpointLayout, CommandStop, ProgressSource

ARGUMENTS_MAX = 512
RESUME_ARGUMENTS_MAX = 64
ARGUMENT_CHARACTERS_MAX = 8192

Argument = Annotated[str, Field(max_length=ARGUMENT_CHARACTERS_MAX)]
Expression = Annotated[str, Field(min_length=1, max_length=512)]
Key = Annotated[str, Field(min_length=1, max_length=128)]
StepPath = Annotated[str, Field(min_length=1, max_length=512)]
"""A path relative to the folder of checkpoints, with the placeholder `{step}`."""


class LauncherType(enum.StrEnum):
    """What an attempt runs."""

    VERL = "Verl"
    """verl, configured by the fields of the spec."""
    COMMAND = "Command"
    """The command in launcher.command."""

    @classmethod
    def _missing_(cls, value: object) -> LauncherType | None:
        """Return a type that wiring has added to READS beside those of the product."""
        if not isinstance(value, str) or value not in READS:
            return None
        added = str.__new__(cls, value)
        added._name_ = added._value_ = value
        return added


class CommandMetrics(Model):
    """Names under which the command reports its figures. Figures with verl's names need no entry."""

    reward: Key | None = None
    """Mean score of the step's responses."""
    step_seconds: Key | None = None
    """Duration of the step. Defaults to the time between the records of two steps."""
    tokens: Key | None = None
    """Number of prompt and response tokens of the step's batch."""
    tokens_per_second_per_card: Key | None = None
    """Tokens per second and card, used if the command reports no tokens."""
    response_tokens_mean: Key | None = None
    """Mean number of tokens of a response."""
    first_dp_idle_ratio: Annotated[Key | None, Field(alias="firstDPIdleRatio")] = None
    """Share of the step for which the first data-parallel replica to finish waits for the slowest."""
    cluster_idle_ratio: Key | None = None
    """Share of the step for which the data-parallel replicas wait on average."""


class CommandProgress(Model):
    """How the steps of a command are learned."""

    source: ProgressSource
    """VerlConsole: lines of output like verl's. JSONLines: a file with one JSON object per step. TensorBoard: a folder
    with event files. Pattern: lines of output that match pattern."""
    path: Path | None = None
    """File (JSONLines) or folder (TensorBoard) in the head pod. It may contain placeholders, such as {attempt}."""
    pattern: Expression | None = None
    """Regular expression (RE2 syntax) with the named group step, for Pattern only. Its other named groups are metrics.
    """
    step_key: Key = "step"
    """Key of the step's number in a JSON object, for JSONLines only. Defaults to step."""
    metrics: CommandMetrics = CommandMetrics()
    """Names under which the command reports its figures."""


class CommandCheckpoint(Model):
    """How a command arranges what it saves in checkpoint.path, and how it resumes."""

    layout: CheckpointLayout
    """Verl: folders global_step_<n> beside latest_checkpointed_iteration.txt. Pattern: as pattern states."""
    pattern: StepPath | None = None
    """Path of a saved step with {step}, relative to the folder of checkpoints, like step-{step}, for Pattern only."""
    complete: StepPath | None = None
    """Path with {step} of a file that exists once the step is saved completely, relative to the folder of checkpoints.
    Defaults to pattern."""
    resume_args: Annotated[list[Argument], Field(max_length=RESUME_ARGUMENTS_MAX, json_schema_extra=ATOMIC)] = []
    """Arguments that are appended to args if there is a step to resume from, with the placeholders {checkpoint} (its
    path) and {step}."""
    fence: CheckpointFence = CheckpointFence.ATTEMPT
    """Attempt: each attempt saves to a folder of its own below checkpoint.path, so that a lost process of an earlier
    attempt cannot damage later checkpoints. None: all attempts save to checkpoint.path. Defaults to Attempt."""


class CommandStopRequest(Model):
    """How a command is asked to stop."""

    mode: CommandStop = CommandStop.SIGNAL
    """Signal: SIGTERM to its processes. File: a file is created, for which the command looks. None: it is ended at
    once, and its last checkpoint counts. Defaults to Signal."""
    file: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Absolute path of that file in the head pod, for File only. It may contain placeholders, such as
    {checkpoints}/stop."""


class Command(Model):
    """A command that trains. It runs on the head, and finds Ray's cluster as `ray.init()` does."""

    args: Annotated[list[Argument], Field(min_length=1, max_length=ARGUMENTS_MAX, json_schema_extra=ATOMIC)]
    """Program and arguments; no shell is involved. {checkpoints} stands for the folder to save to, {step} for the step
    to resume from, {steps} for trainer.steps, {attempt}, {nodes}, {devices} and {devicesPerNode} for these numbers.
    {{nodes}} stands for the literal text."""
    working_dir: Path | None = None
    """Working directory of the command. Defaults to that of the image."""
    progress: CommandProgress | None = None
    """How its steps are learned. Unset, the job reports no steps and figures."""
    checkpoint: CommandCheckpoint | None = None
    """What it saves. Required if spec.checkpoint is set, and refused otherwise."""
    stop: CommandStopRequest = CommandStopRequest()
    """How it is asked to stop."""


class Launcher(Model):
    """What trains."""

    type: LauncherType = LauncherType.VERL
    """Verl: verl, configured by model, data, reward, trainer and the fields beside them. Command: the command in
    launcher.command, configured by its arguments. Defaults to Verl."""
    command: Command | None = None
    """The command, for type Command only."""


class CommandTrainer(Trainer):
    """The part of `trainer` that a Command job has: the number of steps, 0 where it states none."""

    steps: Annotated[int, Field(ge=1, le=2_147_483_647)] = 0
    global_batch_size: Literal[1] = 1
    """Never read. `core.validation.launcher_fields` refuses every field but steps."""


NO_PATH = "/dev/null"
NO_MODEL = ModelSource(path=NO_PATH)
"""Takes the place of `model`, `data` and `reward` in the spec of a Command job, where nothing reads them: they are
neither in its manifest nor in its snapshot."""
NO_DATA = Data(train=[NO_PATH])
NO_REWARD = Reward(path=NO_PATH)


@dataclass(frozen=True)
class Reads:
    """Which fields of a spec a launcher reads, beside those of hardware, pods and a job's life, which all of them have.

    A field that it does not read is refused, and is not in the job's snapshot.
    """

    unread: tuple[str, ...] = ()
    """Fields that it does not read."""
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Fields of which it reads these members only."""
    parts: Mapping[str, type[Model]] = field(default_factory=dict)
    """Types of such fields, where the others of their members are required."""
    stand_ins: Mapping[str, Any] = field(default_factory=dict)
    """What takes the place of a required field that a job does not have."""
    instead: str = "this launcher has no such setting"
    """Where a user puts what such a field says, the end of a message."""
    instead_of: Mapping[str, str] = field(default_factory=dict)
    """The same for members of a field."""

    def part_of(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a spec's document without what it does not read."""
        kept = {name: value for name, value in document.items() if name not in self.unread}
        for name, members in self.members.items():
            if isinstance(section := kept.get(name), Mapping):
                kept[name] = {member: value for member, value in section.items() if member in members}
        return kept

    def includes(self, path: str) -> bool:
        """Report whether it reads a field, or a member such as `trainer.backend`."""
        name, _, member = path.partition(".")
        return name not in self.unread and (not member or member in self.members.get(name, (member,)))


_IN_ARGUMENTS = "put it into launcher.command.args"
READS: dict[str, Reads] = {
    LauncherType.VERL: Reads(),
    LauncherType.COMMAND: Reads(
        unread=("model", "data", "reward", "algorithm", "critic", "rollout", "verl", "export", "evaluation"),
        members={
            "trainer": frozenset({"steps"}),
            "optimizations": frozenset({"coreBinding"}),
            "checkpoint": frozenset({"path", "volume", "keep", "resume", "from"}),
        },
        parts={"trainer": CommandTrainer},
        stand_ins={"model": NO_MODEL, "data": NO_DATA, "reward": NO_REWARD, "trainer": CommandTrainer()},
        instead=_IN_ARGUMENTS,
        instead_of={
            "checkpoint": "the command decides it; state it in launcher.command.args",
            "optimizations": f"only verl has it; {_IN_ARGUMENTS}",
        },
    ),
}
"""Type -> the fields that its launcher reads."""
REQUIRES_NOTHING = READS[LauncherType.COMMAND]
"""Stands for an invalid launcher, which is reported alone."""
