"""What the launcher cannot honour for a command, and mistakes in how a command is described."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator

from rljob.api.launcher import Command
from rljob.api.lifecycle import Samples
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.patterns import problem_of
from rljob.core.validation.violation import Check, Violation
from rljob_runtime.contract.command import CheckpointFence, CheckpointLayout, CommandStop, Placeholder, ProgressSource

COMMAND = "spec.launcher.command"
CHARACTERS_MAX = 128 * 1024
"""Of all arguments: job.json is in a ConfigMap, which has at most 1 MiB (kubernetes, pkg/apis/core/validation), and one
argument has at most 128 KiB (Linux, MAX_ARG_STRLEN in include/uapi/linux/binfmts.h)."""
STEP = "{step}"
SIMILAR = 0.75
"""Similarity above which a name in braces is taken for a misspelt placeholder."""
COMPARED_MAX = 8
"""Names that are compared: each takes time, and arguments of 128 KiB can have thousands."""
_BRACES = re.compile(r"(?<!\{)\{([A-Za-z]{1,32})\}(?!\})")
_WITH_PATH = {ProgressSource.JSON_LINES: "the file", ProgressSource.TENSORBOARD: "the folder"}


def placeholders(text: str) -> frozenset[str]:
    """Return the names in single braces; `{{name}}` is literal text."""
    return frozenset(_BRACES.findall(text))


def _texts(command: Command) -> Iterator[tuple[str, str]]:
    """Yield every text in which placeholders are replaced, with its path."""
    for index, text in enumerate(command.args):
        yield f"{COMMAND}.args[{index}]", text
    for index, text in enumerate(command.checkpoint.resume_args if command.checkpoint else ()):
        yield f"{COMMAND}.checkpoint.resumeArgs[{index}]", text
    if command.stop.file is not None:
        yield f"{COMMAND}.stop.file", command.stop.file
    if command.progress is not None and command.progress.path is not None:
        yield f"{COMMAND}.progress.path", command.progress.path


def _arguments_are_bounded(spec: RLJobSpec) -> Iterator[Violation]:
    size = sum(len(text.encode()) for _, text in _texts(spec.command)) if spec.command else 0
    if size > CHARACTERS_MAX:
        yield Violation(
            f"{COMMAND}.args",
            f"{size} bytes with resumeArgs; at most {CHARACTERS_MAX} are allowed; move long texts to spec.code",
        )


def _progress_is_found(spec: RLJobSpec) -> Iterator[Violation]:
    """Each source reads its own fields."""
    progress = spec.command.progress if spec.command else None
    if progress is None:
        return
    field, source = f"{COMMAND}.progress", progress.source
    if source in _WITH_PATH and progress.path is None:
        yield Violation(f"{field}.path", f"is required with source {source}; set {_WITH_PATH[source]}")
    if source not in _WITH_PATH and progress.path is not None:
        yield Violation(f"{field}.path", f"is not read with source {source}, which reads the output; remove it")
    if source is not ProgressSource.PATTERN and progress.pattern is not None:
        yield Violation(f"{field}.pattern", f"is not read with source {source}; remove it, or set source Pattern")
    if source is not ProgressSource.JSON_LINES and progress.step_key != "step":
        yield Violation(f"{field}.stepKey", f"is not read with source {source}; remove it")
    if source is ProgressSource.PATTERN:
        yield from _pattern_names_the_step(f"{field}.pattern", progress.pattern)


def _pattern_names_the_step(field: str, pattern: str | None) -> Iterator[Violation]:
    if pattern is None:
        yield Violation(field, "is required with source Pattern; set it, such as 'step (?P<step>[0-9]+)'")
    elif (problem := problem_of(pattern)) is not None:
        yield Violation(field, problem)
    elif "step" not in re.compile(pattern).groupindex:
        yield Violation(field, "has no group named step; write the step's number as (?P<step>[0-9]+)")


def _checkpoints_are_described(spec: RLJobSpec) -> Iterator[Violation]:
    """Folder and layout belong together: without one of them nothing can be resumed."""
    command = spec.command
    if command is None:
        return
    field, saved = f"{COMMAND}.checkpoint", command.checkpoint
    if saved is None:
        if spec.checkpoint is not None:
            yield Violation(field, "is required with spec.checkpoint; state the layout of what the command saves")
        return
    if spec.checkpoint is None:
        yield Violation(field, "requires spec.checkpoint; set its path")
    if saved.layout is CheckpointLayout.PATTERN and saved.pattern is None:
        yield Violation(f"{field}.pattern", "is required with layout Pattern; set it, such as step-{step}")
    if saved.layout is not CheckpointLayout.PATTERN and saved.pattern is not None:
        yield Violation(f"{field}.pattern", f"is not read with layout {saved.layout}; remove it, or set layout Pattern")
    for name, path in (("pattern", saved.pattern), ("complete", saved.complete)):
        if path is not None and (problem := _path_problem(path)) is not None:
            yield Violation(f"{field}.{name}", f"{path} {problem}")
    resumes = saved.resume_args or saved.fence is CheckpointFence.NONE  # a command may look into its one folder itself
    if not resumes and not any(STEP in text for text in command.args):
        yield Violation(
            f"{field}.resumeArgs",
            "is empty, so a restarted command would begin at step 0; set the arguments with which it resumes, such as "
            "--resume={checkpoint}",
        )


def _what_is_deleted_has_a_name(spec: RLJobSpec) -> Iterator[Violation]:
    """In the one folder of fence None, checkpoint.keep deletes what is named as a step."""
    saved = spec.command.checkpoint if spec.command is not None else None
    if saved is None or saved.pattern is None or spec.checkpoint is None or not spec.checkpoint.keep:
        return
    if saved.fence is CheckpointFence.NONE and STEP in saved.pattern.split("/"):
        yield Violation(
            f"{COMMAND}.checkpoint.pattern",
            f"{saved.pattern}: every entry whose name is a number would count as a step to delete; write "
            f"step-{STEP}, or remove checkpoint.keep",
        )


def _path_problem(path: str) -> str | None:
    if path.startswith("/") or ".." in path.split("/"):
        return "must be relative to the folder of checkpoints and stay in it; remove the leading / or .."
    return None if STEP in path else "does not contain {step}, so steps cannot be distinguished; add it"


def _placeholders_have_values(spec: RLJobSpec) -> Iterator[Violation]:
    """A placeholder without a value would reach the command as it is written."""
    for field, text in _texts(spec.command) if spec.command else ():
        names = placeholders(text)
        if Placeholder.CHECKPOINT in names and ".resumeArgs[" not in field:
            yield Violation(
                field,
                "{checkpoint} has a value only where a run resumes; move it to launcher.command.checkpoint.resumeArgs",
            )
        if Placeholder.CHECKPOINTS in names and spec.checkpoint is None:
            yield Violation(field, "{checkpoints} requires spec.checkpoint; set its path")
        if Placeholder.STEPS in names and spec.total_steps is None:
            yield Violation(field, "{steps} requires trainer.steps; set it")


def _command_saves_where_we_look(spec: RLJobSpec) -> Iterator[Violation]:
    """With a folder per attempt, the command learns where to save only from the placeholder."""
    command, folder = spec.command, spec.checkpoint
    if command is None or command.checkpoint is None or folder is None:
        return
    used = any(Placeholder.CHECKPOINTS in placeholders(text) for text in command.args)
    if command.checkpoint.fence is CheckpointFence.ATTEMPT and not used:
        yield Violation(
            f"{COMMAND}.args",
            "contain no {checkpoints}, but with launcher.command.checkpoint.fence Attempt each attempt saves to a "
            "folder of its own; pass {checkpoints} to the command, or set fence None",
        )


def _stop_can_be_asked(spec: RLJobSpec) -> Iterator[Violation]:
    command = spec.command
    if command is None:
        return
    mode, file = command.stop.mode, command.stop.file
    if mode is CommandStop.FILE and file is None:
        yield Violation(f"{COMMAND}.stop.file", "is required with stop.mode File; set it")
    if mode is not CommandStop.FILE and file is not None:
        yield Violation(f"{COMMAND}.stop.file", f"is not read with stop.mode {mode}; remove it, or set mode File")
    if file is not None and not file.startswith(("/", "{checkpoints}")):
        yield Violation(f"{COMMAND}.stop.file", f"{file} must be absolute, or start with {{checkpoints}}")
    if spec.stop.mode == "AbortRollout":
        yield Violation(
            "spec.stop.mode", "AbortRollout needs a hook in the trainer, which a command does not have; use AfterStep"
        )
    if spec.stop.require_checkpoint and mode is CommandStop.NONE:
        yield Violation(
            "spec.stop.requireCheckpoint", "but launcher.command.stop.mode None saves nothing on request; use another"
        )


def _figures_are_known(spec: RLJobSpec) -> Iterator[Violation]:
    command = spec.command
    if command is None:
        return
    if command.progress is None and spec.stop_rules:
        yield Violation("spec.stopRules", "need launcher.command.progress, from which metrics are learned; set it")
    if spec.observability.trackers:
        yield Violation(
            "spec.observability.trackers", "are those of verl; configure the command's in launcher.command.args"
        )
    if spec.observability.samples != Samples():
        yield Violation(
            "spec.observability.samples", "are recorded where verl trains; remove it, and let the command write its own"
        )
    if spec.observability.profile is not None:
        yield Violation(
            "spec.observability.profile", "is verl's profiler; start the command's in launcher.command.args"
        )


def _misspelt_placeholders(spec: RLJobSpec) -> Iterator[Violation]:
    """Hydra's arguments contain braces as well, so an unknown name is no error."""
    known = [name.value for name in Placeholder]
    texts = _texts(spec.command) if spec.command else ()
    unknown = {name: field for field, text in texts for name in placeholders(text) if name not in known}
    for name, field in itertools.islice(sorted(unknown.items()), COMPARED_MAX):
        if near := difflib.get_close_matches(name, known, n=1, cutoff=SIMILAR):
            yield Violation(
                field, f"{{{name}}} is no placeholder and reaches the command as it is; did you mean {{{near[0]}}}?"
            )


