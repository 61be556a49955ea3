"""The Ascend image's own scripts: their checks, on temporary folders and on wrong environments."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "images/runtime/ascend"
COMMIT = "1" * 40


def module(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"ascend_{name}", FOLDER / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    found = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(found)
    return found


check, prepare = module("check"), module("prepare")


def git(folder: Path, *words: str) -> str:
    people = [f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    command = ["git", "-C", str(folder), *words]
    environment = os.environ | dict.fromkeys(people, "a@b")
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with two commits."""
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "--quiet")
    git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
    for text in ("first", "second"):
        (folder / "file").write_text(text)
        git(folder, "add", "file")
        git(folder, "commit", "--quiet", "-m", text)
    return folder


def test_sources_are_those_of_the_commit_and_bring_no_history(repository: Path, tmp_path: Path) -> None:
    first = git(repository, "rev-parse", "HEAD~1")
    prepare.check_out(repository.as_uri(), first, tmp_path / "a", keep_git=False)
    assert (tmp_path / "a/file").read_text() == "first"
    assert (tmp_path / "a/COMMIT").read_text() == first + "\n"
    assert not (tmp_path / "a/.git").exists()
    prepare.check_out(repository.as_uri(), first, tmp_path / "b", keep_git=True)
    assert (tmp_path / "b/.git").exists()


