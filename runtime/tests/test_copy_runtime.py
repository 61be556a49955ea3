"""Copying the runtime of the operator's image into a volume."""

from __future__ import annotations

import subprocess
import sys
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
    assert copy_runtime(source, target).startswith("copied 3 files")
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
    assert copy_runtime(source, target).startswith("copied 3 files")


def test_an_image_without_the_runtime_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="carries no runtime; use the operator's image"):
        copy_runtime(tmp_path / "none", tmp_path)
