"""Replace the placeholders in the texts of a command by the values of the attempt (contract/command.py). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.contract import CommandConfig, ExitCode, JobConfig, Placeholder
from rljob_runtime.outcomes import RefusedError

NAMES = "|".join(re.escape(placeholder.value) for placeholder in Placeholder)
PATTERN = re.compile(rf"\{{\{{({NAMES})\}}\}}|\{{({NAMES})\}}")
"""The literal form first, because it contains the other one."""


def values_of(job: JobConfig, attempt: int, start: Start, folder: Path | None) -> dict[Placeholder, str]:
    """Return the values of an attempt that saves to `folder`. A placeholder that has no value is left out."""
    values = {
        Placeholder.STEP: str(start.step),
        Placeholder.STEPS: str(job.total_steps),
        Placeholder.ATTEMPT: str(attempt),
        Placeholder.NODES: str(job.nodes),
        Placeholder.DEVICES: str(job.devices),
        Placeholder.DEVICES_PER_NODE: str(job.devices_per_node),
    }
    if start.folder is not None:
        values[Placeholder.CHECKPOINT] = str(start.folder)
    if folder is not None:
        values[Placeholder.CHECKPOINTS] = str(folder)
    return values


def arguments(command: CommandConfig, values: Mapping[Placeholder, str]) -> list[str]:
    """Return the arguments of an attempt, with those for resuming if there is a step to resume from.

    Raises RefusedError (exit 64) for a placeholder without a value.
    """
    args = [substitute(text, values, f"args[{index}]") for index, text in enumerate(command.args)]
    if command.checkpoint is not None and Placeholder.CHECKPOINT in values:
        resume = command.checkpoint.resume_args
        args += [substitute(text, values, f"checkpoint.resumeArgs[{index}]") for index, text in enumerate(resume)]
    return args


def substitute(text: str, values: Mapping[Placeholder, str], field: str) -> str:
    """Replace the placeholders of one text, `launcher.command.<field>` of the manifest. Values are not searched."""

    def value_of(match: re.Match[str]) -> str:
        literal, name = match.groups()
        if literal is not None:
            return f"{{{literal}}}"
        placeholder = Placeholder(name)
        if placeholder not in values:
            raise _without_value(placeholder, field)
        return values[placeholder]

    return PATTERN.sub(value_of, text)


def refused(what: str) -> RefusedError:
    """Return the error for a command that can never run; `what` begins with the field of `launcher.command`."""
    return RefusedError(ExitCode.BAD_CONFIG, "CommandInvalid", f"launcher.command.{what}")


def _without_value(placeholder: Placeholder, field: str) -> RefusedError:
    if placeholder is Placeholder.CHECKPOINT:
        fix = "an attempt may have no step to resume from; use it in launcher.command.checkpoint.resumeArgs only"
    else:
        fix = "the job saves to no folder; set checkpoint.path and launcher.command.checkpoint"
    return refused(f"{field}: {{{placeholder.value}}} has no value: {fix}")
