"""What the start of an attempt is doing, in words: written into the status and read again from there.

The status holds how long the stage had lasted at the time of the write: `loading the model: 3 of 16 ranks are done (45
s at 2026-01-01T12:00:45Z)`. That stays true without a write per second, the operator sees when it wrote last, and the
command line counts on from it. The pod reports a stage and two numbers; every word comes from here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
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
}
"""Per stage: the words, and what follows its two numbers."""
WRITTEN = re.compile(r"(?P<words>.{1,200}) \((?P<seconds>\d{1,10}) s at (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\)")


@dataclass(frozen=True)
class Written:
    """A message in the status."""

    words: str
    seconds: int
    """How long the stage had lasted when the message was written."""
    time: datetime
    """When it was written."""

    @property
    def text(self) -> str:
        """The message as it stands in the status."""
        return f"{self.words} ({self.seconds} s at {times.to_text(self.time)})"

    def now(self, now: datetime) -> str:
        """Return the message for somebody who reads it now, if the stage still lasts."""
        return f"{self.words} ({self.seconds + max(0, int((now - self.time).total_seconds()))} s)"


def message(start: StartProgress | None, now: datetime) -> Written | None:
    """Return the message about a plausible stage; None without one."""
    if start is None:
        return None
    words, counted = WORDS[StartStage(start.stage)][0], detail(start)
    words = f"{words}: {counted}" if counted else words
    return Written(words, max(0, int(now.timestamp() - start.begun)), now)


def detail(start: StartProgress) -> str:
    """Return how far a plausible stage is; empty where nothing is counted."""
    counted = WORDS[StartStage(start.stage)][1]
    return "" if start.total is None else f"{start.done} of {start.total} {counted}".rstrip()


def read(text: str) -> Written | None:
    """Return a message that stands in a status; None for any other text."""
    found = WRITTEN.fullmatch(text)
    if found is None:
        return None
    try:
        written = times.from_text(found["time"])
    except ValueError:
        return None
    return Written(found["words"], int(found["seconds"]), written)
