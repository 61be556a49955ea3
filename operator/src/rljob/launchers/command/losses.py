"""What a command loses compared with the runtime's own trainer; docs/guides/command-jobs.md has the same as a table."""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob_runtime.contract.command import CommandStop


def losses(spec: RLJobSpec) -> Iterator[str]:
    """Yield a sentence for each loss of this job."""
    command = spec.command
    if command is None:
        return
    yield "launcher.command.args are not checked: batch and parallel sizes, device memory and keys of the framework"
    if command.progress is None:
        yield (
            "launcher.command.progress is not set: status and metrics have no steps, and neither stopRules nor a "
            "deadline between two steps apply"
        )
    else:
        yield "steps, reward, throughput and idle ratios are known as far as the command reports them"
    if command.checkpoint is None:
        yield "launcher.command.checkpoint is not set: every attempt begins at step 0"
    else:
        yield "the command decides when it saves"
    if command.stop.mode is CommandStop.NONE:
        yield "launcher.command.stop.mode is None: a stop discards what was trained since the last checkpoint"
    elif command.stop.mode is CommandStop.SIGNAL:
        yield "a stop loses what the command does not save after SIGTERM"
