"""Copying the runtime of the operator's image into a volume."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rljob_runtime.copy_runtime import copy_runtime


def test_a_process_with_the_copy_on_its_path_finds_the_runtime_and_its_plug_ins(tmp_path: Path) -> None:
    source, target = tmp_path / "image", tmp_path / "volume"
    (source / "code" / "some_runtime").mkdir(parents=True)
    (source / "code" / "some_runtime" / "__init__.py").write_text("NAME = 'copied'\n")
    info = source / "code" / "some_runtime-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-runtime\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[verl.plugins]\nsome = some_runtime:NAME\n")
    (info / "METADATA").chmod(0o600)
    target.mkdir()
    assert copy_runtime(source, target, with_verl=False).startswith("copied 3 files")
    assert (target / "code" / "some_runtime-1.dist-info" / "METADATA").stat().st_mode & 0o777 == 0o644
    text = "import importlib.metadata as m; (e,) = m.entry_points(group='verl.plugins', name='some'); print(e.value)"
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={"PYTHONPATH": str(target / "code")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "some_runtime:NAME\n"
    # A container that is started again copies again.
    assert copy_runtime(source, target, with_verl=False).startswith("copied 3 files")


def test_verl_is_copied_only_where_it_is_asked_for(tmp_path: Path) -> None:
    source = tmp_path / "image"
    for part, module in (("code", "rljob_runtime"), ("verl", "verl/trainer")):
        (source / part / module).mkdir(parents=True)
        (source / part / module / "__init__.py").touch()
    copy_runtime(source, tmp_path / "command", with_verl=False)
    assert [path.name for path in (tmp_path / "command").iterdir()] == ["code"]
    assert copy_runtime(source, tmp_path / "verl", with_verl=True).startswith("copied 2 files")
    folder = tmp_path / "verl" / "verl" / "verl"
    assert (folder / "trainer" / "__init__.py").is_file()
    assert folder.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(("present", "with_verl", "named"), [((), False, "code"), (("code",), True, "verl")])
def test_an_image_without_a_part_of_the_runtime_is_named(
    tmp_path: Path, present: tuple[str, ...], with_verl: bool, named: str
) -> None:
    for part in present:
        (tmp_path / "image" / part).mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=f"image/{named}: this image carries no runtime"):
        copy_runtime(tmp_path / "image", tmp_path / "volume", with_verl=with_verl)
    assert not (tmp_path / "volume").exists()


def test_the_mode_of_the_volume_itself_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An emptyDir belongs to root: a process of another user may write into it, but not change its mode or times.
    source, target = tmp_path / "image", tmp_path / "volume"
    (source / "code").mkdir(parents=True)
    target.mkdir()

    def refuse(path: Path | str, real: Callable[..., None], *rest: object, **named: object) -> None:
        if Path(path) == target:
            raise PermissionError(f"{path}: not the owner")
        real(path, *rest, **named)

    for name in ("chmod", "utime"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda path, *a, real=real, **k: refuse(path, real, *a, **k))
    copy_runtime(source, target, with_verl=False)
    assert (target / "code").is_dir()
