"""The build of arctic-inference's suffix trees: what it refuses, and that its wheel depends on its content only.

The image's build compiles the real sources; here are the steps around the compiler.
"""

from __future__ import annotations

import importlib.util
import io
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "images/runtime/suffix_wheel.py"
LOCK = ROOT / "requirements/suffix.txt"
specification = importlib.util.spec_from_file_location("suffix_wheel", SCRIPT)
assert specification is not None
assert specification.loader is not None
suffix_wheel = importlib.util.module_from_spec(specification)
specification.loader.exec_module(suffix_wheel)


def sdist(path: Path, *left_out: str) -> Path:
    """Write an sdist with the files that the build takes, and one that it does not."""
    names = {*suffix_wheel.MODULES, "LICENSE", "arctic_inference/vllm/plugin.py"}
    names |= {f"csrc/suffix_decoding/{name}" for name in ("bindings.cc", "suffix_tree.cc", "int32_map.h")}
    with tarfile.open(path, "w:gz") as archive:
        for name in sorted(names - set(left_out)):
            member = tarfile.TarInfo(f"arctic_inference-0.1.1/{name}")
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
    return path


def test_only_the_suffix_trees_are_taken_from_the_sdist(tmp_path: Path) -> None:
    files = suffix_wheel._extracted(sdist(tmp_path / "a.tar.gz"), tmp_path / "source")
    assert "arctic_inference/vllm/plugin.py" not in files
    assert (tmp_path / "source/csrc/suffix_decoding/int32_map.h").is_file()


def test_an_sdist_of_another_layout_is_refused(tmp_path: Path) -> None:
    changed = sdist(tmp_path / "a.tar.gz", "csrc/suffix_decoding/bindings.cc")
    with pytest.raises(SystemExit, match=r"has no csrc/suffix_decoding/bindings\.cc"):
        suffix_wheel._extracted(changed, tmp_path / "source")


def test_each_entry_of_the_lock_has_its_hashes() -> None:
    text = LOCK.read_text()
    for name in (suffix_wheel.SDIST, *suffix_wheel.BUILD_TOOLS):
        entry = suffix_wheel._entry(text, name)
        assert entry.startswith(f"{name}==")
        assert "--hash=sha256:" in entry
    with pytest.raises(SystemExit, match="no hashes of nanobind"):
        suffix_wheel._entry("nanobind==2.9.2\n", "nanobind")


def test_a_lock_without_the_package_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text("nanobind==2.9.2\n")
    with pytest.raises(SystemExit, match="does not pin arctic-inference"):
        suffix_wheel.build(tmp_path / "lock.txt", tmp_path, None)


def test_the_wheel_is_the_same_for_the_same_content_and_names_itself_as_a_part() -> None:
    content = {"arctic_inference/__init__.py": b"", "arctic_inference-0.1.1+suffix.dist-info/licenses/LICENSE": b"L"}
    first, second = (suffix_wheel._zipped(content, "0.1.1") for _ in range(2))
    assert first == second
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        metadata = archive.read("arctic_inference-0.1.1+suffix.dist-info/METADATA").decode()
        record = archive.read("arctic_inference-0.1.1+suffix.dist-info/RECORD").decode()
        assert "Version: 0.1.1+suffix\n" in metadata
        assert {line.split(",")[0] for line in record.splitlines()} == set(archive.namelist())


def test_without_compiler_or_headers_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suffix_wheel, "COMPILER", "no-such-compiler")
    with pytest.raises(SystemExit, match="install a C\\+\\+ compiler, or set CXX"):
        suffix_wheel._key(LOCK)
    monkeypatch.setattr(suffix_wheel.sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(SystemExit, match=r"no Python\.h; install Python's headers"):
        suffix_wheel.compile_extension(tmp_path, tmp_path, tmp_path / "a.so")


def test_a_failing_command_shows_what_it_printed() -> None:
    with pytest.raises(SystemExit, match="broken"):
        suffix_wheel._run(sys.executable, "-c", "import sys; sys.exit('broken')")


def test_a_cached_wheel_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suffix_wheel, "_key", lambda lock: lock.name)
    monkeypatch.setattr(suffix_wheel, "_content", lambda *_: {"arctic_inference/__init__.py": b""})
    built = suffix_wheel.build(LOCK, tmp_path / "first", tmp_path / "cache")
    monkeypatch.setattr(suffix_wheel, "_content", lambda *_: pytest.fail("built again"))
    assert suffix_wheel.build(LOCK, tmp_path / "second", tmp_path / "cache").read_bytes() == built.read_bytes()
    assert len(list((tmp_path / "cache/suffix.txt").iterdir())) == 1
