"""Which steps a checkpoint folder holds, which one verl's tracker names, and which go. Who may write there: claims.py.

A step goes by a rename: from one moment to the next it is no checkpoint to anybody, and its deletion may take long, be
cut off, or fail.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from rljob_runtime.files import naming

TRACKER_FILE = "latest_checkpointed_iteration.txt"
"""verl/utils/checkpoint/checkpoint_manager.py, find_latest_ckpt_path (0.9.1)."""
COMPLETE_MARK = "data.pt"
"""Written after the model and before the tracker, by torch.save: trainer_base.py, _save_checkpoint (0.9.1)."""
ZIP_END = b"PK\x05\x06"
"""Begins the last record of a zip (APPNOTE.TXT, 4.3.16)."""
ZIP_END_BYTES = 22
ZIP_COMMENT_BYTES = 1 << 16
"""What may follow that record."""
MODEL_FOLDER = "actor"
"""Beside the mark. verl's own limit removes it from an old step and leaves the mark: checkpoint_manager.py (0.9.1)."""
CRITIC_FOLDER = "critic"
"""Beside the actor's, for an algorithm that has one: trainer_base.py, _save_checkpoint (0.9.1)."""
SHARD = re.compile(r"^(?P<kind>model|optim|extra_state)_world_size_(?P<ranks>\d+)_rank_\d+\.pt$")
"""One rank's part of what FSDP saves: verl/utils/checkpoint/fsdp_checkpoint_manager.py (0.9.1)."""
STEP_FOLDER = re.compile(r"^global_step_(\d+)$")
READS_AT_ONCE = 16
BEGUN_FILE = ".begun"
"""In a checkpoint folder: uid of the job that began it anew."""
RETIRED = ".retired-"
"""Beginning of the name of a place in which a step's folder waits for its deletion."""
ASIDE = ".aside-"
"""Beginning of the name of a place by way of which a step is set aside."""
PLACE = re.compile(r"^\.saving-(?P<uid>.+)\.(?P<attempt>\d+)\.[0-9a-f]{32}$")
"""Where an attempt of a job saves a step, until the step is whole and gets its name."""


def complete_steps(folder: Path) -> list[int]:
    """Give the steps whose checkpoints are complete, ascending."""
    return [step for step in _steps(folder) if is_complete(step_folder(folder, step))]


def holds_complete(folder: Path) -> bool:
    """Tell whether a folder holds a complete checkpoint; marks beside the newest one's are not read."""
    return any(is_complete(step_folder(folder, step)) for step in reversed(_steps(folder)))


def superfluous_steps(folder: Path, keep: int, last: int, whole: set[int]) -> list[int]:
    """Give the steps up to `last` that nobody needs: none from the newest `keep` whole ones on, nor the tracker's.

    A complete step that lost a part, as by a node's power, is no reason to give up the one before. `whole` has the
    steps that are known to have every part; those that are found so are added. None are given without a tracker: what
    the next attempt would begin from is not known then.
    """
    if (tracked := tracked_step(folder)) is None:
        return []
    steps = [step for step in _steps(folder) if step <= last]
    complete = [step for step in steps if is_complete(step_folder(folder, step))]
    needed = {tracked}
    kept = 0
    while complete and kept < keep:
        needed.add(step := complete.pop())
        if step not in whole and has_every_part(step_folder(folder, step)):
            whole.add(step)
        kept += step in whole
    return [step for step in steps if step not in needed]


def retire(folder: Path, step: int, check_owner: Callable[[], None]) -> None:
    """Take a step away, if it is there: whoever still writes into its files writes for nobody."""
    take_away(step_folder(folder, step), RETIRED, check_owner)


def take_away(entry: Path, kind: str, check_owner: Callable[[], None]) -> None:
    """Move something of a checkpoint folder, if it is there, into a place of its own beside it.

    However long the process is frozen between two of these lines, one that lost the folder takes nothing away: a new
    owner removes the place after it has claimed (`displace_places`), so either the check or the rename fails.
    """
    for last_try in (False, False, True):
        if not entry.exists():
            return
        place = entry.with_name(f"{kind}{entry.name}.{uuid.uuid4().hex}")
        place.mkdir()
        check_owner()
        try:
            entry.rename(place / entry.name)
        except OSError as error:
            check_owner()
            # A deletion beside this one may have taken the empty place for one that it has to delete.
            if last_try or not isinstance(error, FileNotFoundError):
                raise


def displace_places(folder: Path) -> None:
    """Let nobody who owned the folder before take another step away.

    An empty place is the one that a rename may still be on its way to. On NFS that rename goes by the place's handle,
    which a new name would not make stale: it is removed.
    """
    for kind in (RETIRED, ASIDE):
        for entry in folder.glob(f"{kind}*"):
            with contextlib.suppress(FileNotFoundError):
                try:
                    entry.rmdir()
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                    entry.rename(folder / f"{kind}{uuid.uuid4().hex}")


def new_place(folder: Path, uid: str, attempt: int) -> Path:
    """Name a place in which an attempt of a job saves one step.

    No other attempt ever saves in a folder of that name: a worker that was frozen in the middle of a save, and opens
    its next file when it comes back, finds no place, and never the step that another attempt has made meanwhile.
    """
    return folder / f".saving-{uid}.{attempt}.{uuid.uuid4().hex}"


