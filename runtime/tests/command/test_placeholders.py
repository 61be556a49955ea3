"""The values of an attempt are filled into the texts of its command."""

from __future__ import annotations

from pathlib import Path

import pytest

from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.command.placeholders import arguments, substitute, values_of
from rljob_runtime.contract import CheckpointLayout, CommandCheckpoint, CommandConfig, ExitCode, Placeholder
from rljob_runtime.outcomes import RefusedError
from runtime.tests.conftest import MakeJob

START = Start(Path("/ckpt/sums-uid01-1-attempt-1/global_step_5"), 5)
FOLDER = Path("/ckpt/sums-uid01-1-attempt-2")
RESUME = CommandCheckpoint(CheckpointLayout.VERL, resume_args=("--from={checkpoint}", "--at", "{step}"))


def test_every_placeholder_has_a_value(make_job: MakeJob) -> None:
    values = values_of(make_job(nodes=2, devices=32), 2, START, FOLDER)
    assert {placeholder.value: text for placeholder, text in values.items()} == {
        "checkpoint": "/ckpt/sums-uid01-1-attempt-1/global_step_5",
        "checkpoints": "/ckpt/sums-uid01-1-attempt-2",
        "step": "5",
        "steps": "40",
        "attempt": "2",
        "nodes": "2",
        "devices": "32",
        "devicesPerNode": "16",
    }
    assert set(values) == set(Placeholder)


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("--steps={steps}", "--steps=40"),
        ("{steps}{attempt}", "402"),
        ("{{steps}}", "{steps}"),
        ("a={{{steps}}}", "a={{steps}}"),
        ("{{steps}", "{40"),
        ("{steps}}", "40}"),
        ("+x={a: 1, b: {c: 2}}", "+x={a: 1, b: {c: 2}}"),
        ("{Steps} { steps } {} {{}} ${steps}", "{Steps} { steps } {} {{}} $40"),
        ("{checkpoints}/x", "/ckpt/{steps}/x"),
    ],
)
def test_only_placeholders_are_replaced_and_values_are_not_searched(make_job: MakeJob, text: str, becomes: str) -> None:
    assert substitute(text, values_of(make_job(), 2, START, Path("/ckpt/{steps}")), "args[0]") == becomes


def test_an_attempt_that_resumes_has_the_arguments_for_it(make_job: MakeJob) -> None:
    command = CommandConfig(args=("train", "{step}"), checkpoint=RESUME)
    assert arguments(command, values_of(make_job(), 1, Start(), FOLDER)) == ["train", "0"]
    resumed = arguments(command, values_of(make_job(), 2, START, FOLDER))
    assert resumed == ["train", "5", f"--from={START.folder}", "--at", "5"]
    assert arguments(CommandConfig(args=("train",)), values_of(make_job(), 2, START, None)) == ["train"]


@pytest.mark.parametrize(
    ("command", "start", "told"),
    [
        (CommandConfig(("a", "{checkpoint}")), Start(), r"command.args\[1\]: {checkpoint} has no value: .*resumeArgs"),
        (CommandConfig(("{checkpoints}",)), Start(), r"command.args\[0\]: {checkpoints} .*set checkpoint.path"),
        (
            CommandConfig(("a",), checkpoint=CommandCheckpoint(CheckpointLayout.VERL, resume_args=("{checkpoints}",))),
            START,
            r"command.checkpoint.resumeArgs\[0\]: {checkpoints} has no value",
        ),
    ],
)
def test_a_placeholder_without_a_value_is_refused(
    make_job: MakeJob, command: CommandConfig, start: Start, told: str
) -> None:
    with pytest.raises(RefusedError, match=told) as refused:
        arguments(command, values_of(make_job(), 1, start, None))
    assert refused.value.code is ExitCode.BAD_CONFIG