def test_a_branch_is_no_commit(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(prepare.ArgumentError, match="not a full id of 40"):
        prepare.check_out(repository.as_uri(), "core_r0.16.0", tmp_path / "a", keep_git=False)


def test_a_commit_that_is_not_there_ends_the_build(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        prepare.check_out(repository.as_uri(), COMMIT, tmp_path / "a", keep_git=False)


def test_a_wheel_is_installed_by_its_digest_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []

    def record(*command: str) -> str:
        ran.append(command)
        return ""

    monkeypatch.setattr(prepare, "run", record)
    wheel = tmp_path / "triton_ascend-3.2.2-cp311-cp311-linux_aarch64.whl"
    wheel.write_bytes(b"wheel")
    digest = hashlib.sha256(b"wheel").hexdigest()
    with pytest.raises(prepare.ArgumentError, match="TRITON_ASCEND_WHEEL is not set"):
        prepare.install_wheel("triton-ascend", "", "", "aarch64")
    with pytest.raises(prepare.ArgumentError, match="TRITON_ASCEND_SHA256='abc'"):
        prepare.install_wheel("triton-ascend", str(wheel), "abc", "aarch64")
    with pytest.raises(prepare.ArgumentError, match=f"its sha256 is {digest}"):
        prepare.install_wheel("triton-ascend", str(wheel), "0" * 64, "aarch64")
    assert ran == []
    prepare.install_wheel("triton-ascend", str(wheel), digest, "aarch64")
    assert ran[-1][-1] == str(wheel)
    assert "--no-deps" in ran[-1]


def test_torch_of_the_lock_is_right_on_arm64_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def record(*command: str) -> str:
        ran.append(command[-1])
        return ""

    monkeypatch.setattr(prepare, "run", record)
    monkeypatch.setattr(prepare, "VENV", str(tmp_path))
    prepare.install_wheel("torch", "", "", "aarch64")
    assert ran == []
    with pytest.raises(prepare.ArgumentError, match="TORCH_WHEEL is not set"):
        prepare.install_wheel("torch", "", "", "x86_64")
    site = tmp_path / "lib/python3.11/site-packages"
    for name in ("nvidia_nccl_cu12-2.27.5", "cuda_bindings-12.9.4", "torch-2.10.0"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    wheel = tmp_path / "torch-2.10.0+cpu-cp311-cp311-linux_x86_64.whl"
    wheel.write_bytes(b"")
    prepare.install_wheel("torch", str(wheel), hashlib.sha256(b"").hexdigest(), "x86_64")
    assert ran == ["nvidia-nccl-cu12", "cuda-bindings", str(wheel)]


def test_stripping_leaves_what_operators_are_compiled_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER.parent)
    strip = importlib.import_module("strip")
    ran: list[set[str]] = []
    monkeypatch.setattr(strip, "main", lambda: ran.append(set(strip.REMOVED)))
    monkeypatch.setattr(strip, "REMOVED", dict(strip.REMOVED))
    every = set(strip.REMOVED)
    prepare.strip()
    assert every - ran[0] == set(prepare.KEPT)


def test_versions_other_than_the_locks_are_reported() -> None:
    pins = ("ray[default]==2.60.0", "Torch==2.10.0", "vllm==0.23.0", "nvidia-nccl-cu12==2.27.5", "numpy==2.3.5")
    lock = "".join(f"{pin} \\\n    --hash=sha256:0\n" for pin in pins)
    locked = check.locked_versions([lock])
    installed = {"ray": "2.60.0", "torch": "2.10.0+cpu", "vllm": "0.23.0+empty", "numpy": "1.26.4"}
    assert list(check.other_versions(locked, installed)) == ["numpy: the lock has 2.3.5, installed is 1.26.4"]
    assert list(check.other_versions({"verl": "0.9.1"}, {})) == ["verl: the lock has 0.9.1, installed is none"]


def test_requirements_that_contradict_are_reported_but_for_known_ones() -> None:
    wanted = {
        "torch-npu": ["torch==2.10.0", "pyyaml; extra == 'all'", "absent; sys_platform == 'win32'"],
        "mindspeed": ["numpy<=1.26.0", "gpytorch"],
        "xgrammar": ["triton"],
    }
    assert list(check.conflicts(wanted, {"torch": "2.10.0+cpu", "numpy": "2.3.5"})) == [
        "mindspeed asks for numpy<=1.26.0, installed is 2.3.5",
        "mindspeed asks for gpytorch, installed is none",
    ]


def test_sources_without_a_commit_are_reported(tmp_path: Path) -> None:
    for name in check.SOURCES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "COMMIT").write_text(COMMIT)
    assert list(check.wrong_sources(tmp_path, {})) == []
    assert len(list(check.wrong_sources(tmp_path, {"MindSpeed": "2" * 40}))) == 1
    (tmp_path / "MindSpeed/COMMIT").unlink()
    assert list(check.wrong_sources(tmp_path, {})) == ["MindSpeed: commit none, expected one"]


@pytest.mark.parametrize(
    ("built", "soc", "right"),
    [
        ("A2", "ascend910b1", True),
        ("A3", "ascend910_9391", True),
        ("A2", "ascend910_9391", False),
        ("A3", "ascend310p1", False),
        (None, "ascend910b1", False),
    ],
)
def test_operators_of_another_generation_are_reported(
    tmp_path: Path, built: str | None, soc: str, *, right: bool
) -> None:
    path = tmp_path / "_build_info.py"
    if built:
        path.write_text(f"# Auto-generated file\n__device_type__ = '{built}'\n")
    assert (list(check.wrong_generation(path, soc)) == []) is right


def test_an_allocator_that_is_named_and_not_loaded_is_reported(tmp_path: Path) -> None:
    library = tmp_path / "libjemalloc.so.2"
    assert "names no jemalloc" in next(check.jemalloc("/usr/lib/libfoo.so", ""))
    assert "does not exist" in next(check.jemalloc(str(library), ""))
    library.write_bytes(b"not a library")
    # The loader prints a line and continues: this process has no jemalloc.
    done = subprocess.run(
        [sys.executable, "-c", "print(open('/proc/self/maps').read())"],
        env={"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "is not among this process's libraries" in next(check.jemalloc(str(library), done.stdout))
    assert list(check.jemalloc(str(library), f"7f00 r-xp {library}")) == []


def test_the_whole_check_of_a_machine_that_is_no_image_finds_something(tmp_path: Path) -> None:
    for path in (FOLDER / "check.py", *(FOLDER.parents[2] / "requirements").glob("runtime-ascend-*.txt")):
        shutil.copy(path, tmp_path)
    done = subprocess.run([sys.executable, tmp_path / "check.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "check: torch-npu: the lock has 2.10.0.post4, installed is none" in done.stderr.splitlines()
    assert done.stdout.endswith(" findings\n")
