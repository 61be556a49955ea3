"""The ledger of prompts in asynchronous training: each prompt that was fetched is trained, dropped or still in flight.

In these modes prompts are in flight across steps, and a checkpoint holds them: the loader's position (`data.pt`), the
queue of prompts and responses (`transfer_queue/`), and this ledger (`prompts.json`), which says whether the other two
belong together. The trainer notes each event, and writes the ledger into a step's folder before the step is published.
The launcher compares it with the files before an attempt starts from the step, and the trainer with the queue that it
has loaded. A ledger that does not add up keeps a step from being completed, or from being resumed; it never ends a run.

This module is pure but for `write`, `read` and `problem_of`, and knows nothing of verl.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rljob_runtime.contract import parse_foreign_json
from rljob_runtime.files import file_named_in_errors, write_atomically

LEDGER_FILE = "prompts.json"
LEDGER_BYTES_MAX = 1 << 26
"""Of half a million prompts in flight."""
VERSION = 1
DATA_FILE = "data.pt"
"""verl's name of the loader's state."""
RETRIES = 2
"""How often a prompt whose rollout or reward failed is tried again before it is dropped."""
QUEUE_FOLDER = "transfer_queue"
"""verl's name: trainer_base.py, _save_checkpoint (0.9.1)."""
CONTROLLER_FILE = f"{QUEUE_FOLDER}/controller_state.pkl"
UNITS_FILE = f"{QUEUE_FOLDER}/simple_storage/storage_unit_info.json"
"""One entry per storage unit. Names of TransferQueue: interface.py and simple_storage_manager.py (0.1.11)."""
HASHED = (DATA_FILE, CONTROLLER_FILE, UNITS_FILE)
"""Files whose content is compared: small, and of the same size in different steps. Of the others, which may have
gigabytes, the size is compared."""
SHOWN = 3
"""Prompts that a message names."""
FAULTS_MAX = 20
ROWS_MAX = 1 << 18
"""Trained rows that a ledger lists."""


class Dropped(enum.StrEnum):
    """Why a prompt was dropped."""

    STALE = "stale"
    FILTERED = "filtered"
    """All its responses have the same score (DAPO)."""
    FAILED = "failed"


class LedgerMismatchError(RuntimeError):
    """The ledger, the loader and the queue do not describe the same prompts."""


@dataclass(frozen=True)
class Prompt:
    """A prompt in flight."""

    epoch: int
    row: int
    """Of the dataset."""
    tries: int = 0
    """How often it was tried again."""


