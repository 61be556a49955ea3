"""`make upstream-facts`: which readers run, and what is said of those that do not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from upstream import facts

PACKAGE = Path(facts.__file__).parent


def test_every_module_that_reads_sources_is_run() -> None:
    mains = {path for path in (*PACKAGE.glob("*.py"), *PACKAGE.glob("*/__main__.py")) if "sys.argv" in path.read_text()}
    names = {path.parent.name if path.name == "__main__.py" else path.stem for path in mains}
    assert names - {"facts"} == set(facts.READERS)


def test_readers_without_their_sources_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "MindSpeed.git").mkdir()
    monkeypatch.setattr(sys, "argv", ["facts", str(tmp_path)])
    with pytest.raises(SystemExit, match="1"):
        facts.main()
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(facts.READERS)
    assert f"upstream.megatron_names: not read again, since {tmp_path} has no Megatron-LM.git" in printed
    assert f"upstream.command_recipes: not read again, since {tmp_path} has no cann-recipes-train.git" in printed


def test_of_two_wheels_none_is_chosen(tmp_path: Path) -> None:
    for version in ("0.9.1", "0.9.2"):
        (tmp_path / f"verl-{version}-py3-none-any.whl").touch()
    with pytest.raises(SystemExit, match="keep that of the pin"):
        facts.find(tmp_path, "verl-*.whl")
