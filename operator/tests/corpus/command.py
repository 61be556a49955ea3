"""Jobs whose trainer is a command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corpus.bad import Bad, Json, merged, saved

COMMAND: Json = {
    "model": None,
    "data": None,
    "reward": None,
    "trainer": {"globalBatchSize": None},
    "launcher": {"type": "Command", "command": {"args": ["python", "/code/train.py"]}},
}
FIELD = "spec.launcher.command"


def command(change: Mapping[str, Any] | None = None, **others: Any) -> Json:  # noqa: ANN401 - JSON
    """Train with a command, changed as given, in a job with other changes."""
    removed = {name: None for name, value in others.items() if value is None}
    return merged(COMMAND, {"launcher": {"command": dict(change or {})}}, others) | removed


def progress(**values: object) -> Json:
    return command({"progress": values})


def saves(change: Mapping[str, Any] | None = None, **others: Any) -> Json:  # noqa: ANN401 - JSON
    """Save with verl's layout to a volume, with a way to resume."""
    folder = saved()
    del folder["checkpoint"]["everySteps"]
    layout: Json = {
        "args": ["python", "/code/train.py", "--to={checkpoints}"],
        "checkpoint": {"layout": "Verl", "resumeArgs": ["--from={checkpoint}"]},
    }
    return merged(command(merged(layout, change or {})), folder, others)


GOOD = {
    "a command": command(),
    "a command that states no steps": command(trainer=None),
    "a command that saves": saves(),
    "a command that saves by step": saves(
        {"checkpoint": {"layout": "Pattern", "pattern": "step-{step}", "complete": "step-{step}/done"}}
    ),
    "a command that saves to one folder": saves({"checkpoint": {"fence": "None"}}),
    "a command that resumes by itself": saves(
        {"args": ["train", "{checkpoints}", "{step}"], "checkpoint": {"resumeArgs": []}}
    ),
    "a command that looks into its one folder": saves({"checkpoint": {"fence": "None", "resumeArgs": []}}),
    "a command with JSON lines": progress(source="JSONLines", path="/tmp/steps.jsonl", stepKey="n"),
    "a command with a pattern": progress(source="Pattern", pattern="step (?P<step>[0-9]+)"),
    "a command like verl": merged(
        progress(source="VerlConsole"), {"stopRules": [{"name": "a", "metric": "x", "condition": "IsNaN"}]}
    ),
    "a command that looks for a file": command({"stop": {"mode": "File", "file": "/tmp/stop"}}),
    "a command with cores of its own": command(optimizations={"coreBinding": "Disabled"}),
    "a command with braces of Hydra": command({"args": ["python", "+a={b:1}", "{{checkpoint}}", "x={steps}"]}),
}

