"""Claims on checkpoint folders: a live run keeps its folder, a dead one loses it, a paused one never writes again."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rljob_runtime.checkpoints import claims
from rljob_runtime.checkpoints.claims import (
    OWNER_FILE,
    Keeper,
    Lease,
    Owner,
    check,
    claim,
    publish,
    read_owner,
    release,
    renew,
)
from rljob_runtime.checkpoints.saved_steps import TRACKER_FILE, tracked_step
from rljob_runtime.contract import ExitCode, Outcome
from rljob_runtime.outcomes import FencedError, RefusedError

SOON = Lease(renew_seconds=0.1, stale_seconds=2.5, wait_seconds=5.0, poll_seconds=0.05)
HERE, THERE = Owner("job", 1, "team-a", "sums"), Owner("other", 1, "team-b", "chat")
WAIT_SECONDS = 60.0
FORGOTTEN_SECONDS = Lease().stale_seconds + Lease().clocks_seconds + 1.0
"""A claim of that age is nobody's at the first look."""
ROOT = Path(__file__).parents[3]


def age(folder: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(folder / OWNER_FILE, (then, then))


@contextlib.contextmanager
def kept(folder: Path, owner: Owner) -> Iterator[Keeper]:
    """Renew a claim as a live run does."""
    keeper = Keeper(folder, owner, SOON, list[FencedError]().append)
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.stop(clean=False)


def test_a_later_attempt_takes_the_folder_at_once_and_fences_the_earlier(tmp_path: Path) -> None:
    claim(tmp_path / "c", HERE)
    claim(tmp_path / "c", Owner("job", 2))  # the default lease would wait for a minute
    check(tmp_path / "c", Owner("job", 2))
    with pytest.raises(FencedError, match="this attempt writes nothing more"):
        check(tmp_path / "c", HERE)


def test_an_earlier_attempt_cannot_take_it_back(tmp_path: Path) -> None:
    claim(tmp_path, Owner("job", 3))
    with pytest.raises(FencedError, match="attempt 3 owns it, this is attempt 2"):
        claim(tmp_path, Owner("job", 2))
    assert read_owner(tmp_path) == Owner("job", 3)


def test_a_live_run_of_another_job_is_left_alone(tmp_path: Path) -> None:
    claim(tmp_path, THERE)
    with kept(tmp_path, THERE), pytest.raises(RefusedError) as refused:
        claim(tmp_path, HERE, SOON)
    check(tmp_path, THERE)
    assert (refused.value.code, refused.value.reason) == (ExitCode.ENVIRONMENT, "CheckpointInUse")
    message = str(refused.value)
    assert f"checkpoint.path {tmp_path} is in use by attempt 1 of job team-b/chat" in message
    assert "give this one a checkpoint.path of its own" in message


def test_a_paused_process_does_not_take_its_pause_for_the_silence_of_another(tmp_path: Path) -> None:
    claim(tmp_path, THERE)
    paused = Lease(0.1, stale_seconds=2.5, wait_seconds=5.0, poll_seconds=3.0)
    with kept(tmp_path, THERE), pytest.raises(RefusedError):
        claim(tmp_path, HERE, paused)
    check(tmp_path, THERE)


def test_a_claim_that_is_released_is_taken_at_once(tmp_path: Path) -> None:
    claim(tmp_path, THERE)
    release(tmp_path, THERE)
    claim(tmp_path, HERE)
    check(tmp_path, HERE)


def test_a_claim_that_is_released_during_the_wait_is_taken(tmp_path: Path) -> None:
    claim(tmp_path, THERE)
    with kept(tmp_path, THERE) as keeper:
        timer = threading.Timer(0.3, keeper.stop, kwargs={"clean": True})
        timer.start()
        claim(tmp_path, HERE, Lease(0.1, stale_seconds=60.0, wait_seconds=WAIT_SECONDS, poll_seconds=0.05))
        timer.join()
    check(tmp_path, HERE)


def test_an_end_that_is_not_clean_keeps_the_claim(tmp_path: Path) -> None:
    claim(tmp_path, THERE)
    keeper = Keeper(tmp_path, THERE, SOON, list[FencedError]().append)
    keeper.start()
    keeper.stop(clean=False)
    with pytest.raises(RefusedError):
        claim(tmp_path, HERE, Lease(stale_seconds=60.0, wait_seconds=0.2, poll_seconds=0.05))


def test_a_claim_whose_node_may_have_another_time_is_watched(tmp_path: Path) -> None:
    claim(tmp_path, THERE)
    age(tmp_path, 350.0)
    with pytest.raises(RefusedError):
        claim(tmp_path, HERE, Lease(wait_seconds=0.2, poll_seconds=0.05))


def test_a_claim_that_was_not_renewed_for_long_is_taken_at_once(tmp_path: Path) -> None:
    claim(tmp_path, THERE)
    age(tmp_path, FORGOTTEN_SECONDS)
    claim(tmp_path, HERE)
    check(tmp_path, HERE)


@pytest.mark.parametrize("ahead_seconds", [0.0, 86_400.0])
def test_a_claim_that_is_not_renewed_while_it_is_watched_is_taken(tmp_path: Path, ahead_seconds: float) -> None:
    claim(tmp_path, THERE)
    age(tmp_path, -ahead_seconds)  # the volume's clock is wrong
    claim(tmp_path, HERE, SOON)
    check(tmp_path, HERE)


def test_a_claim_of_the_first_runtime_is_read_and_ages(tmp_path: Path) -> None:
    (tmp_path / OWNER_FILE).write_text('{"attempt": 7, "uid": "old"}')
    assert read_owner(tmp_path) == Owner("old", 7)
    with pytest.raises(RefusedError, match="attempt 7 of job with uid old"):
        claim(tmp_path, HERE, Lease(stale_seconds=60.0, wait_seconds=0.2, poll_seconds=0.05))
    age(tmp_path, FORGOTTEN_SECONDS)
    claim(tmp_path, HERE)
    with pytest.raises(FencedError):
        check(tmp_path, Owner("old", 7))


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"uid": "job"}', '{"attempt": "x", "uid": 1}'])
def test_a_damaged_claim_is_void(tmp_path: Path, damage: str) -> None:
    (tmp_path / OWNER_FILE).write_text(damage)
    with pytest.raises(FencedError, match="owned by no attempt"):
        check(tmp_path, HERE)
    claim(tmp_path, HERE)
    check(tmp_path, HERE)


