"""Conditions of upstream code: what is extracted, and that verdicts, tables and checks agree."""

from __future__ import annotations

import ast
import importlib
import sys
import zipfile
from pathlib import Path

import pytest

from rljob.launchers.verl.checks.upstream import ascend, environment, megatron, mindspeed, training
from rljob_runtime.planning.ascend_names import VLLM_ASCEND_VERSION
from rljob_runtime.planning.verl_names import VERL_VERSION
from upstream.conditions import extract, sources, table, verdicts
from upstream.conditions.extract import Condition, conditions
from upstream.conditions.sources import MINDSPEED, SOURCES, VERL, VLLM_ASCEND
from upstream.conditions.verdicts import Judgement, Verdict, read_verdicts, verdict_on
from upstream.megatron_names import MINDSPEED as MINDSPEED_PIN

CHECKS = "rljob.launchers.verl.checks"
REFUSING = {
    rule.name: rule.source
    for rules in (training.RULES, megatron.RULES, mindspeed.RULES, ascend.RULES, environment.RULES)
    for rule in rules
}
WARNING = {rule.name: rule.source for rule in training.DOUBTFUL}
OTHER_PACKAGES = ("vllm/", "megatron/core/pipeline_parallel/", "mindspeed/core/", "mbridge/")
"""Sources of rules that no table covers."""
MODULE = '''
"""A module."""
import os

def launch(config, size, verbose):
    half = size // 2
    batch = config.batch * 2
    assert size > 0
    assert batch % size == 0, "uneven"
    if config.mode == "a":
        raise ValueError("a")
    elif size or verbose:
        if not config.flag:
            raise ValueError("flag")
    if config.skip:
        return
    if half > 3:
        raise ValueError("half")
    try:
        read(config.path)
    except OSError:
        raise ValueError("path")
    for name in config.names:
        match name:
            case "x" | "y":
                raise ValueError(name)

class Engine:
    def __init__(self):
        if os.environ.get("A") == "1":
            raise RuntimeError("A")
        raise NotImplementedError
'''


def texts(source: str, *, whole: bool = False) -> list[str]:
    return [f"{row.function}: {row.text}" for row in conditions(source, "m.py", whole=whole)]


def test_a_condition_is_the_conjunction_of_the_tests_around_it() -> None:
    assert texts(MODULE) == [
        "launch: batch % size != 0",
        "launch: config.mode == 'a'",
        "launch: config.mode != 'a' and (size or verbose) and not config.flag",
        "launch: not (config.skip) and half > 3",
        "launch: not (config.skip) and raised(OSError)",
        "launch: not (config.skip) and name is 'x' | 'y'",
        "Engine.__init__: os.environ.get('A') == '1'",
    ]


def test_in_a_file_of_configuration_every_condition_counts() -> None:
    assert set(texts(MODULE, whole=True)) - set(texts(MODULE)) == {"launch: not (size > 0)"}


def test_a_long_condition_keeps_its_innermost_tests() -> None:
    outer = "x" * 200
    (row,) = conditions(f"if config.{outer}:\n  if config.a:\n    raise ValueError\n", "m.py")
    assert row.text == "… and config.a"
    (row,) = conditions(f"if config.{outer}:\n  raise ValueError\n", "m.py")
    assert (len(row.text), row.text[-1]) == (extract.SHOWN, "…")


def test_the_digest_identifies_a_condition_across_lines_and_a_repetition_is_one_row() -> None:
    code = "if config.a:\n  raise ValueError\n"
    (row,), (moved,) = conditions(code, "m.py"), conditions(f"\n\n{code}{code}", "m.py")
    assert (row.key, row.line, moved.key, moved.line) == (row.key, 2, row.key, 4)
    assert conditions("if config.b:\n  raise ValueError\n", "m.py")[0].key != row.key


def test_a_wheel_and_a_folder_give_the_same_files(tmp_path: Path) -> None:
    folder = tmp_path / "verl/utils"
    folder.mkdir(parents=True)
    (folder / "config.py").write_text("assert size\n")
    (folder / "other.py").write_text("assert size\n")
    wheel = tmp_path / "verl.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(folder / "config.py", "verl/utils/config.py")
        archive.write(folder / "other.py", "verl/utils/other.py")
    files = table.upstream_files(VERL, wheel)
    assert files == table.upstream_files(VERL, tmp_path) == {"verl/utils/config.py": "assert size\n"}
    rows = table.found(VERL, files)
    assert [row.text for row in rows] == ["not (size)"]
    assert table.written(rows).splitlines()[0].split("\t") == list(table.COLUMNS)


