"""What the start of an attempt is doing, in words.

The status holds a stage with its numbers and times (`status.start`), which the operator and the command line decide by,
and a message for people: `loading the model: 3 of 16 ranks are done (45 s at 2026-01-01T12:00:45Z)`. The message stays
true without a write per second. The pod reports a stage and two numbers; every word comes from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from rljob.core import times
from rljob_runtime.contract import StartProgress, StartStage

WORDS: Mapping[StartStage, tuple[str, str]] = {
    StartStage.PREPARING: ("checking the configuration", ""),
    StartStage.CONNECTING: ("connecting to Ray", ""),
    StartStage.WAITING_FOR_NODES: ("waiting for the nodes", "have joined Ray"),
    StartStage.CHECKING_NODES: ("checking the nodes", ""),
    StartStage.WAITING_FOR_DEVICES: ("waiting for the devices", "are free"),
    StartStage.CLAIMING_CHECKPOINTS: ("claiming the checkpoint folder", ""),
    StartStage.STARTING_TRAINER: ("starting the trainer", ""),
    StartStage.LOADING_DATA: ("loading the data", ""),
    StartStage.STARTING_RANKS: ("starting the processes of the ranks", "run"),
    StartStage.LOADING_CRITIC: ("loading the critic", "ranks are done"),
    StartStage.LOADING_MODEL: ("loading the model", "ranks are done"),
    StartStage.STARTING_REPLICAS: ("starting the rollout replicas", "serve"),
    StartStage.LOADING_CHECKPOINT: ("loading the checkpoint", "ranks are done"),
    StartStage.SENDING_WEIGHTS: ("sending the weights to the rollout replicas", ""),
    StartStage.VALIDATING: ("validating before the first step", ""),
    StartStage.FIRST_ROLLOUT: ("first rollout", ""),
    StartStage.FIRST_UPDATE: ("first update", ""),
    StartStage.WAITING_FOR_RECORDS: ("waiting for the command to create launcher.command.progress.path", ""),
    StartStage.RUNNING_COMMAND: ("waiting for the first step of the command", ""),
}
"""Per stage: the words, and what follows its two numbers."""


def message(start: StartProgress, now: datetime) -> str:
    """Return the message of the status about a plausible stage, with how long it has lasted and when that was."""
    lasted = _whole_seconds(times.from_unix(start.begun), now)
    return f"{words(start.stage, detail(start))} ({lasted} s at {times.to_text(now)})"


def live(text: str, since: datetime, now: datetime) -> str:
    """Return the words about a stage for somebody who reads them now, if it still lasts."""
    return f"{text} ({_whole_seconds(since, now)} s)"


def words(stage: str, counted: str) -> str:
    """Return the words about a stage of a run; empty for a stage that this version does not know."""
    if stage not in list(StartStage):
        return ""
    named = WORDS[StartStage(stage)][0]
    return f"{named}: {counted}" if counted else named


def detail(start: StartProgress) -> str:
    """Return how far a plausible stage is; empty where nothing is counted."""
    counted = WORDS[StartStage(start.stage)][1]
    return "" if start.total is None else f"{start.done} of {start.total} {counted}".rstrip()


def _whole_seconds(since: datetime, now: datetime) -> int:
    return max(0, int((now - since).total_seconds()))
