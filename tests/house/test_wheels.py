"""The wheels contain our packages with their types and entry points, and no tests."""

from __future__ import annotations

import configparser
import re
import tomllib
import zipfile
from pathlib import Path

import pytest

from scripts import wheels
from scripts.generate import LOCKS, PINS

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "images/runtime"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    paths = wheels.build(tmp_path_factory.mktemp("dist"))
    return {path.name.partition("-")[0]: zipfile.ZipFile(path) for path in paths}


def read(wheel: zipfile.ZipFile, name: str) -> str:
    (path,) = [path for path in wheel.namelist() if path.endswith(f".dist-info/{name}")]
    return wheel.read(path).decode()


def entry_points(wheel: zipfile.ZipFile) -> dict[str, dict[str, str]]:
    parser = configparser.ConfigParser()
    parser.read_string(read(wheel, "entry_points.txt"))
    return {section: dict(parser[section]) for section in parser.sections()}


SOURCES = {"rljob": ROOT / "operator/src", "rljob_runtime": ROOT / "runtime/src"}


def test_each_holds_every_file_of_its_package(built: dict[str, zipfile.ZipFile]) -> None:
    for package, source in SOURCES.items():
        files = [path for path in (source / package).rglob("*") if path.is_file() and path.suffix != ".pyc"]
        held = {name for name in built[package].namelist() if ".dist-info" not in name}
        assert held == {str(path.relative_to(source)) for path in files}


def test_each_holds_one_package_with_its_types(built: dict[str, zipfile.ZipFile]) -> None:
    assert sorted(built) == ["rljob", "rljob_runtime"]
    for package, wheel in built.items():
        names = wheel.namelist()
        assert f"{package}/py.typed" in names
        assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {package}
        assert not [name for name in names if re.search("test|fake|doubles", name.lower())]


def test_entry_points_are_there(built: dict[str, zipfile.ZipFile]) -> None:
    commands = entry_points(built["rljob"])["console_scripts"]
    assert commands == {
        "rljob": "rljob.cli.main:main",
        "kubectl-rljob": "rljob.cli.main:main",
        "kubectl_complete-rljob": "rljob.cli.completion:kubectl_main",
    }
    assert entry_points(built["rljob_runtime"]) == {
        "rljob_runtime.trainers": {"verl": "rljob_runtime.verl_plugin.launcher:VerlTrainer"},
        "verl.plugins": {"rljob": "rljob_runtime.verl_plugin.plugin"},
        "vllm.general_plugins": {"rljob": "rljob_runtime.vllm_plugin:register"},
    }


def test_the_command_line_installs_light(built: dict[str, zipfile.ZipFile]) -> None:
    needed = re.findall(r"^Requires-Dist: ([^;\n]+)$", read(built["rljob"], "METADATA"), re.MULTILINE)
    assert sorted(re.split(r"[<>=]", name)[0] for name in needed) == [
        "argcomplete",
        "pydantic",
        "pyyaml",
        "rljob-runtime",
    ]
    assert not re.findall(r"^Requires-Dist: ([^;\n]+)$", read(built["rljob_runtime"], "METADATA"), re.MULTILINE)


def test_what_is_no_python_travels_too(built: dict[str, zipfile.ZipFile]) -> None:
    assert "rljob_runtime/verl_plugin/router/router.yaml" in built["rljob_runtime"].namelist()
    assert built["rljob_runtime"].read(f"rljob_runtime/{PINS.name}").decode() == PINS.read_text()


def requirements(text: str) -> set[str]:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return {line for line in lines if line and "never" not in line}


def test_the_extra_for_cpus_is_what_the_image_installs() -> None:
    """requirements/runtime-cpu.txt is authoritative: the extra repeats the inputs from which it was resolved."""
    project = tomllib.loads((ROOT / "runtime/pyproject.toml").read_text())["project"]
    asked = requirements((IMAGE / "requirements-cpu.in").read_text())
    asked |= requirements((IMAGE / "overrides-cpu.txt").read_text())
    assert set(project["optional-dependencies"]["cpu"]) == asked


def test_the_pins_of_the_extra_are_those_of_the_lock() -> None:
    project = tomllib.loads((ROOT / "runtime/pyproject.toml").read_text())["project"]
    locked = set(re.findall(r"^([a-z0-9.-]+==[^ ]+)", "".join(lock.read_text() for lock in LOCKS), re.MULTILINE))
    pinned = {re.sub(r"\[.*]", "", pin).lower() for pin in project["optional-dependencies"]["cpu"] if "==" in pin}
    assert pinned <= locked
    assert len(locked) == len(PINS.read_text().splitlines()) - 1