@pytest.mark.parametrize("act", [check, renew])
def test_a_claim_that_was_deleted_with_its_folder_is_created_again(
    tmp_path: Path, act: Callable[[Path, Owner], None]
) -> None:
    claim(tmp_path / "c", HERE)
    (tmp_path / "c" / OWNER_FILE).unlink()
    (tmp_path / "c").rmdir()
    act(tmp_path / "c", HERE)
    assert read_owner(tmp_path / "c") == HERE
    with pytest.raises(FencedError):
        act(tmp_path / "c", THERE)
    assert [entry.name for entry in (tmp_path / "c").iterdir()] == [OWNER_FILE]


def test_of_two_attempts_the_higher_one_stays_regardless_of_the_last_write(tmp_path: Path) -> None:
    claim(tmp_path, Owner("job", 2))
    # Attempt 1 was paused within `claim`, between reading and writing.
    (tmp_path / OWNER_FILE).write_text(json.dumps({"uid": "job", "attempt": 1}))
    renew(tmp_path, Owner("job", 2))
    with pytest.raises(FencedError):
        renew(tmp_path, HERE)
    assert read_owner(tmp_path) == Owner("job", 2)


def test_releasing_and_renewing_leave_another_owners_claim_alone(tmp_path: Path) -> None:
    claim(tmp_path, Owner("job", 2))
    before = (tmp_path / OWNER_FILE).stat().st_mtime_ns
    release(tmp_path, HERE)
    with pytest.raises(FencedError):
        renew(tmp_path, HERE)
    assert (tmp_path / OWNER_FILE).stat().st_mtime_ns == before


def test_a_folder_shows_nothing_but_the_claim_and_the_tracker(tmp_path: Path) -> None:
    claim(tmp_path, THERE)
    age(tmp_path, FORGOTTEN_SECONDS)
    claim(tmp_path, HERE)
    publish(tmp_path, HERE, 4)
    renew(tmp_path, HERE)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [TRACKER_FILE, OWNER_FILE][::-1]
    assert tracked_step(tmp_path) == 4


