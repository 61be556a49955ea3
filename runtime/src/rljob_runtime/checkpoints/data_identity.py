"""Record the training data of a checkpoint step, and check that an attempt which resumes there reads the same.

A step's `data.pt` holds a place in the data as a number of prompts and the state of a shuffle, and nothing of the data
itself. With fewer prompts the place is behind their end: verl's loader ends twice in a row, and the run fails with
StopIteration (verl/trainer/ppo/v1/trainer_base.py:1466-1474, 0.9.1; verl issue 2984). With other prompts, others are
repeated and left out than the run believes, and nothing says so. Each save therefore records what the data is, and the
trainer compares it when it has read the data, before the first worker exists. With `checkpoint.data: NewEpoch` the run
keeps the weights and begins the data from its start.

What cannot be read has no digest and is not compared, nor is a step without a record, of verl or of an older image. Of
a dataset class of the user's own (data.custom_cls) the files are compared, and not the number of prompts, which such a
class may change as it likes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rljob_runtime.checkpoints import prompt_ledger, saved_steps
from rljob_runtime.contract import ExitCode, JobConfig, ResumeData, TrainerMode, parse_foreign_json
from rljob_runtime.files import file_named_in_errors
from rljob_runtime.input_checks.data_files import paths
from rljob_runtime.input_checks.deadline import within
from rljob_runtime.outcomes import RefusedError

if TYPE_CHECKING:
    from omegaconf import DictConfig

DATA_FILE = "data.json"
"""Name of the file in a step's folder with its training data."""
BLOCKS = 16
BLOCK_BYTES = 1 << 20
"""A digest reads at most 16 MiB of a file, and of the 64 files of data.train 1 GiB. verl has just read all of it."""
READ_SECONDS = 60.0
"""Time for all digests together. Without them the run continues, because only the comparison is lost."""
SHOWN = 3
"""Files that a message names."""


@dataclass(frozen=True)
class DataFile:
    """One file of data.train."""

    path: str
    """For messages only: the same data may be at another path."""
    bytes: int | None = None
    sha256: str | None = None
    """Digest of `digest`; None if the file could not be read, or is a folder."""


@dataclass(frozen=True)
class DataIdentity:
    """The data of a run, in the order in which verl concatenates it."""

    files: tuple[DataFile, ...]
    prompts: int | None
    """Prompts that verl draws from: the rows of the files without those that a limit or filter leaves out. None if a
    class of the user's own decides."""

    def differences(self, now: DataIdentity) -> Iterator[str]:
        """Yield what differs, for a message; nothing if all that can be compared is equal."""
        files = list(_changed_files(self.files, now.files))
        if None not in (self.prompts, now.prompts) and self.prompts != now.prompts:
            known = not files and all(file.sha256 is not None for file in (*self.files, *now.files))
            same = " of the same files, by other limits, data.overlong or another tokenizer" if known else ""
            yield f"spec.data.train had {self.prompts} prompts then, and has {now.prompts} now{same}"
        yield from files[:SHOWN]
        if len(files) > SHOWN:
            yield f"{len(files) - SHOWN} more files are others"


def of(config: DictConfig, prompts: int) -> DataIdentity:
    """Return the identity of the data that verl has read. Never raises for data that cannot be read."""
    files = paths(config.data.train_files)
    try:
        found = within(READ_SECONDS, lambda: tuple(map(identify, files)))
    except TimeoutError:
        found = tuple(map(DataFile, files))
    is_own_class = (config.data.get("custom_cls") or {}).get("path") is not None
    return DataIdentity(found, None if is_own_class else prompts)


def identify(path: str) -> DataFile:
    """Return what identifies one file."""
    try:
        if not Path(path).is_file():
            return DataFile(path)
        return DataFile(path, *digest(path))
    except (OSError, ValueError):  # ValueError: a path with a null byte
        return DataFile(path)


