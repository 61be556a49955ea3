"""The folder of a local job: what is kept between runs, and the lock on it.

.rljob/<job>/
    state.json            uid of the job, number of its attempts, how the last one ended
    volumes/<claim>/      claims of the manifest
    scratch/<volume>/     emptyDirs; emptied when a run begins
    configmaps/<name>/    ConfigMaps of the file, as files
    code/                 the commit of code.git
    spool/                progress, step records and stop requests of every attempt
    logs/                 of initializers, Ray and attempts
    checkpoints/          of a job whose manifest names no checkpoint.path
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rljob.cli.errors import UsageError


@dataclass(frozen=True)
class State:
    """What a folder of local runs records for the next run of its job."""

    uid: str
    attempts: int = 0
    finished_digest: str | None = None
    """Digest of the job.json whose training completed."""
    checkpoint_path: str | None = None
    """Where this job saves; other jobs can start from this path."""


@dataclass(frozen=True)
class JobFolder:
    """The folder of a local run: its paths and its saved state."""

    root: Path

    @property
    def spool(self) -> Path:
        """Folder of the runtime's records."""
        return self.root / "spool"

    @property
    def logs(self) -> Path:
        """Folder of the processes' output."""
        return self.root / "logs"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints of a job whose manifest has no path for them."""
        return self.root / "checkpoints"

    @property
    def job_json(self) -> Path:
        """File that the launcher reads."""
        return self.root / "job.json"

    def claim(self, name: str) -> Path:
        """Folder of a PersistentVolumeClaim."""
        return self.root / "volumes" / name

    def scratch(self, name: str) -> Path:
        """Folder of an emptyDir."""
        return self.root / "scratch" / name

    def config_map(self, name: str) -> Path:
        """Folder of a ConfigMap."""
        return self.root / "configmaps" / name

    @property
    def fetched_code(self) -> Path:
        """Folder with the commit fetched from a Git repository."""
        return self.root / "code"

    def attempt(self, number: int) -> Path:
        """The spool folder of one attempt."""
        return self.spool / f"attempt-{number}"

    def state(self) -> State:
        """Read the state; return a new one if there is none."""
        return read_state(self.root) or State(uid=str(uuid.uuid4()))

    def keep(self, state: State) -> None:
        """Write the state."""
        write(self.root / "state.json", json.dumps(asdict(state), indent=2).encode())

    def begin_attempt(self, state: State) -> State:
        """Record a new attempt before it begins, so that its number is never reused."""
        begun = replace(state, attempts=state.attempts + 1, finished_digest=None)
        self.keep(begun)
        return begun


def read_state(root: Path) -> State | None:
    """Read the state of a job's folder; return None if no run ever began there."""
    try:
        return State(**json.loads((root / "state.json").read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise UsageError(f"{root / 'state.json'} is damaged ({error}); remove {root} to start over") from error


@contextmanager
def held(root: Path) -> Iterator[JobFolder]:
    """Lock the folder, because two runs of one job would corrupt each other's checkpoints.

    The kernel releases the lock when this process ends.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        # Below it are prompts, logs, and files by which other users of the machine could stop or change the run.
        root.chmod(0o700)
        file = (root / "lock").open("a")
    except OSError as error:
        raise UsageError(f"{root}: {error.strerror}; choose another folder with --workdir") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{root} is in use by another `rljob run --local`; wait for it to end") from None
        yield JobFolder(root)


def empty(folder: Path) -> None:
    """Create an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Create a folder that holds exactly these files."""
    empty(folder)
    for name, content in files.items():
        write(folder / name, content)


def write(path: Path, content: bytes) -> None:
    """Write a file atomically: a reader sees the old or the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_bytes(content)
    scratch.replace(path)
