"""Who may write into a checkpoint folder: one attempt of one job, by its claim on `<folder>/.owner`.

The launcher claims the folder before verl looks into it, renews the claim while the run lives and gives it back at a
clean end. The trainer checks it before each save and before a save is published. A higher attempt of the same job takes
the folder at once, because the operator decided that the older one is over; another job has to find the claim released
or no longer renewed. Whoever finds that the folder is somebody else's stops without writing: a process that was frozen,
or cut off by a partition, and comes back.

No clock of a machine is trusted. The file's modification time is compared with that of a file made in the same folder
just now, and unless it is much older, the launcher watches whether it changes. Claiming replaces the file by a
rename; renewing and releasing touch the file that was read, so they cannot undo somebody else's claim in between.
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

from rljob_runtime.checkpoint import BEGUN_FILE, TRACKER_FILE, displace_places, displace_unfinished
from rljob_runtime.contract import ExitCode, JobConfig
from rljob_runtime.files import write_atomically
from rljob_runtime.outcomes import FencedError, RefusedError

OWNER_FILE = ".owner"
CLOCK_FILE = ".owner-clock"
"""Beginning of the name of the file that shows the volume's time."""
IN_USE = "CheckpointInUse"
RELEASE_SECONDS = 5.0


@dataclass(frozen=True)
class Owner:
    """An attempt of a job; the names are for people."""

    uid: str
    attempt: int
    namespace: str = field(default="", compare=False)
    name: str = field(default="", compare=False)

    @classmethod
    def of(cls, job: JobConfig, attempt: int) -> Owner:
        """Give the owner that an attempt of `job` is."""
        return cls(job.uid, attempt, job.namespace, job.name)

    def __str__(self) -> str:
        """Name the attempt; claims of the first runtime hold no name."""
        job = f"{self.namespace}/{self.name}" if self.name else f"with uid {self.uid}"
        return f"attempt {self.attempt} of job {job}"


@dataclass(frozen=True)
class Lease:
    """How claims age."""

    renew_seconds: float = 15.0
    stale_seconds: float = 60.0
    """A claim that was not renewed for so long is nobody's: four renewals failed."""
    clocks_seconds: float = 300.0
    """How far clocks of nodes may be apart: JuiceFS and Lustre stamp a file with that of the node that writes (setattr
    of their clients). Source: kube-controller-manager backdates certificates by so much (Backdate in
    pkg/controller/certificates/signer/signer.go, 1.36)."""
    wait_seconds: float = 120.0
    """How long another job's claim is waited for, above `stale_seconds`; a job that was deleted may still be saving."""
    poll_seconds: float = 1.0


@dataclass(frozen=True)
class Seen:
    """The claim as it stood at one look."""

    owner: Owner | None
    """None: nobody's, or damaged."""
    renewed: float
    """The file's modification time; 0: released."""

    def blocks(self, owner: Owner) -> bool:
        """Tell whether the claim is another job's."""
        return self.owner is not None and self.owner.uid != owner.uid and self.renewed > 0


def read_owner(folder: Path) -> Owner | None:
    """Read the claim; None if nobody claimed the folder or the claim is unreadable."""
    return _look(folder).owner


def claim(folder: Path, owner: Owner, lease: Lease | None = None) -> None:
    """Take the folder for `owner`; raises FencedError or, after a bounded wait, RefusedError (exit 65)."""
    folder.mkdir(parents=True, exist_ok=True)
    _wait_for_others(folder, owner, lease or Lease())
    found = read_owner(folder)
    if found is not None and found.uid == owner.uid and found.attempt > owner.attempt:
        raise FencedError(f"{folder}: attempt {found.attempt} owns it, this is attempt {owner.attempt}")
    _take(folder, owner)
    check(folder, owner)


def check(folder: Path, owner: Owner) -> None:
    """Raise FencedError unless `owner` still holds the folder.

    A claim that is gone was deleted by hand with the folder: it is made anew, for the run must not die of that.
    """
    if not (folder / OWNER_FILE).exists():
        folder.mkdir(parents=True, exist_ok=True)
        _create(folder, owner)
    _judge(folder, owner, read_owner(folder))


def publish(folder: Path, owner: Owner, step: int) -> None:
    """Let verl's tracker name a step whose files are complete; raises FencedError if `owner` lost the folder."""
    _replace(folder / TRACKER_FILE, owner, str(step))


def begin(folder: Path, owner: Owner) -> None:
    """Note that every step of the folder is the owner's job's; raises FencedError if `owner` lost the folder."""
    _replace(folder / BEGUN_FILE, owner, owner.uid)


