"""The part of job.json for a job whose trainer is a command of the user's (`spec.launcher.type: Command`).

Texts in `args`, `resume_args` and `stop_file` may contain the placeholders in `Placeholder`, written `{checkpoint}`.
`{{checkpoint}}` stands for the literal text. Every other brace is left as it is, because Hydra's arguments have braces.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Placeholder(enum.StrEnum):
    """Values of an attempt that the launcher knows and the manifest does not."""

    CHECKPOINT = "checkpoint"
    """The saved step to resume from. Only in `resume_args`, which an attempt gets if there is one."""
    CHECKPOINTS = "checkpoints"
    """The folder to save to."""
    STEP = "step"
    """The step to resume from; 0 for a start from the beginning."""
    STEPS = "steps"
    """Number of steps in total (`trainer.steps`)."""
    ATTEMPT = "attempt"
    NODES = "nodes"
    """Worker pods."""
    DEVICES = "devices"
    """NPU units (dies) on all nodes together."""
    DEVICES_PER_NODE = "devicesPerNode"


class ProgressSource(enum.StrEnum):
    """Where the launcher learns of the command's steps."""

    VERL_CONSOLE = "VerlConsole"
    """verl's console line, `step:12 - key:value - key:value`."""
    JSON_LINES = "JSONLines"
    """A file to which the command appends one JSON object per step."""
    TENSORBOARD = "TensorBoard"
    """A folder with event files of TensorBoard."""
    PATTERN = "Pattern"
    """Lines of output that match a regular expression with named groups."""


class CommandMetric(enum.StrEnum):
    """Figures of a step that the launcher understands; `metrics` names the command's keys for them."""

    REWARD = "reward"
    """Mean score of the step's responses."""
    STEP_SECONDS = "stepSeconds"
    """Duration of the step. Default: the time between two steps' records."""
    TOKENS = "tokens"
    """Prompt and response tokens of the step's trained batch."""
    TOKENS_PER_SECOND_PER_CARD = "tokensPerSecondPerCard"
    """Used where the command reports no `tokens`."""
    RESPONSE_TOKENS_MEAN = "responseTokensMean"
    """Mean number of tokens of a response."""
    FIRST_DP_IDLE_RATIO = "firstDPIdleRatio"
    CLUSTER_IDLE_RATIO = "clusterIdleRatio"


@dataclass(frozen=True)
class CommandProgress:
    """How steps are learned."""

    source: ProgressSource
    path: str | None = None
    """File (JSONLines) or folder (TensorBoard) in the head pod."""
    pattern: str | None = None
    """Regular expression in the common subset of RE2 and Python, with the group `step`; other groups are metrics."""
    step_key: str = "step"
    """Key of the step's number in a JSON object."""
    metrics: dict[CommandMetric, str] | None = None
    """The command's key for each figure. The figures that verl's keys have need no entry where the keys are verl's."""


class CheckpointLayout(enum.StrEnum):
    """How the command arranges what it saves."""

    VERL = "Verl"
    """`global_step_<n>` beside the tracker file `latest_checkpointed_iteration.txt`."""
    PATTERN = "Pattern"


class CheckpointFence(enum.StrEnum):
    """What keeps a process of an earlier attempt, which a lost node may still run, from damaging later saves."""

    ATTEMPT = "Attempt"
    """Each attempt saves to a folder of its own in the job's folder, and resumes from the newest of all."""
    NONE = "None"
    """All attempts save to the job's folder."""


@dataclass(frozen=True)
class CommandCheckpoint:
    """What the command saves in the job's checkpoint folder, and how it resumes."""

    layout: CheckpointLayout
    pattern: str | None = None
    """Path of a saved step in the folder, with `{step}`, such as `step-{step}/state.pt`. Only for Pattern."""
    complete: str | None = None
    """File that exists once a step is complete: a path in the folder with `{step}`. Default: the step's path itself."""
    resume_args: tuple[str, ...] = ()
    """Appended to `args` if there is a step to resume from."""
    fence: CheckpointFence = CheckpointFence.ATTEMPT
    keep: int | None = None
    """Number of steps that the launcher keeps. Default: all."""


class CommandStop(enum.StrEnum):
    """How the command is asked to stop."""

    SIGNAL = "Signal"
    """SIGTERM to its process group."""
    FILE = "File"
    """The launcher creates a file for which the command looks."""
    NONE = "None"
    """It is ended at once; its last checkpoint counts."""


@dataclass(frozen=True)
class CommandConfig:
    """The command that trains."""

    args: tuple[str, ...]
    working_dir: str | None = None
    """Default: the image's."""
    progress: CommandProgress | None = None
    checkpoint: CommandCheckpoint | None = None
    """How it saves to the job's checkpoint folder; None for a job without one."""
    stop: CommandStop = CommandStop.SIGNAL
    stop_file: str | None = None
    """Path of the file for `File`."""
    stop_seconds: float = 600.0
    """How long it may take to stop on request before it is killed."""
