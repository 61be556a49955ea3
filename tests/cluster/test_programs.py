"""A program is compiled again if and only if an input changes."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster import programs
from tests.cluster.errors import ClusterError
from tests.cluster.paths import PROGRAMS
from tests.cluster.programs import Program, cache_key, locked, program

PROGRAM = Program("pause", ("pause",))


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "go.mod").write_text("module rljob.dev/tests/x\n")
    (tmp_path / "main.go").write_text("package main\n")
    return tmp_path


def test_the_key_stays_when_nothing_changed(module: Path) -> None:
    assert cache_key(PROGRAM, module, "go1.26") == cache_key(PROGRAM, module, "go1.26")


def test_another_source_gives_another_key(module: Path) -> None:
    before = cache_key(PROGRAM, module, "go1.26")
    (module / "main.go").write_text("package main // changed\n")
    assert cache_key(PROGRAM, module, "go1.26") != before


def test_another_compiler_gives_another_key(module: Path) -> None:
    assert cache_key(PROGRAM, module, "go1.26") != cache_key(PROGRAM, module, "go1.27")


def test_another_link_variable_gives_another_key(module: Path) -> None:
    stamped = replace(PROGRAM, variables=("main.version=1",))
    assert cache_key(PROGRAM, module, "go1.26") != cache_key(stamped, module, "go1.26")


def test_text_that_moves_between_files_gives_another_key(module: Path) -> None:
    (module / "a").write_text("12")
    (module / "b").write_text("3")
    before = cache_key(PROGRAM, module, "go1.26")
    (module / "a").write_text("1")
    (module / "b").write_text("23")
    assert cache_key(PROGRAM, module, "go1.26") != before


@pytest.mark.parametrize("known", programs.PROGRAM_TABLE, ids=lambda known: str(known.name))
def test_every_program_of_the_table_has_a_pinned_module(known: Program) -> None:
    text = (PROGRAMS / known.name / "go.mod").read_text()
    assert f"module rljob.dev/tests/cluster/programs/{known.name}\n" in text
    assert "replace " not in text
    assert not known.tools or "\ntool " in text


def test_an_unknown_program_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ClusterError, match="use one of kube, etcd"):
        program("kubernetes")


def test_a_lock_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    path, order = tmp_path / "lock", []

    def second() -> None:
        with locked(path):
            order.append("second")

    with locked(path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(timeout=0.2)
        order.append("first")
    thread.join(timeout=10)
    assert order == ["first", "second"]