@dataclass
class PromptLedger:
    """The prompts of a run up to now, over all its attempts. Events never raise: a contradiction is noted."""

    fetched: int = 0
    trained: int = 0
    retried: int = 0
    dropped: Counter[Dropped] = field(default_factory=Counter)
    in_flight: dict[str, Prompt] = field(default_factory=dict)
    """By verl's uid."""
    trained_rows: list[tuple[int, int]] = field(default_factory=list)
    """Epoch and row of what was trained since the completed step before, up to the next training after a save."""
    dropped_rows: list[tuple[int, int, str]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """Events that contradicted the ledger."""
    _completed: int | None = field(default=None, init=False)
    """Dropped rows that the last completed step has; None if it does not have the last trained rows."""

    def fetch(self, uid: str, epoch: int, row: int) -> None:
        """Note a prompt that the loader gave."""
        self.fetched += 1
        if uid in self.in_flight:
            self._fault(f"{uid} was fetched twice")
        self.in_flight[uid] = Prompt(epoch, row)

    def train(self, uids: Iterable[str]) -> None:
        """Note prompts whose responses a step has trained."""
        if self._completed is not None:
            self.trained_rows.clear()
            del self.dropped_rows[: self._completed]
            self._completed = None
        for uid in uids:
            if (prompt := self._taken(uid, "trained")) is not None:
                self.trained += 1
                # Without saves nothing empties the list; it is what the next step would say about itself.
                if len(self.trained_rows) < ROWS_MAX:
                    self.trained_rows.append((prompt.epoch, prompt.row))

    def drop(self, uids: Iterable[str], reason: Dropped) -> None:
        """Note prompts that are given up."""
        for uid in uids:
            if (prompt := self._taken(uid, f"dropped as {reason}")) is not None:
                self.dropped[reason] += 1
                self.dropped_rows.append((prompt.epoch, prompt.row, reason.value))

    def may_retry(self, uid: str) -> bool:
        """Return whether a prompt that failed is tried again."""
        prompt = self.in_flight.get(uid)
        return prompt is not None and prompt.tries < RETRIES

    def retry(self, uids: Iterable[str]) -> None:
        """Note prompts that are tried again."""
        for uid in uids:
            prompt = self.in_flight[uid]
            self.in_flight[uid] = Prompt(prompt.epoch, prompt.row, prompt.tries + 1)
            self.retried += 1

    def completed(self) -> None:
        """Begin new lists of rows with the next training. Until then, the step may be saved again."""
        self._completed = len(self.dropped_rows)

    def unaccounted(self, prompts: Collection[str], drawn: int) -> int:
        """Return how many prompts are in no place, or in two, by the loader's count and the queue's prompts."""
        return abs(drawn - self.trained - self.dropped.total() - len(prompts))

    def problems(self, prompts: Collection[str], strays: Collection[str], drawn: int) -> list[str]:
        """Return what does not add up.

        `prompts` are the uids in the queue, `strays` keys of responses there that belong to none of them, and `drawn`
        is how many prompts the loader has given.
        """
        found = list(self.faults)
        known = self.trained + self.dropped.total() + len(self.in_flight)
        if self.fetched != known:
            found.append(
                f"{self.fetched} prompts were fetched, but {self.trained} trained, {self.dropped.total()} dropped and "
                f"{len(self.in_flight)} in flight are {known}"
            )
        if drawn != self.fetched:
            found.append(f"the loader has given {drawn} prompts, and the ledger has {self.fetched}")
        queued, flying = set(prompts), set(self.in_flight)
        if gone := flying - queued:
            found.append(f"{len(gone)} prompts in flight are not in the queue: {_some(gone)}")
        if foreign := queued - flying:
            found.append(f"{len(foreign)} prompts in the queue are not in flight: {_some(foreign)}")
        if strays:
            found.append(f"{len(strays)} responses in the queue belong to no prompt: {_some(strays)}")
        places = Counter((prompt.epoch, prompt.row) for prompt in self.in_flight.values())
        if twice := [place for place, count in places.items() if count > 1]:
            found.append(f"{len(twice)} rows are in flight twice: {_some(f'{e}:{r}' for e, r in twice)}")
        return found

    def _taken(self, uid: str, event: str) -> Prompt | None:
        prompt = self.in_flight.pop(uid, None)
        if prompt is None:
            self._fault(f"{uid} was {event}, and was not in flight")
        return prompt

    def _fault(self, text: str) -> None:
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(text)

    def to_plain(self, tags: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return what a step keeps. A prompt in flight has uid, epoch, row, tries, and of its tag step and status."""
        return {
            "version": VERSION,
            "fetched": self.fetched,
            "trained": self.trained,
            "retried": self.retried,
            "dropped": {reason.value: self.dropped[reason] for reason in Dropped},
            "inFlight": [
                [uid, prompt.epoch, prompt.row, prompt.tries, tag.get("global_steps"), tag.get("status")]
                for uid, prompt in self.in_flight.items()
                for tag in (tags.get(uid, {}),)
            ],
            "trainedRows": self.trained_rows,
            "droppedRows": self.dropped_rows,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> PromptLedger:
        """Read what a step keeps. Raises LedgerMismatchError for anything else."""
        try:
            if plain["version"] != VERSION:
                raise LedgerMismatchError(f"{LEDGER_FILE} has version {plain['version']}, this image reads {VERSION}")
            return cls(
                fetched=int(plain["fetched"]),
                trained=int(plain["trained"]),
                retried=int(plain["retried"]),
                dropped=Counter({reason: int(plain["dropped"][reason.value]) for reason in Dropped}),
                in_flight={
                    str(uid): Prompt(int(epoch), int(row), int(tries))
                    for uid, epoch, row, tries, *_ in plain["inFlight"]
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LedgerMismatchError(f"{LEDGER_FILE} cannot be read: {error!r}") from error


def prompts_to_add(wanted: int, in_flight: int) -> int:
    """Return how many prompts a step fetches.

    verl always adds a batch. Here a surplus drains, which an abandoned rollout or a larger window has left.
    """
    return max(0, wanted - in_flight)


def strays(keys: Iterable[str], prompts: Collection[str]) -> list[str]:
    """Return the keys of responses (`<uid>_<session>_<turn>`) whose prompt is not among `prompts`.

    verl clears a prompt when it samples it, and its responses after the step was saved, so that the responses of a
    saved step stay in the queue of every later checkpoint unless they are cleared after a load.
    """
    return [key for key in keys if key not in prompts and key.split("_", 1)[0] not in prompts]


def write(step: Path, ledger: PromptLedger, tags: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the ledger into the folder of a step whose other files are complete."""
    plain = {**ledger.to_plain(tags), "files": _files(step)}
    write_atomically(step / LEDGER_FILE, json.dumps(plain, separators=(",", ":")).encode(), durable=True)


def read(step: Path) -> PromptLedger:
    """Read the ledger of a step. Raises LedgerMismatchError for a file that is not one, OSError if it is not there."""
    return PromptLedger.from_plain(_plain(step))


def prompts_in_flight(step: Path) -> int:
    """Return how many prompts a step has in flight; none for a step of mode Sync."""
    return len(read(step).in_flight) if has_ledger(step) else 0


def has_ledger(step: Path) -> bool:
    """Return whether a step was saved by an asynchronous mode."""
    return (step / LEDGER_FILE).exists()


def problem_of(step: Path) -> str | None:
    """Return why the prompts of a step cannot be resumed, to follow "step N"; None if they can, or if it has none.

    Raises OSError for a volume that cannot be read.
    """
    if not has_ledger(step):
        return None
    try:
        plain = _plain(step)
        ledger = PromptLedger.from_plain(plain)
        if found := ledger.problems(ledger.in_flight, (), ledger.fetched):
            return f"has a ledger that does not add up: {found[0]}"
        wanted, now = dict(plain["files"]), _files(step)
    except (LedgerMismatchError, KeyError, TypeError, ValueError) as error:
        return f"has a broken ledger: {error}"
    if changed := sorted(name for name in wanted.keys() | now.keys() if wanted.get(name) != now.get(name)):
        name = changed[0]
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return (
            f"has files that are not those of its ledger: {name} is {_told(now, name)}, was {_told(wanted, name)}{more}"
        )
    return None


def storage_units(step: Path) -> int | None:
    """Return the number of storage units of a step's queue, which can be loaded only by as many; None without one."""
    file = step / UNITS_FILE
    try:
        with file_named_in_errors(file):
            return len(parse_foreign_json(file.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _plain(step: Path) -> Any:  # noqa: ANN401 - JSON
    file = step / LEDGER_FILE
    with file_named_in_errors(file):
        text = file.read_bytes()
    try:
        return parse_foreign_json(text, LEDGER_BYTES_MAX)
    except ValueError as error:
        raise LedgerMismatchError(f"{LEDGER_FILE} is not JSON: {error}") from error


def _files(step: Path) -> dict[str, dict[str, Any]]:
    """Return size, and of some the hash, of the files that the ledger describes."""
    names = [DATA_FILE, *sorted(str(f.relative_to(step)) for f in (step / QUEUE_FOLDER).rglob("*") if f.is_file())]
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        file = step / name
        if file.is_file():
            found[name] = {"bytes": file.stat().st_size}
            if name in HASHED:
                with file_named_in_errors(file):
                    found[name]["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


def _told(files: Mapping[str, Any], name: str) -> str:
    one = files.get(name)
    if not isinstance(one, Mapping):
        return "absent"
    content = f" with sha256 {str(one['sha256'])[:8]}" if "sha256" in one else ""
    return f"of {one.get('bytes')} bytes{content}"


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:SHOWN]) + (" and more" if len(ordered) > SHOWN else "")
