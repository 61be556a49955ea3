"""Decide which attempt may write to a checkpoint folder, by a claim in `<folder>/.owner`.

The launcher claims the folder before verl reads it, renews the claim during the run and releases it after a clean end.
The trainer checks the claim before each save and before a save is published. A higher attempt of the same job takes the
folder at once, because the operator has already ended the older attempt. Another job must find the claim released or
no longer renewed. An attempt that finds another owner, for example after a pause or a network partition, stops without
writing.

No machine's clock is trusted. The file's modification time is compared with that of a file just created in the same
folder; unless it is much older, the launcher watches whether it changes. Claiming replaces the file by a rename.
Renewing and releasing touch the file that was read, so they cannot undo another owner's claim in between.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rljob_runtime.checkpoints.saved_steps import BEGUN_FILE, TRACKER_FILE, block_pending_moves, retire_unfinished_saves
from rljob_runtime.contract import ExitCode, JobConfig, parse_foreign_json
from rljob_runtime.files import write_atomically
from rljob_runtime.outcomes import FencedError, RefusedError

OWNER_FILE = ".owner"
CLOCK_FILE = ".owner-clock"
"""Name prefix of the files that show the volume's time."""
IN_USE = "CheckpointInUse"
RELEASE_SECONDS = 5.0


@dataclass(frozen=True)
class Owner:
    """An attempt of a job. Namespace and name are for messages only."""

    uid: str
    attempt: int
    namespace: str = field(default="", compare=False)
    name: str = field(default="", compare=False)

    @classmethod
    def of(cls, job: JobConfig, attempt: int) -> Owner:
        """Return the owner for an attempt of `job`."""
        return cls(job.uid, attempt, job.namespace, job.name)

    def __str__(self) -> str:
        """Name the attempt. Claims of the first runtime release contain no job name."""
        job = f"{self.namespace}/{self.name}" if self.name else f"with uid {self.uid}"
        return f"attempt {self.attempt} of job {job}"


@dataclass(frozen=True)
class Lease:
    """Timing of claims."""

    renew_seconds: float = 15.0
    stale_seconds: float = 60.0
    """A claim that was not renewed for this long is void: four renewals failed."""
    clocks_seconds: float = 300.0
    """Largest difference between the clocks of nodes: JuiceFS and Lustre set a file's time from the clock of the node
    that writes it (setattr of their clients). Source: kube-controller-manager backdates certificates by the same time
    (Backdate in pkg/controller/certificates/signer/signer.go, 1.36)."""
    wait_seconds: float = 120.0
    """How long to wait for another job's claim, beyond `stale_seconds`. A deleted job may still be saving."""
    poll_seconds: float = 1.0


@dataclass(frozen=True)
class ClaimState:
    """The claim as read at one time."""

    owner: Owner | None
    """None if there is no owner or the file is damaged."""
    renewed: float
    """The file's modification time; 0 if the claim was released."""

    def blocks(self, owner: Owner) -> bool:
        """Return whether the claim belongs to another job."""
        return self.owner is not None and self.owner.uid != owner.uid and self.renewed > 0


def read_owner(folder: Path) -> Owner | None:
    """Read the claim; return None if there is none or it is unreadable."""
    return _look(folder).owner


def claim(folder: Path, owner: Owner, lease: Lease | None = None) -> None:
    """Take the folder for `owner`. Raises FencedError or, after a bounded wait, RefusedError (exit 65)."""
    folder.mkdir(parents=True, exist_ok=True)
    _wait_for_others(folder, owner, lease or Lease())
    found = read_owner(folder)
    if found is not None and found.uid == owner.uid and found.attempt > owner.attempt:
        raise FencedError(f"{folder}: attempt {found.attempt} owns it, this is attempt {owner.attempt}")
    _take(folder, owner)
    check(folder, owner)


def check(folder: Path, owner: Owner) -> None:
    """Raise FencedError unless `owner` still holds the folder.

    A missing claim was deleted by hand together with the folder. It is created again, because the run can continue.
    """
    if not (folder / OWNER_FILE).exists():
        folder.mkdir(parents=True, exist_ok=True)
        _create(folder, owner)
    _judge(folder, owner, read_owner(folder))


def publish(folder: Path, owner: Owner, step: int) -> None:
    """Point verl's tracker to a step whose files are complete. Raises FencedError if `owner` lost the folder."""
    _replace(folder / TRACKER_FILE, owner, str(step))


def begin(folder: Path, owner: Owner) -> None:
    """Record that every step in the folder belongs to this job. Raises FencedError if `owner` lost the folder."""
    _replace(folder / BEGUN_FILE, owner, owner.uid)


def _replace(file: Path, owner: Owner, text: str) -> None:
    """Replace a file of the folder if `owner` still holds the folder.

    The process may be paused between any two lines: a new owner removes the scratch file after it has claimed, so
    either the check or the rename fails and a fenced process replaces nothing.
    """
    folder = file.parent
    for last_try in (False, False, True):
        check(folder, owner)
        scratch = folder / f".{file.name}.{owner.attempt}.{uuid.uuid4().hex}"
        try:
            with scratch.open("wb") as opened:
                opened.write(text.encode())
                opened.flush()
                os.fsync(opened.fileno())
            check(folder, owner)
            scratch.replace(file)
        except OSError as error:
            check(folder, owner)
            # An older attempt that resumes within its own claim also removes the scratch files of the owner.
            if last_try or error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
        else:
            return
        finally:
            scratch.unlink(missing_ok=True)


def renew(folder: Path, owner: Owner) -> None:
    """Renew the claim. Raises FencedError if it has another owner."""
    check(folder, owner)
    _touch(folder, owner, None)