def _folder_is_named(spec: RLJobSpec) -> Iterator[Violation]:
    command, folder = spec.command, spec.checkpoint
    if command is None or command.checkpoint is None or folder is None:
        return
    named = any(folder.path in text or Placeholder.CHECKPOINTS in placeholders(text) for text in command.args)
    if command.checkpoint.fence is CheckpointFence.NONE and not named:
        yield Violation(
            f"{COMMAND}.args",
            f"contain neither {{checkpoints}} nor {folder.path}; unless the command learns the folder elsewhere, "
            "nothing is saved there",
        )


def _deadline_bounds_silence_only(spec: RLJobSpec) -> Iterator[Violation]:
    command = spec.command
    if command is not None and command.progress is None and "progress_seconds" in spec.deadlines.model_fields_set:
        yield Violation(
            "spec.deadlines.progressSeconds",
            "without launcher.command.progress no steps are seen, so it bounds only how long the head may be silent",
        )


CHECKS: tuple[Check, ...] = (
    _arguments_are_bounded,
    _progress_is_found,
    _checkpoints_are_described,
    _what_is_deleted_has_a_name,
    _placeholders_have_values,
    _command_saves_where_we_look,
    _stop_can_be_asked,
    _figures_are_known,
)


def _complete_steps_are_distinguishable(spec: RLJobSpec) -> Iterator[Violation]:
    """A folder exists before its files do."""
    saved = spec.command.checkpoint if spec.command is not None else None
    if saved is None or saved.pattern is None or saved.complete is not None:
        return
    if "." not in saved.pattern.rpartition("/")[2]:
        yield Violation(
            f"{COMMAND}.checkpoint.complete",
            f"is not set, so a step counts as soon as {saved.pattern} has an entry; name a file that is written last, "
            "unless the command renames whole folders",
        )


