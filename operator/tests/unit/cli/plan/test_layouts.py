"""`rljob plan report` on files."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from builders import apart, merged, small_spec, typed
from corpus.memory import OFFLOADED, on_a3

from rljob.api import yaml11
from rljob.api.texts import write_texts
from rljob.cli.errors import UsageError
from rljob.cli.main import main
from rljob.cli.plan.report import plan_report, report_document, report_table, with_cards
from rljob.cli.plan.rollout import Lengths
from rljob.launchers.verl.layout_job import layout_job
from rljob_runtime.planning.architectures import BUILT_IN

ROOT = Path(__file__).resolve().parents[5]
RECIPES = str(ROOT / "charts/rljob-operator/recipes")
SMALL = on_a3({"tensor": 2}, {"architecture": "Qwen2.5-1.5B"}, {"trainer": {"globalBatchSize": 64}}, OFFLOADED)
LENGTHS = ["--lengths", "uniform"]


def written(folder: Path, *changes: dict[str, Any]) -> str:
    """Return a file with a job of 64 prompts on one node of A3."""
    path = folder / "job.yaml"
    spec = write_texts(small_spec(merged(SMALL, *changes)))
    job = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "small"}, "spec": spec}
    path.write_text(yaml11.dump_all([job]))
    return str(path)


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["plan", "report", "-o", "json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_layout_of_a_recipe_is_among_the_top_three(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job,) = yaml11.load_all((ROOT / "examples/qwen3-235b.yaml").read_text())
    job["spec"]["recipeRef"]["name"] = "deepseek-v3-671b-grpo-a3"
    path = tmp_path / "job.yaml"
    path.write_text(yaml11.dump_all([job]))
    found = document(capsys, "-f", str(path), "-f", RECIPES, "--top", "3")
    own = next(row for row in found["layouts"] if row["own"])
    assert own["place"] <= 3
    assert own["published"]
    assert own["publishedStepSeconds"] == 859.68
    fastest = min(row["seconds"]["step"] for row in found["layouts"])
    assert own["seconds"]["step"] <= fastest * (1 + found["modelError"])
    assert own["seconds"]["step"] == pytest.approx(859.68, rel=found["modelError"])


def test_every_number_says_where_it_is_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "-f", written(tmp_path), *LENGTHS)
    origins = {"measured", "published", "modelled"}
    assert {row["origin"] for row in found["layouts"]} == {"modelled"}
    assert {row["origin"] for row in found["switches"]} <= origins
    assert {found["lengths"]["origin"], found["stepTime"]["origin"], found["bottleneck"]["origin"]} <= origins
    assert [row["place"] for row in found["layouts"]][:5] == [1, 2, 3, 4, 5]
    assert found["ownLayoutFits"] is True
    assert found["cards"] == 8


def test_the_table_ends_with_the_switches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = written(tmp_path)
    assert main(["plan", "report", "-f", job, *LENGTHS, "--top", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "small: Qwen2.5-1.5B, 512 responses a step on 16 devices (8 cards of atlas-a3-superpod)"
    assert lines[1].startswith("lengths (published): ")
    assert lines[2].startswith("step time of the job's layout (modelled): ")
    assert any(line.startswith("bottleneck of layout 1 (modelled): rollout, ") for line in lines)
    assert any(line.split()[0] == "optimizations.gcFreeze" and "published: " in line for line in lines if line)
    assert lines[-1] == "savings do not add up"
    shown = [line for line in lines if line.lstrip()[:1].isdigit()]
    # The first, and the job's own at its place.
    assert len(shown) <= 2
    assert any("this job" in line for line in shown)
    assert main(["plan", "report", "-f", job, *LENGTHS, "--top", "1000"]) == 0
    assert capsys.readouterr().out.count("this job") == 1


def test_another_number_of_cards_is_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "-f", written(tmp_path), *LENGTHS, "--cards", "16")
    assert found["devices"] == 32


def test_cards_that_are_no_whole_nodes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "report", "-f", written(tmp_path), "--cards", "5"]) == 2
    assert "5 cards have 10 devices, which are no whole nodes" in capsys.readouterr().err


def test_cards_are_given_to_both_groups_in_their_proportion() -> None:
    spec = typed(
        merged(small_spec(), SMALL, apart({"nodes": 4, "devicesPerNode": 16}, {"nodes": 2, "devicesPerNode": 16}))
    )
    assert [each.nodes for each in with_cards("small", spec, 24).worker_groups] == [2, 1]
    with pytest.raises(
        UsageError, match="8 cards have 16 devices, which are no whole nodes of both worker groups at 64"
    ):
        with_cards("small", spec, 8)


@pytest.mark.parametrize("text", ["0", "-1", "x", "65537", "9" * 5000, "1.5", "²"])
@pytest.mark.parametrize("option", ["--cards", "--top"])
def test_a_number_out_of_range_is_refused(option: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "report", "-f", "job.yaml", f"{option}={text}"])
    assert ended.value.code == 2
    assert "must be a whole number from 1 to 65,536" in capsys.readouterr().err


def test_a_layout_of_the_job_that_does_not_fit_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    big = {"model": {"architecture": "Qwen3-32B"}, "rollout": {"parallelism": {"tensor": 16}, "memoryFraction": "0.8"}}
    assert main(["plan", "report", "-f", written(tmp_path, big), *LENGTHS]) == 0
    assert "the layout of the job does not fit; `rljob plan memory` shows why" in capsys.readouterr().out
    assert document(capsys, "-f", written(tmp_path, big), *LENGTHS)["ownLayoutFits"] is False


def test_a_model_that_fits_in_no_layout_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    huge = {"model": {"architecture": "Qwen3-235B-A22B"}}
    assert main(["plan", "report", "-f", written(tmp_path, huge), *LENGTHS]) == 2
    assert "no layout fits into 16 devices" in capsys.readouterr().err


def test_a_class_without_device_memory_is_refused_with_the_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = small_spec({"model": {"architecture": "Qwen2.5-0.5B"}})
    path = tmp_path / "cpu.yaml"
    job = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "small"}, "spec": spec}
    path.write_text(yaml11.dump_all([job]))
    assert main(["plan", "report", "-f", str(path)]) == 2
    assert "class cpu uses the host's memory; set accelerator.class to an Atlas class" in capsys.readouterr().err


def test_a_command_has_no_layout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "report", "-f", str(ROOT / "examples/command.yaml")]) == 2
    assert "launcher.type is Command" in capsys.readouterr().err


def test_a_switch_that_validation_refuses_saves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    off = {"optimizations": {"skipOldLogProb": "Disabled"}}
    refused = {"verl": {"overrides": {"data.shuffle": False, "algorithm.rollout_correction.rollout_is": "token"}}}
    for change, saves in ((off, True), (merged(off, refused), False)):
        rows = {row["field"]: row for row in document(capsys, "-f", written(tmp_path, change), *LENGTHS)["switches"]}
        for name in ("skipOldLogProb", "promptOrder"):
            assert (rows[f"optimizations.{name}"]["savedSeconds"] > 0) is saves, (name, saves)
    assert "keeps that of the files" in str(rows["optimizations.promptOrder"])


def test_an_asynchronous_job_is_planned_as_a_synchronous_step_which_the_report_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(capsys, "-f", written(tmp_path, {"trainer": {"mode": "ColocateAsync"}}), *LENGTHS)
    (note,) = found["notes"]
    assert note.startswith("simulated as a synchronous step")
    sync, colocated = found["modes"]
    assert found["modesNotShown"] == "1 node cannot be halved"
    assert (sync["mode"], colocated["mode"]) == ("Sync", "ColocateAsync")
    assert colocated["seconds"]["rollout"] < sync["seconds"]["rollout"]
    assert (sync["staleness"], colocated["origin"]) == (0, "modelled")
    late = next(row for row in found["switches"] if row["field"] == "optimizations.loadBalancer")
    assert late["savedSeconds"] == 0
    assert "a pause ends every request" in late["reason"]
    assert main(["plan", "report", "-f", str(tmp_path / "job.yaml"), *LENGTHS]) == 0
    assert f"note: {note}" in capsys.readouterr().out
    assert document(capsys, "-f", written(tmp_path), *LENGTHS)["notes"] == []


NODES = {"nodes": 1, "devicesPerNode": 16}


def separate(*changes: dict[str, Any]) -> dict[str, Any]:
    """Return the change of a job that trains and generates on a node of A3 each, two updates a step."""
    return merged(apart(NODES, NODES), {"trainer": {"miniBatchSize": 32}}, *changes)


def test_a_job_of_two_groups_is_compared_with_one_group_on_all_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, separate())
    found = document(capsys, "-f", path, *LENGTHS)
    assert (found["devices"], found["cards"]) == (32, 16)
    sync, colocated, apart_ = found["modes"]
    assert [row["mode"] for row in found["modes"]] == ["Sync", "ColocateAsync", "SeparateAsync"]
    assert sync["devices"] == colocated["devices"] == {"trainer": 32, "rollout": 32}
    assert apart_["devices"] == {"trainer": 16, "rollout": 16}
    assert {row["origin"] for row in found["modes"]} == {"modelled"}
    assert set(apart_["memoryShares"]) == {"trainer", "rollout"}
    assert max(apart_["memoryShares"].values()) == apart_["memoryShare"]
    seconds = apart_["seconds"]
    total = seconds["rollout"] + seconds["training"] + seconds["weights"]
    assert apart_["stepSeconds"] == pytest.approx(total, abs=0.2)
    assert (sync["seconds"]["weights"], sync["seconds"]["generation"]) == (0, None)
    best = found["layouts"][0]
    assert (best["rollout"], best["trainer"]) == (apart_["layout"]["rollout"], apart_["layout"]["trainer"])
    parts = best["seconds"]
    trained = parts["logProbabilities"] + parts["update"] + parts["other"]
    assert parts["step"] == pytest.approx(max(parts["rollout"], trained) + parts["weights"], abs=0.3)
    assert found["modesNotShown"] is None


def test_the_table_of_two_groups_shows_the_fit_of_each_role(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "report", "-f", written(tmp_path, separate()), *LENGTHS]) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0] == "small: Qwen2.5-1.5B, 512 responses a step on 16 + 16 devices (16 cards of atlas-a3-superpod)"
    assert any(line.startswith("rollout and training overlap: ") for line in lines)
    assert re.search(r"^SeparateAsync, 16 \+ 16 devices +\d", shown, re.MULTILINE)
    assert re.search(r"^Sync, 32 devices +\d", shown, re.MULTILINE)
    own = r"^SeparateAsync \(modelled\): layout 1, memory \d+%/\d+% of trainer and rollout; generates for [\d,]+ s \("
    other = r"^Sync, ColocateAsync \(modelled\): rollout \d.*, trainer \d.*, memory \d+%$"
    assert all(re.search(line, shown, re.MULTILINE) for line in (own, other))


def test_modes_that_are_not_shown_have_a_reason() -> None:
    spec = typed(merged(small_spec(), SMALL, separate()))
    facts = layout_job(spec, BUILT_IN["Qwen2.5-1.5B"])
    assert facts is not None
    narrow = dataclasses.replace(facts, trainer_node_devices=8)
    report = plan_report("small", spec, narrow, Lengths(None, "uniform", None))
    missing = "Sync, ColocateAsync: not shown, because nodes of 8 and of 16 devices cannot be one group"
    assert missing in report_table("small", report, 1)
    assert report_document("team", "small", report, 1)["modesNotShown"] in missing


def test_the_window_of_an_asynchronous_job_is_its_own() -> None:
    for change, window in (({}, 1.0), (separate({"trainer": {"async": {"prefetchBatches": "2.5"}}}), 2.5)):
        spec = typed(merged(small_spec(), SMALL, change))
        found = layout_job(spec, BUILT_IN["Qwen2.5-1.5B"])
        assert found is not None
        assert (found.window, found.trainer_node_devices) == (window, 16)
