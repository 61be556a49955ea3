"""Steps in a checkpoint folder: which are complete, which one verl's tracker names, and which can be deleted.

claims.py decides which attempt may write to the folder. A step is removed by a rename, because its deletion can take
long, be interrupted, or fail: readers see either a whole checkpoint or none.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from rljob_runtime.checkpoints import prompt_ledger
from rljob_runtime.files import file_named_in_errors

TRACKER_FILE = "latest_checkpointed_iteration.txt"
"""verl/utils/checkpoint/checkpoint_manager.py, find_latest_ckpt_path (0.9.1)."""
COMPLETE_MARK = prompt_ledger.DATA_FILE
"""Written after the model and before the tracker, by torch.save: trainer_base.py, _save_checkpoint (0.9.1)."""
ZIP_END = b"PK\x05\x06"
"""Signature of the last record of a zip file (APPNOTE.TXT, 4.3.16)."""
ZIP_END_BYTES = 22
ZIP_COMMENT_BYTES = 1 << 16
"""Maximum length of the comment that may follow that record."""
MODEL_FOLDER = "actor"
"""Beside the mark. verl's own retention deletes it from an old step but keeps the mark: checkpoint_manager.py
(0.9.1)."""
CRITIC_FOLDER = "critic"
"""Beside the actor's folder, if the algorithm has a critic: trainer_base.py, _save_checkpoint (0.9.1)."""
SHARD = re.compile(r"^(?P<kind>model|optim|extra_state)_world_size_(?P<ranks>\d+)_rank_\d+\.pt$")
"""One rank's shard of an FSDP checkpoint: verl/utils/checkpoint/fsdp_checkpoint_manager.py (0.9.1)."""
STEP_FOLDER = re.compile(r"^global_step_(\d+)$")
READS_AT_ONCE = 16
BEGUN_FILE = ".begun"
"""In a checkpoint folder: uid of the job whose steps the folder contains."""
RETIRED = ".retired-"
"""Name prefix of a folder in which a step waits for its deletion."""
ASIDE = ".aside-"
"""Name prefix of the intermediate folder that is used to set a step aside."""
PLACE = re.compile(r"^\.saving-(?P<uid>.+)\.(?P<attempt>\d+)\.[0-9a-f]{32}$")
"""Name of the folder in which an attempt saves a step until the step is complete and is renamed."""


def complete_steps(folder: Path) -> list[int]:
    """Return the steps with complete checkpoints, in ascending order."""
    return [step for step in _steps(folder) if is_complete(step_folder(folder, step))]


def holds_complete(folder: Path) -> bool:
    """Return whether the folder holds a complete checkpoint. Reads no marks beyond the newest complete step."""
    return any(is_complete(step_folder(folder, step)) for step in reversed(_steps(folder)))


def deletable_steps(folder: Path, keep: int, last: int, whole: set[int]) -> list[int]:
    """Return the steps up to `last` that can be deleted.

    The step that the tracker names is kept, and every step from the newest `keep` whole ones on. A complete step that
    lost a part, for example in a power failure of its node, does not count as one of them. `whole` contains the steps
    that are known to have all parts; newly verified steps are added to it. Without a tracker no step can be deleted,
    because the step from which the next attempt resumes is unknown.
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
    """Move a step away for deletion, if it exists. Processes that still write to its files can do no harm."""
    move_away(step_folder(folder, step), RETIRED, check_owner)


def move_away(entry: Path, kind: str, check_owner: Callable[[], None]) -> None:
    """Move an entry of a checkpoint folder, if it exists, into a new folder beside it.

    A process that is paused between any two lines and loses the folder in the meantime moves nothing: a new owner
    removes the target folder after it has claimed (`block_pending_moves`), so either the check or the rename fails.
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
            # A concurrent deletion may have removed the empty target folder.
            if last_try or not isinstance(error, FileNotFoundError):
                raise


def block_pending_moves(folder: Path) -> None:
    """Prevent previous owners from moving further steps away.

    An empty folder may be the target of a pending rename. It is removed, not renamed: on NFS the rename refers to its
    target by handle, which stays valid when the folder gets another name.
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


def discard(place: Path) -> None:
    """Move the folder of a save that is not completed away, for deletion."""
    with contextlib.suppress(FileNotFoundError):
        place.rename(place.with_name(f"{RETIRED}{uuid.uuid4().hex}"))


def new_place(folder: Path, uid: str, attempt: int) -> Path:
    """Return the name of a new folder in which an attempt saves one step.

    No other attempt uses the same name. A worker that was paused during a save and then opens its next file finds that
    the folder is gone, and never writes into the step that another attempt has saved in the meantime.
    """
    return folder / f".saving-{uid}.{attempt}.{uuid.uuid4().hex}"


def retire_unfinished_saves(folder: Path, uid: str, attempt: int) -> None:
    """Move away the folders of unfinished saves of earlier attempts and other jobs, for deletion."""
    for entry in folder.glob(".saving-*"):
        place = PLACE.match(entry.name)
        # This process may be outdated itself, if it was paused here: a later attempt may be saving.
        if place is not None and (place["uid"] != uid or int(place["attempt"]) < attempt):
            with contextlib.suppress(FileNotFoundError):
                entry.rename(folder / f"{RETIRED}{uuid.uuid4().hex}")


def rename_step(folder: Path, step: int, made: Path, check_owner: Callable[[], None]) -> None:
    """Rename the folder of a complete step to its final name. Raises FencedError if the folder has another owner.

    The process may be paused between any two lines: a new owner moves the source folder away after it has claimed. So
    either the check or the rename fails, or the complete step is in place before the new owner reads the folder.
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
    """Delete the folders that were moved away, also by earlier attempts. Raises OSError after trying all of them."""
    failed: OSError | None = None
    for entry in folder.glob(f"{RETIRED}*"):
        try:
            shutil.rmtree(entry)
        except FileNotFoundError:
            continue  # another process is deleting it
        except OSError as error:
            failed = error
    if failed is not None:
        raise failed


