"""Downloads of a model from a mirror of both hubs, with faults, kills and folders as the source."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.contract import ExitCode
from rljob_runtime.contract.downloads import TOKEN_VARIABLE, Hub, InitializerRequest
from rljob_runtime.initializers import hubs, target, transfer, web
from rljob_runtime.initializers.command import initialize
from rljob_runtime.initializers.error import RequestError
from runtime.tests.hub_mirror import CHUNK, MODEL, Mirror, serving

TOKEN = "hf_of_a_test"


def noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)  # noqa: S311 - content of a file


FILES = {
    "config.json": b'{"model_type": "qwen2"}',
    "empty.txt": b"",
    "original/raw.bin": b"raw",
    "model-00001.safetensors": noise(1, 1_000_000),
    "model-00002.safetensors": noise(2, 700_000),
    "ein ü & b.txt": b"a name to quote",
}
LARGE = frozenset(name for name in FILES if name.endswith(".safetensors"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(web, "LONGEST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(target, "LOCK_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(transfer, "PROGRESS_SECONDS", 0.0)


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    with serving(Mirror(dict(FILES), LARGE)) as served:
        yield served


def request(served: Mirror, to: Path, **change: Any) -> InitializerRequest:  # noqa: ANN401 - fields of a request
    base = InitializerRequest(to=str(to), hub=Hub.HUGGING_FACE, endpoint=served.url, repository=MODEL)
    return dataclasses.replace(base, **change)


def run(asked: InitializerRequest, token: str = "", log: Path = Path("/nowhere")) -> int:
    environment = {TOKEN_VARIABLE: token} if token else {}
    return initialize(asked.to_argument(), environment, log)


def contents(folder: Path) -> dict[str, bytes]:
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if not name.startswith(".rljob")}


def sums(folder: Path) -> str:
    return hashlib.sha256((folder / ".rljob/SHA256SUMS").read_bytes()).hexdigest()


@pytest.mark.parametrize("hub", Hub)
def test_every_file_of_a_repository_arrives(
    mirror: Mirror, tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(request(mirror, tmp_path / "model", hub=hub)) == 0
    assert contents(tmp_path / "model") == FILES
    told = capsys.readouterr().out.splitlines()
    assert told[-2].startswith("1.6 MiB of 1.6 MiB (100 %), 6 of 6 files, ") or told[-2].startswith("2 MiB of 2 MiB")
    assert told[-1].endswith(sums(tmp_path / "model"))


def test_the_list_of_files_is_one_that_sha256sum_reads(mirror: Mirror, tmp_path: Path) -> None:
    assert run(request(mirror, tmp_path)) == 0
    checked = subprocess.run(
        ["sha256sum", "--check", "--quiet", ".rljob/SHA256SUMS"], cwd=tmp_path, check=False, capture_output=True
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_patterns_choose_files(mirror: Mirror, tmp_path: Path) -> None:
    chosen = request(mirror, tmp_path, include=("*.safetensors", "*.json"), exclude=("*2.safetensors",))
    assert run(chosen) == 0
    assert set(contents(tmp_path)) == {"config.json", "model-00001.safetensors"}
    assert run(request(mirror, tmp_path / "b", include=("*.gguf",))) == ExitCode.BAD_CONFIG


def test_the_token_stays_with_its_host(mirror: Mirror, tmp_path: Path) -> None:
    mirror.token = TOKEN
    assert run(request(mirror, tmp_path), TOKEN) == 0
    hub = [each.token for each in mirror.asked if each.host in mirror.url]
    storage = [each.token for each in mirror.asked if each.host in mirror.storage_url]
    assert set(hub) == {f"Bearer {TOKEN}"}
    assert len(storage) == len(LARGE)
    assert set(storage) == {""}


def test_without_a_token_the_refusal_names_the_field(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.token = TOKEN
    assert run(request(mirror, tmp_path)) == ExitCode.BAD_CONFIG
    assert "HTTP 401 Unauthorized; is the name right, and does the repository need a token (download.credentials)" in (
        capsys.readouterr().out
    )


def test_the_token_is_taken_from_the_environment_and_said_nowhere(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {TOKEN_VARIABLE: TOKEN}
    assert initialize(request(mirror, tmp_path).to_argument(), environment) == 0
    assert environment == {}
    assert TOKEN not in capsys.readouterr().out
    assert not any(TOKEN.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_cut_connection_continues_at_its_byte(mirror: Mirror, tmp_path: Path) -> None:
    mirror.cut_at = 5 * CHUNK
    assert run(request(mirror, tmp_path)) == 0
    assert contents(tmp_path) == FILES
    assert mirror.starts("model-00001.safetensors") == [0, 5 * CHUNK]
    assert mirror.sent["model-00001.safetensors"] == len(FILES["model-00001.safetensors"])


def test_a_mirror_without_ranges_begins_again(mirror: Mirror, tmp_path: Path) -> None:
    mirror.cut_at, mirror.no_ranges = 5 * CHUNK, True
    assert run(request(mirror, tmp_path)) == 0
    assert contents(tmp_path) == FILES


@pytest.mark.parametrize(("failures", "told"), [(1, 0), (2, 1), (web.TRIES - 1, web.TRIES - 2)])
def test_a_busy_hub_is_asked_again_and_what_may_help_is_told_from_the_second_failure_on(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str], failures: int, told: int
) -> None:
    mirror.failing = failures
    assert run(request(mirror, tmp_path)) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "times in a row" in line]
    assert len(lines) == told
    assert all("a mirror (download.endpoint) or download.source: ModelScope?" in line for line in lines)


def test_a_hub_that_stays_away_is_given_up(mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mirror.failing = web.TRIES
    assert run(request(mirror, tmp_path)) == ExitCode.ENVIRONMENT
    assert (
        f"HTTP Error 503: Service Unavailable, {web.TRIES} times in a row; is it reachable" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("name", "served", "problem"),
    [
        ("model-00001.safetensors", b"x" * 1_000_000, "its SHA-256 is "),
        ("config.json", b'{"model_type": "qwen3"}', "its Git hash is "),
        ("config.json", FILES["config.json"] * 2, "it is longer than the 23 bytes"),
    ],
)
def test_content_that_differs_from_the_list_is_refused(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, served: bytes, problem: str
) -> None:
    mirror.wrong[name] = served
    assert run(request(mirror, tmp_path)) == ExitCode.ENVIRONMENT
    told = capsys.readouterr().out
    assert f"{name}: {problem}" in told
    assert "twice; the mirror serves other content than it lists" in told
    assert name not in contents(tmp_path)


def test_a_pinned_list_is_accepted_and_any_other_is_not(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(request(mirror, tmp_path / "a")) == 0
    pinned = sums(tmp_path / "a")
    assert run(request(mirror, tmp_path / "b", sha256=pinned)) == 0
    mirror.files["config.json"] = b'{"model_type": "qwen4"}'
    assert run(request(mirror, tmp_path / "c", sha256=pinned)) == ExitCode.BAD_CONFIG
    assert f"and download.sha256 is {pinned}" in capsys.readouterr().out
    assert not (tmp_path / "c/.rljob/done").exists()


def test_a_second_run_asks_the_hub_nothing_and_says_so(mirror: Mirror, tmp_path: Path) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    asked = request(mirror, tmp_path / "model")
    assert run(asked, log=log) == 0
    assert log.read_text() == ""
    before = len(mirror.asked)
    assert run(asked, log=log) == 0
    assert len(mirror.asked) == before
    assert log.read_text() == f"skipped: {asked.to} is there already"


def test_a_file_that_was_removed_or_changed_is_fetched_again(mirror: Mirror, tmp_path: Path) -> None:
    asked = request(mirror, tmp_path)
    assert run(asked) == 0
    (tmp_path / "config.json").unlink()
    damaged = tmp_path / "model-00002.safetensors"
    damaged.write_bytes(b"x" * len(FILES[damaged.name]))
    mirror.asked.clear()
    assert run(asked) == 0
    assert contents(tmp_path) == FILES
    assert mirror.starts("model-00001.safetensors") == []


def test_a_moved_branch_replaces_what_changed_only(mirror: Mirror, tmp_path: Path) -> None:
    assert run(request(mirror, tmp_path)) == 0
    mirror.files["model-00002.safetensors"] = noise(3, 700_000)
    mirror.asked.clear()
    assert run(request(mirror, tmp_path, exclude=("nothing",))) == 0
    assert contents(tmp_path) == mirror.files
    assert mirror.starts("model-00001.safetensors") == []
    assert mirror.starts("model-00002.safetensors") == [0]


def process(asked: InitializerRequest) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rljob_runtime", "initialize", asked.to_argument()]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(os.environ))


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_killed_program_continues_in_another_process(mirror: Mirror, tmp_path: Path) -> None:
    mirror.stuck_at = 8 * CHUNK
    asked = request(mirror, tmp_path)
    first = process(asked)
    try:
        wait_for(lambda: all(mirror.sent.get(name) == 8 * CHUNK for name in LARGE))
        wait_for(lambda: sum(part.stat().st_size > 7 * CHUNK for part in (tmp_path / ".rljob/parts").iterdir()) == 2)
        wait_for(lambda: len(contents(tmp_path)) == len(FILES) - len(LARGE))
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    assert LARGE.isdisjoint(contents(tmp_path))
    mirror.released.set()
    mirror.stuck_at = None
    mirror.asked.clear()
    second = process(asked)
    told, _ = second.communicate(timeout=60)
    assert second.returncode == 0, told
    assert contents(tmp_path) == FILES
    assert all(7 * CHUNK < start <= 8 * CHUNK for name in LARGE for start in mirror.starts(name))
    assert mirror.starts("config.json") == []


def test_a_program_that_is_asked_to_end_does_so_at_once(mirror: Mirror, tmp_path: Path) -> None:
    """As process 1 of a container, only by a handler of its own: then it exits, and is not ended by the signal."""
    mirror.stuck_at = 8 * CHUNK
    asked = process(request(mirror, tmp_path))
    try:
        wait_for(lambda: all(mirror.sent.get(name) == 8 * CHUNK for name in LARGE))
        asked.send_signal(signal.SIGTERM)
        told, _ = asked.communicate(timeout=10)
    finally:
        asked.kill()
        mirror.released.set()
    assert asked.returncode == 128 + signal.SIGTERM, told


def test_two_programs_that_fill_a_folder_take_turns(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = request(mirror, tmp_path)
    codes: list[int] = []
    with target.Target(tmp_path).alone():
        thread = threading.Thread(target=lambda: codes.append(run(asked)))
        thread.start()
        wait_for(lambda: "waiting for another program" in "".join(capsys.readouterr()))
        assert not mirror.asked
    thread.join(30)
    assert codes == [0]


def test_a_full_volume_is_reported_before_the_download(
    mirror: Mirror, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    assert run(request(mirror, tmp_path)) == ExitCode.ENVIRONMENT
    assert "2 MiB are needed and 977 KiB are free; enlarge the volume" in capsys.readouterr().out
    assert not mirror.sent


def test_a_folder_is_copied_like_a_repository(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for name, data in FILES.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(data)
    (source / "linked.json").symlink_to(source / "config.json")
    (source / ".cache/huggingface").mkdir(parents=True)
    (source / ".cache/huggingface/x.lock").touch()
    asked = InitializerRequest(to=str(tmp_path / "to"), source=str(source))
    assert run(asked) == 0
    assert contents(tmp_path / "to") == FILES | {"linked.json": FILES["config.json"]}


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = InitializerRequest(to=str(tmp_path / "to"), source=str(tmp_path / "absent"))
    assert run(asked) == ExitCode.ENVIRONMENT
    assert f"No such file or directory: '{tmp_path}/absent'; look at the volumes" in capsys.readouterr().out


@pytest.mark.parametrize(
    "path",
    ["../x", "/etc/passwd", "a/../../x", "a//b", "./a", "", "a\nb", "x" * 1025, ".rljob/done", "a\\b", "a/"],
)
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(RequestError, match="the path "):
        hubs.require_path(path)


@pytest.mark.parametrize(
    "answer",
    [{}, {"sha": 5}, [], "x", {"sha": ""}],
)
def test_an_answer_of_another_kind_is_no_crash(
    mirror: Mirror, tmp_path: Path, answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web.Client, "json", lambda *_: (json.loads(json.dumps(answer)), {}))
    for hub in Hub:
        assert run(request(mirror, tmp_path, hub=hub)) == ExitCode.ENVIRONMENT


def test_a_listing_without_an_end_is_bounded(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hubs, "FILES_MAX", 3)
    assert run(request(mirror, tmp_path)) == ExitCode.ENVIRONMENT
    assert f"{MODEL} has more than 3 files; name those you need with include" in capsys.readouterr().out
    monkeypatch.setattr(web, "ANSWER_BYTES", 10)
    assert run(request(mirror, tmp_path)) == ExitCode.ENVIRONMENT
    assert "answers more than" in capsys.readouterr().out
