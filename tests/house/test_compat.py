"""`make compat` finds the interpreters of a machine, and fails if a present one fails or none is present."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import compat
from scripts.compat import Interpreter, Result, Verdict

HERE = ".".join(map(str, sys.version_info[:2]))
PRESENT = Interpreter(Path("/opt/python"), "3.11.7")


def pretend(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def environ(root: Path, *folders: Path) -> dict[str, str]:
    return {"PATH": ":".join(map(str, folders)), "HOME": str(root)}


def test_the_runtime_supports_three_versions() -> None:
    assert compat.VERSIONS == ("3.11", "3.12", "3.13")


def test_an_interpreter_on_the_path_is_found(tmp_path: Path) -> None:
    (tmp_path / f"python{HERE}").symlink_to(sys.executable)
    found = compat.find(HERE, environ(tmp_path, tmp_path))
    assert found is not None
    assert found.release == platform.python_version()


def test_a_shim_that_does_not_start_is_passed_over_for_the_newest_of_pyenv(tmp_path: Path) -> None:
    pretend(tmp_path / "shims/python3.12", "echo 'not selected' >&2; exit 127")
    for release in ("3.12.9", "3.12.10", "3.13.0"):
        pretend(tmp_path / f".pyenv/versions/{release}/bin/python3.12", f"echo {tmp_path}/{release} {release} 3.12")
    found = compat.find("3.12", environ(tmp_path, tmp_path / "shims"))
    assert found == Interpreter(tmp_path / "3.12.10", "3.12.10")


def test_an_interpreter_of_another_version_is_not_taken(tmp_path: Path) -> None:
    pretend(tmp_path / "python3.13", "echo /opt/python 3.11.7 3.11")
    assert compat.find("3.13", environ(tmp_path, tmp_path)) is None


def test_an_environment_belongs_to_its_lock_and_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RLJOB_CACHE", str(tmp_path))
    other = Interpreter(PRESENT.path, "3.11.8")
    cases = ((PRESENT, b"one"), (PRESENT, b"two"), (other, b"one"))
    folders = {compat.environment_folder(interpreter, lock) for interpreter, lock in cases}
    assert len(folders) == 3
    assert compat.environment_folder(PRESENT, b"one") in folders
    assert all(tmp_path in folder.parents for folder in folders)


@pytest.mark.parametrize(("value", "passed", "note"), [("1", True, "1 passed"), ("2", False, "1 failed")])
def test_tests_see_only_the_code_that_is_passed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: str, passed: bool, note: str
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/compat_probe.py").write_text(f"value = {value}\n")
    test = tmp_path / "test_probe.py"
    test.write_text("import compat_probe\ndef test_it(): assert compat_probe.value == 1\n")
    words = [str(test), "-c", "/dev/null", "--rootdir", str(tmp_path)]
    ended = compat.run_tests(Path(sys.executable), tmp_path / "log", words, tmp_path / "code")
    assert ended[0] is passed
    assert note in ended[1]
    # The end of a log is shown only when something failed.
    assert ("test_probe" in capsys.readouterr().out) is not passed


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ((Verdict.PASSED, Verdict.PASSED), 0),
        ((Verdict.PASSED, Verdict.ABSENT), 0),
        ((Verdict.PASSED, Verdict.FAILED), 1),
        ((Verdict.ABSENT, Verdict.ABSENT), 1),
    ],
)
def test_the_exit_code_is_that_of_the_present_interpreters(verdicts: tuple[Verdict, ...], code: int) -> None:
    assert compat.exit_code([Result("3.11", verdict) for verdict in verdicts]) == code


def test_the_table_names_absent_interpreters() -> None:
    results = [
        Result("Python 3.11: cli", Verdict.PASSED, "3.11.7 /opt/python", "9 passed in 1 s"),
        Result("Python 3.12: cli", Verdict.ABSENT, "neither on PATH nor among pyenv's"),
    ]
    assert compat.page(results).splitlines()[1:] == [
        "Python 3.11: cli  passed  3.11.7 /opt/python                 9 passed in 1 s",
        "Python 3.12: cli  absent  neither on PATH nor among pyenv's",
    ]


def test_a_lock_without_a_wheel_for_arm64_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []

    def uv(*words: str) -> subprocess.CompletedProcess[str]:
        calls.append(words)
        if "1.0" not in Path(words[-1]).read_text():
            raise subprocess.CalledProcessError(1, words, stderr="b==2.0 has no usable wheels")
        return subprocess.CompletedProcess(words, 0, "", "Would install 1 package")

    monkeypatch.setattr(compat, "_uv", uv)
    (tmp_path / "good.txt").write_text("a==1.0 \\\n")
    (tmp_path / "bad.txt").write_text("antlr4-python3-runtime==4.9.3\nb==2.0\n")
    good, bad = compat.arm64({"good.txt": "aarch64-linux", "bad.txt": "aarch64-linux"}, tmp_path)
    assert (good.verdict, good.note) == (Verdict.PASSED, "1 package")
    assert (bad.verdict, bad.note) == (Verdict.FAILED, "b==2.0 has no usable wheels")
    assert [word for word, before in zip(calls[1][1:], calls[1], strict=False) if before == "--only-binary"] == ["b"]