def _steps(folder: Path) -> list[int]:
    """Return every step that has a folder, in ascending order."""
    try:
        return sorted(int(match[1]) for entry in folder.iterdir() if (match := STEP_FOLDER.match(entry.name)))
    except (FileNotFoundError, NotADirectoryError):
        return []


def is_complete(made: Path) -> bool:
    """Return whether a step's folder can be resumed from. Raises OSError if it cannot be read."""
    if not is_whole(made / COMPLETE_MARK):
        return False
    try:
        return stat.S_ISDIR((made / MODEL_FOLDER).stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def is_whole(file: Path) -> bool:
    """Return whether a file written by torch.save is complete. Raises OSError if it cannot be read.

    The file is a zip archive with its directory at the end, so a truncated file has none. zipfile.is_zipfile performs
    the same check, but reports a read error as "not a zip file".
    """
    try:
        with file_named_in_errors(file), file.open("rb") as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - ZIP_END_BYTES - ZIP_COMMENT_BYTES))
            tail = opened.read()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return 0 <= tail.rfind(ZIP_END) <= len(tail) - ZIP_END_BYTES


def broken_shards(made: Path, ranks: int) -> list[str]:
    """Return the FSDP shards of `ranks` ranks that are missing from a step or truncated.

    The head writes the mark and every node writes its own shards: a node that loses power before its pages are written
    leaves truncated files. The saved contents are configurable, so a kind of shard is expected only if at least one
    rank's shard of that kind exists.
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

    # A thousand ranks have thousands of shards, and every NPU waits while a remote volume is read. A thread pool would
    # prevent the process from exiting while one of its threads hangs on the volume.
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
    """Return whether all FSDP shards, by the number of ranks in their names, and the prompts in flight are complete.

    Reading makes nodes flush.
    """
    sizes = {ranks for role in (MODEL_FOLDER, CRITIC_FOLDER) for _, ranks in shards(made / role)}
    return not any(broken_shards(made, ranks) for ranks in sizes) and prompt_ledger.problem_of(made) is None


def shards(folder: Path) -> set[tuple[str, int]]:
    """Return the kinds of FSDP shards in a folder, each with the number of ranks in their names."""
    try:
        matches = [SHARD.match(entry.name) for entry in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return set()
    return {(match["kind"], int(match["ranks"])) for match in matches if match}


def saved_time(made: Path) -> float | None:
    """Return the modification time of a step's mark, by the volume's clock."""
    try:
        return (made / COMPLETE_MARK).stat().st_mtime
    except OSError:
        return None


def note(step: Path, name: str, text: str, what: str, check_owner: Callable[[], None]) -> None:
    """Write a file beside a step's other files, before its mark. A failing volume loses the file, not the save.

    The process may be paused between any two lines: a new owner moves the folder of this save with its scratch file, so
    nothing is written into a successor's step. `what` names the content in the message.
    """
    scratch = step / f".{name}.{uuid.uuid4().hex}"
    try:
        try:
            scratch.write_text(text)
            check_owner()
            scratch.replace(step / name)
        finally:
            scratch.unlink(missing_ok=True)
    except OSError as error:
        print(f"rljob: cannot record the {what} of {step}: {error}", file=sys.stderr, flush=True)  # noqa: T201


def step_folder(folder: Path, step: int) -> Path:
    """Return the folder of one step."""
    return folder / f"global_step_{step}"


def tracked_step(folder: Path) -> int | None:
    """Return the step that verl's tracker names; None if the tracker is missing or damaged."""
    try:
        return int((folder / TRACKER_FILE).read_text())
    except (FileNotFoundError, ValueError):
        return None


def step_to_resume(folder: Path) -> int | None:
    """Return the step that verl's tracker should name; None if no step is complete.

    A tracker that names a complete checkpoint is kept, even an older one: a user may have set it by hand. A tracker
    that verl wrote itself, without a rename, may be empty after a crash.
    """
    tracked = tracked_step(folder)
    if tracked is not None and is_complete(step_folder(folder, tracked)):
        return tracked
    steps = complete_steps(folder)
    return steps[-1] if steps else None