def _replace(file: Path, owner: Owner, text: str) -> None:
    """Replace a file of the folder if it is still the owner's.

    However long the process is frozen between two of these lines, a fenced one replaces nothing: a new owner removes
    the scratch file after it has claimed, so either the check or the rename fails.
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
            # An older attempt that came back inside of its own claim removes those of the owner too.
            if last_try or error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
        else:
            return
        finally:
            scratch.unlink(missing_ok=True)


def renew(folder: Path, owner: Owner) -> None:
    """Show that the owner lives; raises FencedError if it is no longer the owner."""
    check(folder, owner)
    _touch(folder, owner, None)


def release(folder: Path, owner: Owner) -> None:
    """Give the folder back: the next job need not wait. Somebody else's claim is left alone."""
    try:
        _touch(folder, owner, (0, 0))
    except (FencedError, FileNotFoundError):
        return  # somebody else's, or deleted


class Keeper:
    """Renews a claim in the background; `lost` is called once, in that thread, when it is somebody else's."""

    def __init__(self, folder: Path, owner: Owner, lease: Lease, lost: Callable[[FencedError], None]) -> None:
        self._folder, self._owner, self._lease, self._lost = folder, owner, lease, lost
        self._over = threading.Event()
        self._clean = False
        self._told = False
        self._thread = threading.Thread(target=self._keep, name="claim", daemon=True)

    def start(self) -> None:
        """Begin to renew a claim that was just made."""
        self._thread.start()

    def stop(self, *, clean: bool) -> None:
        """End; a clean end releases the claim, after any other something may still be writing."""
        self._clean = clean
        self._over.set()
        if self._thread.ident is not None:
            # A volume that hangs must not hold up the end.
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
            # A volume that fails costs the protection against other jobs, never the run.
            if not self._told:
                self._told = True
                text = f"rljob: the claim on {self._folder} cannot be renewed: {error}"
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
        # In this order: whoever was paused itself must not take that for the other's silence.
        if latest != seen:
            seen, changed = latest, time.monotonic()
        elif time.monotonic() - changed > lease.stale_seconds:
            return
    raise RefusedError(
        ExitCode.ENVIRONMENT,
        IN_USE,
        f"checkpoint.path {folder} is in use by {seen.owner}, which renewed its claim "
        f"{time.monotonic() - changed:.0f} s ago; stop that job, or give this one a checkpoint.path of its own "
        "(checkpoint.from begins from another job's steps)",
    )


def _take(folder: Path, owner: Owner) -> None:
    write_atomically(folder / OWNER_FILE, _encode(owner), durable=True)
    # What an earlier owner was about to write: its rename must fail from now on (see `_replace`).
    for name in (TRACKER_FILE, BEGUN_FILE):
        for scratch in folder.glob(f".{name}.*"):
            scratch.unlink(missing_ok=True)
    displace_places(folder)
    displace_unfinished(folder, owner.uid, owner.attempt)


def _judge(folder: Path, owner: Owner, found: Owner | None) -> None:
    if found is not None and found.uid == owner.uid and found.attempt < owner.attempt:
        # An older attempt that was frozen inside of its own `claim`: the higher one stays.
        _take(folder, owner)
    elif found != owner:
        raise FencedError(f"{folder}: owned by {found or 'nobody'}, not by {owner}; nothing more is written from here")


def _look(folder: Path) -> Seen:
    for again in (True, True, False):
        try:
            # Opened first: network file systems ask the server for fresh attributes when a file is opened.
            with (folder / OWNER_FILE).open("rb") as file:
                return Seen(_decode(file.read()), os.fstat(file.fileno()).st_mtime)
        except FileNotFoundError:
            break
        except OSError as error:
            # NFS: it was replaced between the opening and the reading.
            if error.errno != errno.ESTALE or not again:
                raise
    return Seen(None, 0.0)


def _touch(folder: Path, owner: Owner, times: tuple[int, int] | None) -> None:
    with (folder / OWNER_FILE).open("rb") as file:
        _judge(folder, owner, _decode(file.read()))
        os.utime(file.fileno(), times)


def _create(folder: Path, owner: Owner) -> None:
    """Make the claim only if there is none: a link fails where a rename would replace."""
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
        raw = json.loads(data)
        return Owner(
            uid=str(raw["uid"]),
            attempt=int(raw["attempt"]),
            namespace=str(raw.get("namespace", "")),
            name=str(raw.get("name", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
