"""`rljob plan experts`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rljob.cli.main import main
from rljob.planner.experts.expert_maps import read_map

GENERATOR = np.random.default_rng(0)


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    path = tmp_path / "counts.npy"
    np.save(path, (GENERATOR.lognormal(0, 0.5, (3, 4, 16)) * 1e5).astype(np.int64))
    return path


def run(*words: object) -> int:
    return main(["plan", "experts", *map(str, words)])


def test_a_map_is_written_and_its_figures_are_printed(
    counts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "map.json"
    assert run("--load", counts, "--devices", 4, "--replicas", 20, "--map", target) == 0
    assert read_map(target).shape == (4, 4, 5)
    page = capsys.readouterr().out
    assert page.startswith("4 layers, 16 experts, 20 replicas on 4 devices; planned for ")
    assert "experts in order, without a map" in page
    assert "in the window after a plan (trials)" in page
    assert "did not hold before" not in page


def test_the_same_as_data_and_from_a_current_map(
    counts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    sizes = ("--devices", 4, "--replicas", 20)
    assert run("--load", counts, *sizes, "--map", first) == 0
    assert run("--load", counts, *sizes, "--map", second, "--current", first) == 0
    assert "replicas that a device did not hold before: 0 of 80" in capsys.readouterr().out
    assert run("--load", counts, *sizes, "--map", second, "--current", first, "-o", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["loadedReplicas"] == 0
    assert document["maxOverMean"]["planned"]["mean"] < document["maxOverMean"]["withoutMap"]["mean"]


def test_one_window_has_no_trial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "counts.json").write_text("[[3, 1, 1, 1]]")
    assert run("--load", tmp_path / "counts.json", "--devices", 2, "--replicas", 6, "--map", tmp_path / "m.json") == 0
    assert "trials" not in capsys.readouterr().out


def test_what_cannot_be_planned_is_a_message(counts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "map.json"
    assert run("--load", counts, "--devices", 4, "--replicas", 18, "--map", target) == 2
    assert "replicas 18 do not divide among 4 devices" in capsys.readouterr().err
    assert run("--load", tmp_path / "absent.json", "--devices", 4, "--replicas", 20, "--map", target) == 2
    assert "absent.json: No such file" in capsys.readouterr().err
    assert run("--load", counts, "--devices", 4, "--replicas", 20, "--map", target) == 0
    capsys.readouterr()
    for devices in (2, 0):
        sizes = ("--devices", devices, "--replicas", 20)
        assert run("--load", counts, *sizes, "--map", target, "--current", target) == 2
        assert "4 devices with 5 experts each; with --current, use --devices 4 --replicas 20" in capsys.readouterr().err


def test_a_map_needs_a_name_that_the_server_accepts_and_a_place(
    counts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ("--load", counts, "--devices", 4, "--replicas", 20)
    assert run(*sizes, "--map", tmp_path / "map.txt") == 2
    assert "only files that end in .json" in capsys.readouterr().err
    assert run(*sizes, "--map", counts / "map.json") == 2
    assert "map.json: File exists; choose another file with --map" in capsys.readouterr().err


WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
from rljob.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_without_numpy_the_command_names_what_to_install(counts: Path) -> None:
    words = ("plan", "experts", "--load", counts, "--devices", "4", "--replicas", "20", "--map", "map.json")
    done = subprocess.run([sys.executable, "-c", WITHOUT_NUMPY, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "rljob: plan experts needs numpy; install `rljob[planner]`\n")