def displace_unfinished(folder: Path, uid: str, attempt: int) -> None:
    """Take the places away in which earlier attempts and other jobs were saving, for their deletion."""
    for entry in folder.glob(".saving-*"):
        place = PLACE.match(entry.name)
        # An owner that was frozen just here comes back beside a later attempt, which may be saving.
        if place is not None and (place["uid"] != uid or int(place["attempt"]) < attempt):
            with contextlib.suppress(FileNotFoundError):
                entry.rename(folder / f"{RETIRED}{uuid.uuid4().hex}")


def name_step(folder: Path, step: int, made: Path, check_owner: Callable[[], None]) -> None:
    """Give a step that is whole its name; raises FencedError if somebody else owns the folder.

    However long the process is frozen between two of these lines: a new owner takes the place away after it has
    claimed, so either the check or the rename fails, or the step is whole and stands there before anybody looks.
    """
    retire(folder, step, check_owner)
    check_owner()
    try:
        made.rename(step_folder(folder, step))
    except OSError:
        check_owner()
        raise
    with contextlib.suppress(OSError):
        made.parent.rmdir()


def delete_retired(folder: Path) -> None:
    """Delete what was taken away, by earlier attempts too; raises OSError after it has tried all of it."""
    failed: OSError | None = None
    for entry in folder.glob(f"{RETIRED}*"):
        try:
            shutil.rmtree(entry)
        except FileNotFoundError:
            continue  # somebody else is at it
        except OSError as error:
            failed = error
    if failed is not None:
        raise failed


def _steps(folder: Path) -> list[int]:
    """Give every step that has a folder, ascending."""
    try:
        return sorted(int(match[1]) for entry in folder.iterdir() if (match := STEP_FOLDER.match(entry.name)))
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_complete(made: Path) -> bool:
    """Tell whether a step's folder can be resumed from; raises OSError where that cannot be read."""
    if not is_whole(made / COMPLETE_MARK):
        return False
    try:
        return stat.S_ISDIR((made / MODEL_FOLDER).stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def is_whole(file: Path) -> bool:
    """Tell whether what torch.save wrote is there to its end; raises OSError where that cannot be read.

    It is a zip, whose directory comes last: a file that was cut off in the writing has none. zipfile.is_zipfile says
    the same, but takes a volume that fails for a file that is no zip.
    """
    try:
        with naming(file), file.open("rb") as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - ZIP_END_BYTES - ZIP_COMMENT_BYTES))
            tail = opened.read()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return 0 <= tail.rfind(ZIP_END) <= len(tail) - ZIP_END_BYTES


def broken_shards(made: Path, ranks: int) -> list[str]:
    """Name the parts of so many ranks of FSDP that a step lacks, or that were cut off in the writing.

    The mark comes from the head, the parts from every node: one that loses its power before its pages are written
    leaves them short. What is saved is configured, so only kinds are asked for of which some rank's part is there.
    """
    names = [
        f"{role}/{kind}_world_size_{ranks}_rank_{rank}.pt"
        for role in (MODEL_FOLDER, CRITIC_FOLDER)
        for kind in sorted({kind for kind, of in shards(made / role) if of == ranks})
        for rank in range(ranks)
    ]
    whole: dict[str, bool] = {}
    failed: list[OSError] = []

    def read(some: list[str]) -> None:
        for name in some:
            try:
                whole[name] = is_whole(made / name)
            except OSError as error:
                failed.append(error)
                return

    # A thousand ranks have thousands of parts, and every NPU waits while a volume across the network is asked. No pool:
    # the process could not end while one of its threads hangs on the volume.
    shares = [share for begin in range(READS_AT_ONCE) if (share := names[begin::READS_AT_ONCE])]
    readers = [threading.Thread(target=read, args=(share,), daemon=True) for share in shares]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    if failed:
        raise failed[0]
    return [name for name in names if not whole[name]]


def has_every_part(made: Path) -> bool:
    """Tell whether FSDP's parts are whole, of as many ranks as their names say; a read makes their nodes write them."""
    sizes = {ranks for role in (MODEL_FOLDER, CRITIC_FOLDER) for _, ranks in shards(made / role)}
    return not any(broken_shards(made, ranks) for ranks in sizes)


def shards(folder: Path) -> set[tuple[str, int]]:
    """Give the kinds of FSDP's parts in a folder, each with the number of ranks in their names."""
    try:
        matches = [SHARD.match(entry.name) for entry in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return set()
    return {(match["kind"], int(match["ranks"])) for match in matches if match}


def saved_time(made: Path) -> float | None:
    """Give the time of a step's mark, by the volume's clock."""
    try:
        return (made / COMPLETE_MARK).stat().st_mtime
    except OSError:
        return None


def step_folder(folder: Path, step: int) -> Path:
    """Name the folder of one step."""
    return folder / f"global_step_{step}"


def tracked_step(folder: Path) -> int | None:
    """Give the step that verl's tracker names; None if there is none or it is damaged."""
    try:
        return int((folder / TRACKER_FILE).read_text())
    except (FileNotFoundError, ValueError):
        return None


def step_to_resume(folder: Path) -> int | None:
    """Give the step that verl's tracker should name; None if none is complete.

    A tracker that names a complete checkpoint is kept, even an older one: a user may have set it by hand. One that verl
    wrote by itself, without a rename, may be empty after a crash.
    """
    tracked = tracked_step(folder)
    if tracked is not None and is_complete(step_folder(folder, tracked)):
        return tracked
    steps = complete_steps(folder)
    return steps[-1] if steps else None