def release(folder: Path, owner: Owner) -> None:
    """Release the folder so that the next job need not wait. Another owner's claim is left unchanged."""
    try:
        _touch(folder, owner, (0, 0))
    except (FencedError, FileNotFoundError):
        return  # another owner's claim, or a deleted one


class Keeper:
    """Renews a claim in the background. Calls `lost` once, in its own thread, when the claim has another owner."""

    def __init__(self, folder: Path, owner: Owner, lease: Lease, lost: Callable[[FencedError], None]) -> None:
        self._folder, self._owner, self._lease, self._lost = folder, owner, lease, lost
        self._over = threading.Event()
        self._clean = False
        self._logged = False
        self._thread = threading.Thread(target=self._keep, name="claim", daemon=True)

    def start(self) -> None:
        """Start renewing a claim that was just made."""
        self._thread.start()

    def stop(self, *, clean: bool) -> None:
        """Stop renewing. Release the claim only after a clean end: otherwise a process may still be writing."""
        self._clean = clean
        self._over.set()
        if self._thread.ident is not None:
            # A hanging volume must not delay the end of the process.
            self._thread.join(RELEASE_SECONDS)

    def _keep(self) -> None:
        while not self._over.wait(self._lease.renew_seconds):
            try:
                self._attempt(renew)
            except FencedError as error:
                self._lost(error)
                return
        if self._clean:
            self._attempt(release)

    def _attempt(self, what: Callable[[Path, Owner], None]) -> None:
        try:
            what(self._folder, self._owner)
        except OSError as error:
            # A failing volume loses the protection against other jobs but must not end the run.
            if not self._logged:
                self._logged = True
                text = f"rljob: cannot renew the claim on {self._folder}: {error}"
                print(text, file=sys.stderr, flush=True)  # noqa: T201


def _wait_for_others(folder: Path, owner: Owner, lease: Lease) -> None:
    seen = _look(folder)
    if not seen.blocks(owner) or _volume_time(folder) - seen.renewed > lease.stale_seconds + lease.clocks_seconds:
        return
    print(f"rljob: {folder} is claimed by {seen.owner}; waiting for its end", file=sys.stderr, flush=True)  # noqa: T201
    begun = changed = time.monotonic()
    while time.monotonic() - begun < lease.wait_seconds:
        time.sleep(lease.poll_seconds)
        latest = _look(folder)
        if not latest.blocks(owner):
            return
        # Check for a change first: if this process was paused itself, the other owner must not appear silent.
        if latest != seen:
            seen, changed = latest, time.monotonic()
        elif time.monotonic() - changed > lease.stale_seconds:
            return
    raise RefusedError(
        ExitCode.ENVIRONMENT,
        IN_USE,
        f"checkpoint.path {folder} is in use by {seen.owner}, which renewed its claim "
        f"{time.monotonic() - changed:.0f} s ago; stop that job, or give this one a checkpoint.path of its own "
        "(checkpoint.from starts from another job's steps)",
    )


def _take(folder: Path, owner: Owner) -> None:
    write_atomically(folder / OWNER_FILE, _encode(owner), durable=True)
    # Renames of files that an earlier owner was about to publish must fail from now on (see `_replace`).
    for name in (TRACKER_FILE, BEGUN_FILE):
        for scratch in folder.glob(f".{name}.*"):
            scratch.unlink(missing_ok=True)
    block_pending_moves(folder)
    retire_unfinished_saves(folder, owner.uid, owner.attempt)


def _judge(folder: Path, owner: Owner, found: Owner | None) -> None:
    if found is not None and found.uid == owner.uid and found.attempt < owner.attempt:
        # An older attempt was paused within its own `claim`; the higher attempt keeps the folder.
        _take(folder, owner)
    elif found != owner:
        raise FencedError(
            f"{folder}: owned by {found or 'no attempt'}, not by {owner}; this attempt writes nothing more"
        )


def _look(folder: Path) -> ClaimState:
    for again in (True, True, False):
        try:
            # Open first: network file systems fetch fresh attributes from the server when a file is opened.
            with (folder / OWNER_FILE).open("rb") as file:
                return ClaimState(_decode(file.read()), os.fstat(file.fileno()).st_mtime)
        except FileNotFoundError:
            break
        except OSError as error:
            # NFS: the file was replaced between opening and reading.
            if error.errno != errno.ESTALE or not again:
                raise
    return ClaimState(None, 0.0)


def _touch(folder: Path, owner: Owner, times: tuple[int, int] | None) -> None:
    with (folder / OWNER_FILE).open("rb") as file:
        _judge(folder, owner, _decode(file.read()))
        os.utime(file.fileno(), times)


def _create(folder: Path, owner: Owner) -> None:
    """Create the claim only if there is none. A link fails where a rename would replace the file."""
    scratch = folder / f"{OWNER_FILE}.{uuid.uuid4().hex}"
    scratch.write_bytes(_encode(owner))
    try:
        os.link(scratch, folder / OWNER_FILE)
    except FileExistsError:
        return
    finally:
        scratch.unlink()


def _volume_time(folder: Path) -> float:
    clock = folder / f"{CLOCK_FILE}.{uuid.uuid4().hex}"
    try:
        with clock.open("xb") as file:
            return os.fstat(file.fileno()).st_mtime
    finally:
        clock.unlink(missing_ok=True)


def _encode(owner: Owner) -> bytes:
    return json.dumps(asdict(owner), sort_keys=True).encode()


def _decode(data: bytes) -> Owner | None:
    try:
        raw = parse_foreign_json(data)
        return Owner(
            uid=str(raw["uid"]),
            attempt=int(raw["attempt"]),
            namespace=str(raw.get("namespace", "")),
            name=str(raw.get("name", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