SHELL = re.compile(r"&&|\|\||(?<![\\$])\$(?:\{[A-Z_][A-Z0-9_]{0,63}\}|[A-Z_][A-Z0-9_]{0,63}|\()")
"""What only a shell replaces: lists of commands, variables, and the output of commands. Hydra has `${key}` too, whose
keys are in lower case."""
SHELLS = frozenset({"sh", "bash", "dash", "zsh"})
SUBMISSION = ("ray", "job", "submit")


def _no_shell_line(spec: RLJobSpec) -> Iterator[Violation]:
    """The words reach the program as they are: no shell is started."""
    args = spec.command.args if spec.command is not None else []
    if args and args[0].rpartition("/")[2] in SHELLS:
        return
    for index, text in enumerate(args):
        if found := SHELL.search(text):
            yield Violation(
                f"{COMMAND}.args[{index}]",
                f"{found[0]} reaches the program as it is, because no shell reads the arguments; use [bash, -c, …], "
                "or a value",
            )


def _no_submission_within_the_job(spec: RLJobSpec) -> Iterator[Violation]:
    """The job that it submits to the same Ray is not stopped with its client, and keeps the devices."""
    words = tuple(word.rpartition("/")[2] for word in (spec.command.args if spec.command is not None else []))
    if any(words[at : at + 3] == SUBMISSION for at in range(len(words))):
        yield Violation(
            f"{COMMAND}.args",
            "submit a job to Ray, which outlives its client when the attempt is stopped; name the program itself, "
            "which is a Ray driver on the head",
        )


def _something_ends_a_hang(spec: RLJobSpec) -> Iterator[Violation]:
    command = spec.command
    if command is not None and command.progress is None and spec.deadlines.active_seconds is None:
        yield Violation(
            f"{COMMAND}.progress",
            "is not set and neither is deadlines.activeSeconds, so a command that hangs keeps its devices; set one",
        )


WARNINGS: tuple[Check, ...] = (
    _no_shell_line,
    _no_submission_within_the_job,
    _complete_steps_are_distinguishable,
    _misspelt_placeholders,
    _folder_is_named,
    _deadline_bounds_silence_only,
    _something_ends_a_hang,
)