def digest(path: str) -> tuple[int, str]:
    """Return the size of a file and a hash of its size and content. Raises OSError.

    The path is no part of it, so a copy has the same. Of a file of more than 16 MiB, 16 blocks of 1 MiB are hashed,
    evenly spread from its first byte to its last. A Parquet file ends with the places, sizes and usually the smallest
    and largest values of all its columns, and a row of another length moves all bytes behind it.

    It cannot tell apart large files of the same size that differ only between the blocks, such as two lines of the same
    length that were exchanged. The same rows written again, with another compression or by another release of a
    library, are other files.
    """
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        found = hashlib.sha256(f"{size}:".encode())
        for start in _blocks(size):
            file.seek(start)
            found.update(file.read(BLOCK_BYTES))
    return size, found.hexdigest()


def _blocks(size: int) -> Sequence[int]:
    if size <= BLOCKS * BLOCK_BYTES:
        return range(0, size, BLOCK_BYTES)
    return [(size - BLOCK_BYTES) * number // (BLOCKS - 1) for number in range(BLOCKS)]


def note(step: Path, data: DataIdentity | None, check_owner: Callable[[], None]) -> None:
    """Record the data in a step's folder. A failing volume loses the record, not the save."""
    if data is not None:
        saved_steps.note(step, DATA_FILE, json.dumps(asdict(data), sort_keys=True), "training data", check_owner)


def begins_epoch(step: Path, now: DataIdentity, job: JobConfig) -> str | None:
    """Return why the run begins a new epoch of its data; None if it continues at the step's place in the data.

    Raises RefusedError (exit 64) for other data than the step's without NewEpoch, and OSError for a volume that cannot
    be read. Prompts in flight are those of the old data, so asynchronous modes cannot leave it.
    """
    if prompt_ledger.has_ledger(step) != (job.mode is not TrainerMode.SYNC):
        return None  # of the other kind of mode, which begins with the first prompts anyway
    then = read(step)
    differences = "; ".join(then.differences(now)) if then is not None else ""
    if not differences:
        return None
    if job.resume_data is ResumeData.NEW_EPOCH and job.mode is TrainerMode.SYNC:
        return f"{step} was saved with other training data: {differences}; a new epoch begins with the data of now"
    keeps = (
        "set spec.checkpoint.data to NewEpoch, with which the run keeps the weights and begins an epoch of the new data"
        if job.mode is TrainerMode.SYNC
        else f"merge the step into a model for model.path of another job, because trainer.mode {job.mode} has prompts "
        "of the old data in flight"
    )
    raise RefusedError(
        ExitCode.BAD_CONFIG,
        "CheckpointData",
        f"{step} was saved with other training data, and its place counts the prompts of that: {differences}; restore "
        f"the data of spec.data.train, or {keeps}",
    )


def read(step: Path) -> DataIdentity | None:
    """Return the data that a step was saved with; None if it has no record that can be read. Raises OSError."""
    file = step / DATA_FILE
    try:
        with file_named_in_errors(file):
            return _from_plain(parse_foreign_json(file.read_bytes()))
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _from_plain(plain: Any) -> DataIdentity:  # noqa: ANN401 - JSON
    files = tuple(DataFile(str(one["path"]), one.get("bytes"), one.get("sha256")) for one in plain["files"])
    prompts = plain["prompts"]
    return DataIdentity(files, None if prompts is None else int(prompts))


def _changed_files(then: Sequence[DataFile], now: Sequence[DataFile]) -> Iterator[str]:
    if len(then) != len(now):
        if all(file.sha256 is not None for file in (*then, *now)):
            yield f"{_listed(then)} then, {_listed(now)} now"
        return
    for old, new in zip(then, now, strict=True):
        if None not in (old.sha256, new.sha256) and old.sha256 != new.sha256:
            moved = "" if old.path == new.path else f" {old.path}"
            yield f"{new.path} of {new.bytes} bytes is not the file{moved} of {old.bytes} bytes that it was"


def _listed(files: Sequence[DataFile]) -> str:
    more = f" and {len(files) - SHOWN} more" if len(files) > SHOWN else ""
    return f"{len(files)} files ({', '.join(file.path for file in files[:SHOWN])}{more})"