BAD = {
    "numbers as names of steps in a folder of everybody": Bad(
        merged(
            saves({"checkpoint": {"layout": "Pattern", "pattern": "{step}/state.pt", "fence": "None"}}),
            {"checkpoint": {"keep": 2}},
        ),
        f"{FIELD}.checkpoint.pattern",
        "{step}/state.pt: every entry whose name is a number would count as a step to delete; write step-{step}",
    ),
    "no command": Bad(merged(COMMAND, {"launcher": {"command": None}}), FIELD, "is required with launcher.type"),
    "a command for verl": Bad(
        {"launcher": {"command": {"args": ["a"]}}}, FIELD, "requires launcher.type Command, not Verl"
    ),
    "a model": Bad(command(model={"path": "/m"}), "spec.model", "put it into launcher.command.args"),
    "overrides": Bad(command(verl={"overrides": {"a": 1}}), "spec.verl", "is not read with launcher.type Command"),
    "a batch": Bad(command(trainer={"globalBatchSize": 8}), "spec.trainer.globalBatchSize", "launcher.command.args"),
    "an optimization": Bad(
        command(optimizations={"gcFreeze": "Enabled"}), "spec.optimizations.gcFreeze", "only verl has it"
    ),
    "an interval of saves": Bad(
        saves(checkpoint={"everySteps": 5}), "spec.checkpoint.everySteps", "the command decides it"
    ),
    "no steps": Bad(command(trainer={"steps": 0}), "spec.trainer.steps", "greater than or equal to 1"),
    "long arguments": Bad(command({"args": ["a" * 8192] * 17}), f"{FIELD}.args", "at most 131072 are allowed"),
    "a file of progress that is not named": Bad(
        progress(source="JSONLines"), f"{FIELD}.progress.path", "is required with source JSONLines; set the file"
    ),
    "a file of progress that is not read": Bad(
        progress(source="VerlConsole", path="/tmp/x"), f"{FIELD}.progress.path", "reads the output; remove it"
    ),
    "a pattern that is not read": Bad(
        progress(source="VerlConsole", pattern="(?P<step>1)"), f"{FIELD}.progress.pattern", "or set source Pattern"
    ),
    "a key that is not read": Bad(
        progress(source="VerlConsole", stepKey="n"), f"{FIELD}.progress.stepKey", "is not read with source VerlConsole"
    ),
    "no pattern": Bad(progress(source="Pattern"), f"{FIELD}.progress.pattern", "is required with source Pattern"),
    "a lookahead": Bad(
        progress(source="Pattern", pattern="(?=a)(?P<step>1)"), f"{FIELD}.progress.pattern", "is a lookahead"
    ),
    "a pattern without step": Bad(
        progress(source="Pattern", pattern="step ([0-9]+)"), f"{FIELD}.progress.pattern", "has no group named step"
    ),
    "a layout that is not stated": Bad(
        saves({"checkpoint": None}), f"{FIELD}.checkpoint", "is required with spec.checkpoint"
    ),
    "a layout without a folder": Bad(
        command({"checkpoint": {"layout": "Verl", "resumeArgs": ["a"]}}), f"{FIELD}.checkpoint", "set its path"
    ),
    "no pattern of steps": Bad(
        saves({"checkpoint": {"layout": "Pattern"}}), f"{FIELD}.checkpoint.pattern", "is required with layout Pattern"
    ),
    "a pattern with verl's layout": Bad(
        saves({"checkpoint": {"pattern": "a{step}"}}), f"{FIELD}.checkpoint.pattern", "is not read with layout Verl"
    ),
    "a pattern of one step": Bad(
        saves({"checkpoint": {"layout": "Pattern", "pattern": "last"}}),
        f"{FIELD}.checkpoint.pattern",
        "last does not contain {step}",
    ),
    "a file outside the folder": Bad(
        saves({"checkpoint": {"complete": "../{step}"}}), f"{FIELD}.checkpoint.complete", "must be relative"
    ),
    "no way to resume": Bad(
        saves({"checkpoint": {"resumeArgs": []}}), f"{FIELD}.checkpoint.resumeArgs", "would begin at step 0"
    ),
    "a checkpoint to resume from at the start": Bad(
        saves({"args": ["{checkpoints}", "{checkpoint}"]}),
        f"{FIELD}.args[1]",
        "move it to launcher.command.checkpoint.resumeArgs",
    ),
    "a folder that is not stated": Bad(command({"args": ["{checkpoints}"]}), f"{FIELD}.args[0]", "requires spec.check"),
    "a number that is not stated": Bad(
        command({"args": ["{steps}"]}, trainer=None), f"{FIELD}.args[0]", "requires trainer.steps"
    ),
    "a folder that is not passed": Bad(saves({"args": ["train"]}), f"{FIELD}.args", "or set fence None"),
    "records of a step that is not known yet": Bad(
        command({"progress": {"source": "JSONLines", "path": "/data/{checkpoint}.jsonl"}}),
        f"{FIELD}.progress.path",
        "has a value only where a run resumes",
    ),
    "a file to stop that is not named": Bad(command({"stop": {"mode": "File"}}), f"{FIELD}.stop.file", "set it"),
    "a file to stop that is not read": Bad(
        command({"stop": {"file": "/tmp/stop"}}), f"{FIELD}.stop.file", "is not read with stop.mode Signal"
    ),
    "a relative file to stop": Bad(
        command({"stop": {"mode": "File", "file": "stop"}}), f"{FIELD}.stop.file", "must be absolute"
    ),
    "a rollout to abort": Bad(command(stop={"mode": "AbortRollout"}), "spec.stop.mode", "needs a hook in the trainer"),
    "a save that nobody asks for": Bad(
        saves({"stop": {"mode": "None"}}, stop={"requireCheckpoint": True}),
        "spec.stop.requireCheckpoint",
        "use another",
    ),
    "stop rules without figures": Bad(
        command(stopRules=[{"name": "a", "metric": "x", "condition": "IsNaN"}]), "spec.stopRules", "progress"
    ),
    "stop rules beyond the end": Bad(
        merged(
            progress(source="VerlConsole"),
            {"stopRules": [{"name": "a", "metric": "x", "condition": "IsNaN", "forSteps": 41}]},
        ),
        "spec.stopRules[0].forSteps",
        "more than trainer.steps 40",
    ),
    "profile": Bad(
        command(observability={"profile": {"steps": [2]}}),
        "spec.observability.profile",
        "is verl's profiler; start the command's in launcher.command.args",
    ),
    "trackers": Bad(command(observability={"trackers": ["wandb"]}), "spec.observability.trackers", "are those of verl"),
    "samples": Bad(
        command(observability={"samples": {"everySteps": 0}}),
        "spec.observability.samples",
        "are recorded where verl trains; remove it",
    ),
    "a token among the arguments": Bad(
        command({"args": ["a", "hf_" + "a" * 34]}), f"{FIELD}.args[1]", "contains a Hugging Face token"
    ),
    "a token of the resumed command": Bad(
        saves({"checkpoint": {"resumeArgs": ["hf_" + "a" * 34]}}), f"{FIELD}.checkpoint.resumeArgs[0]", "contains a Hug"
    ),
    "a key among the arguments": Bad(
        command({"args": ["a", "--wandb-api-key=abcdef"]}), f"{FIELD}.args[1]", "looks like a secret"
    ),
}