def test_what_an_earlier_owner_was_about_to_publish_is_removed(tmp_path: Path) -> None:
    claim(tmp_path, HERE)
    scratch = tmp_path / f".{TRACKER_FILE}.1.0123"
    scratch.write_text("8")
    claim(tmp_path, Owner("job", 2))
    assert not scratch.exists()


@pytest.mark.parametrize("times", [1, 2, 3])
def test_what_an_older_attempt_in_its_own_claim_removes_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    replace, removed = Path.replace, 0

    def come_back(path: Path, target: Path) -> Path:
        nonlocal removed
        if target.name == TRACKER_FILE and removed < times:
            removed += 1
            claims._take(tmp_path, Owner("job", 1))  # which it started before it was paused
        return replace(path, target)

    claim(tmp_path, Owner("job", 2))
    monkeypatch.setattr(Path, "replace", come_back)
    if times < 3:
        publish(tmp_path, Owner("job", 2), 8)
        assert tracked_step(tmp_path) == 8
    else:
        with pytest.raises(FileNotFoundError):
            publish(tmp_path, Owner("job", 2), 8)
        assert tracked_step(tmp_path) is None
    assert read_owner(tmp_path) == Owner("job", 2)


def test_a_claim_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(tmp_path, HERE)
    look, failures = os.fstat, [OSError(errno.ESTALE, "stale"), OSError(errno.ESTALE, "stale")]

    def fstat(descriptor: int) -> os.stat_result:
        if failures:
            raise failures.pop()
        return look(descriptor)

    monkeypatch.setattr("rljob_runtime.checkpoints.claims.os.fstat", fstat)
    check(tmp_path, HERE)
    failures[:] = [OSError(errno.EIO, "broken")]
    with pytest.raises(OSError, match="broken"):
        check(tmp_path, HERE)


def test_a_volume_that_fails_is_reported_once_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    claim(tmp_path, HERE)
    failed = threading.Event()

    def refuse(*_: object) -> None:
        failed.set()
        raise PermissionError("not by this user")

    monkeypatch.setattr(os, "utime", refuse)
    lost: list[FencedError] = []
    keeper = Keeper(tmp_path, HERE, SOON, lost.append)
    keeper.start()
    assert failed.wait(WAIT_SECONDS)
    keeper.stop(clean=True)
    assert lost == []
    assert capsys.readouterr().err.count("cannot renew the claim") == 1


# Real processes, paused by SIGSTOP and resumed by SIGCONT, with another attempt in between.


@pytest.mark.parametrize("place", ["training", "saving", "before-publishing", "while-publishing"])
def test_a_run_that_was_paused_writes_nothing_when_it_comes_back(tmp_path: Path, place: str) -> None:
    folder, go = tmp_path / "checkpoints", tmp_path / "go"
    words = [
        sys.executable,
        "-m",
        "runtime.tests.fenced_save_process",
        str(folder),
        str(tmp_path / "spool"),
        place,
        str(go),
    ]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == place
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            claim(folder, Owner("uid-1", 2), SOON)
            before = snapshot(folder)
            go.touch()
            process.send_signal(signal.SIGCONT)
            said, _ = process.communicate(timeout=WAIT_SECONDS)
        finally:
            process.kill()
    assert process.returncode == ExitCode.ENVIRONMENT
    outcome = Outcome.from_json(said.strip().splitlines()[-1])
    assert (outcome.exit_code, outcome.reason) == (65, "Fenced")
    assert "owned by attempt 2 of job" in outcome.message
    assert snapshot(folder) == before
    assert tracked_step(folder) == 1


def test_the_same_run_saves_if_it_kept_its_folder(tmp_path: Path) -> None:
    folder, go = tmp_path / "checkpoints", tmp_path / "go"
    go.touch()
    words = [sys.executable, "-m", "runtime.tests.fenced_save_process", str(folder), str(tmp_path / "spool"), "saving"]
    done = subprocess.run([*words, str(go)], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_SECONDS, check=True)
    assert done.stdout.split() == ["saving", "saved"]
    assert tracked_step(folder) == 2
    claim(folder, THERE)  # it released the folder


def snapshot(folder: Path) -> dict[str, bytes]:
    files = {str(path): path for path in folder.rglob("*")}
    return {name: path.read_bytes() if path.is_file() else b"" for name, path in files.items()}
