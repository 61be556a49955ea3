"""The folder of a local job: what is kept between runs, and who uses it now.

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
    """What the next run must know."""

    uid: str
    attempts: int = 0
    finished_digest: str | None = None
    """Digest of the job.json that was trained to its last step."""
    checkpoint_path: str | None = None
    """Where this job saves: another job may begin from it."""


@dataclass(frozen=True)
class JobFolder:
    """Paths, and the state."""

    root: Path

    @property
    def spool(self) -> Path:
        """The runtime's records."""
        return self.root / "spool"

    @property
    def logs(self) -> Path:
        """What the processes print."""
        return self.root / "logs"

    @property
    def checkpoints(self) -> Path:
        """Of a job that names no path of its own."""
        return self.root / "checkpoints"

    @property
    def job_json(self) -> Path:
        """What the launcher reads."""
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
        """What was fetched of a Git repository."""
        return self.root / "code"

    def attempt(self, number: int) -> Path:
        """The spool's folder of one attempt."""
        return self.spool / f"attempt-{number}"

    def state(self) -> State:
        """Read the state; a new one when there is none."""
        return read_state(self.root) or State(uid=str(uuid.uuid4()))

    def keep(self, state: State) -> None:
        """Write the state."""
        write(self.root / "state.json", json.dumps(asdict(state), indent=2).encode())

    def begin_attempt(self, state: State) -> State:
        """Count an attempt before it begins, so that its number is never used again."""
        begun = replace(state, attempts=state.attempts + 1, finished_digest=None)
        self.keep(begun)
        return begun


def read_state(root: Path) -> State | None:
    """Read the state of a job's folder; None when no run ever began there."""
    try:
        return State(**json.loads((root / "state.json").read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise UsageError(f"{root / 'state.json'} is damaged ({error}); remove {root} to begin anew") from error


@contextmanager
def held(root: Path) -> Iterator[JobFolder]:
    """Hold the folder: two runs of one job would spoil each other's checkpoints. The kernel frees it at our end."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        file = (root / "lock").open("a")
    except OSError as error:
        raise UsageError(f"{root}: {error.strerror}; give another folder with --workdir") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{root} is used by another `rljob run --local`; wait for its end") from None
        yield JobFolder(root)


def empty(folder: Path) -> None:
    """Make an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder that holds exactly these files."""
    empty(folder)
    for name, content in files.items():
        write(folder / name, content)


def write(path: Path, content: bytes) -> None:
    """Write a file in one step: a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_bytes(content)
    scratch.replace(path)