@pytest.mark.parametrize("module", [extract, sources], ids=["extract", "sources"])
def test_what_runs_in_the_image_imports_only_the_standard_library(module: object) -> None:
    tree = ast.parse(Path(str(getattr(module, "__file__", ""))).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert {str(name).split(".")[0] for name in imported} <= set(sys.stdlib_module_names)


def test_the_sources_are_the_pins_of_the_product() -> None:
    assert VERL.version == VERL_VERSION
    assert VLLM_ASCEND.version == VLLM_ASCEND_VERSION
    assert MINDSPEED.version == MINDSPEED_PIN.commit


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_a_table_is_small_and_has_no_key_twice(source: sources.Source) -> None:
    rows = table.read(source)
    keys = [row.key for row in rows]
    assert 100 < len(rows) < 500
    assert len(keys) == len(set(keys))
    assert table.written(rows) == table.path_of(source).read_text()


def test_every_verdict_has_its_condition() -> None:
    rows = [(source, row) for source in SOURCES for row in table.read(source)]
    lost, wide = [], []
    for verdict in read_verdicts():
        count = sum(verdict.matches(source, row) for source, row in rows)
        if count == 0:
            lost.append(verdict)
        if verdict.exact and count != 1:
            wide.append(verdict)
    assert (lost, wide) == ([], [])


def test_no_condition_has_two_verdicts() -> None:
    exact = [(row.source, row.file, row.function, row.digest) for row in read_verdicts() if row.exact]
    assert sorted(exact) == sorted(set(exact))
    assert [row for row in read_verdicts() if not row.reason] == []


def named_checks(verdict: Verdict) -> set[tuple[str, str]]:
    module, _, names = verdict.reason.partition(": ")
    return {(module, name) for name in names.split(", ")}


def test_every_refusal_and_warning_names_a_check_that_exists() -> None:
    for verdict in read_verdicts():
        if verdict.judgement not in (Judgement.REFUSE, Judgement.WARN):
            continue
        rules = REFUSING if verdict.judgement is Judgement.REFUSE else WARNING
        for module, name in named_checks(verdict):
            assert (
                name in rules if module == "upstream" else hasattr(importlib.import_module(f"{CHECKS}.{module}"), name)
            )


@pytest.mark.parametrize(("rules", "judgement"), [(REFUSING, Judgement.REFUSE), (WARNING, Judgement.WARN)])
def test_every_rule_cites_a_condition_whose_verdict_names_it(rules: dict[str, str], judgement: Judgement) -> None:
    places = {f"{row.file}:{row.line}": (source, row) for source in SOURCES for row in table.read(source)}
    verdicts_ = read_verdicts()
    for name, place in rules.items():
        if place.startswith(OTHER_PACKAGES):
            continue
        verdict = verdict_on(*places[place], verdicts_)
        assert verdict is not None, f"{name}: {place} has no verdict"
        assert (verdict.judgement, ("upstream", name) in named_checks(verdict)) == (judgement, True)


def test_a_pattern_applies_to_what_no_exact_row_names() -> None:
    row = Condition("a/b.py", "f", "00", 1, "raise", "config.x")
    pattern = Verdict("verl", "a/*", "*", "*", Judgement.NOT_REACHED, "elsewhere")
    exact = Verdict("verl", "a/b.py", "f", "00", Judgement.CANNOT_BE_KNOWN, "hardware")
    rows = sorted([pattern, exact], key=lambda verdict: not verdict.exact)
    assert verdict_on(VERL, row, rows) == exact
    assert verdict_on(VERL, Condition("a/b.py", "g", "00", 1, "raise", "config.x"), rows) == pattern
    assert verdict_on(VLLM_ASCEND, row, rows) is None


def test_a_verdict_that_lost_its_condition_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = tmp_path / "verdicts.tsv"
    stale.write_text("head\nverl\tverl/utils/config.py\tvalidate_config\t00000000\trefuse\tupstream: gone\n")
    monkeypatch.setattr(verdicts, "TABLE", stale)
    with pytest.raises(AssertionError, match="gone"):
        test_every_verdict_has_its_condition()
