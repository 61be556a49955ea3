"""`rljob plan memory` on files."""

import json
from pathlib import Path

import pytest
from builders import apart, merged, small_spec
from corpus.memory import CONFIG, OFFLOADED, WIDE, on_a3

from rljob.api import yaml11
from rljob.api.texts import write_texts
from rljob.cli.main import main

ROOT = Path(__file__).resolve().parents[5]
FLAGSHIP = [str(ROOT / "examples/qwen3-235b.yaml"), str(ROOT / "charts/rljob-operator/recipes")]
QUICKSTART = str(ROOT / "examples/quickstart.yaml")


@pytest.fixture
def big(tmp_path: Path) -> str:
    """Return a job that does not fit."""
    path = tmp_path / "job.yaml"
    spec = write_texts(small_spec(on_a3({"tensor": 2}, {"architecture": "Qwen3-32B"}, WIDE, OFFLOADED)))
    job = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "big"}, "spec": spec}
    path.write_text(yaml11.dump_all([job]))
    return str(path)


def test_the_flagship_gets_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "memory", *FLAGSHIP]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "qwen3-235b: Qwen3-235B-A22B (235.09 billion parameters) on atlas-a3-superpod, 64 GiB per die"
    assert ["rollout", "weights", "7.10"] in [line.split() for line in lines]
    assert any(line.startswith("KV cache: 47.0 KiB per token and die, ") for line in lines)
    assert lines[2].index("GiB") + 3 == len(next(line for line in lines if line.split()[:2] == ["KV", "cache"]))


def test_json_holds_the_same_in_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "memory", "-o", "json", *FLAGSHIP]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["fits"] is True
    assert document["kvCache"]["bytesPerToken"] == 47 * 1024
    assert [phase["name"] for phase in document["phases"]] == [
        "generate",
        "log probabilities",
        "update",
        "weight transfer",
    ]
    assert all(sum(part["bytes"] for part in phase["parts"]) == phase["bytes"] for phase in document["phases"])


def test_trainer_and_rollout_apart_are_shown_one_after_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = {"devicesPerNode": 16}
    small = {"accelerator": {"class": "atlas-a3"}, "model": {"architecture": "Qwen2.5-0.5B"}}
    spec = write_texts(small_spec(merged(apart(whole, whole), small)))
    path = tmp_path / "job.yaml"
    path.write_text(
        yaml11.dump_all(
            [{"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "a"}, "spec": spec}]
        )
    )
    main(["plan", "memory", str(path)])
    lines = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines() if line and line[0] in "oglwu"]
    assert lines == [
        "on the fullest die of the trainer",
        "log probabilities",
        "update",
        "weight transfer",
        "on the fullest die of the rollout",
        "generate",
        "weight reception",
    ]
    main(["plan", "memory", "-o", "json", str(path)])
    phases = json.loads(capsys.readouterr().out)["phases"]
    assert {phase["name"] for phase in phases if phase["role"] == "Rollout"} == {"generate", "weight reception"}


def test_what_does_not_fit_is_shown_and_ends_with_1(big: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "-f", big]) == 1
    assert "update takes" in capsys.readouterr().err
    assert main(["plan", "memory", big]) == 1
    assert "does not fit" in capsys.readouterr().out


def test_a_config_json_stands_in_for_the_model(big: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "small-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": 4}))
    assert main(["plan", "memory", big, "--model-config", str(folder / "config.json")]) == 0
    assert "big: small-model (" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object; pass the config.json of a model"),
        ('{"model_type": "mamba"}', "model_type 'mamba' is not supported"),
        (None, "No such file"),
    ],
)
def test_an_unreadable_config_json_is_an_error(
    big: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, told: str
) -> None:
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    assert main(["plan", "memory", big, "--model-config", str(path)]) == 2
    assert told in capsys.readouterr().err


def test_an_unknown_model_or_memory_is_refused_with_the_fix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "memory", QUICKSTART]) == 2
    assert "set model.architecture to one of DeepSeek-R1" in capsys.readouterr().err
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    assert main(["plan", "memory", QUICKSTART, "--model-config", str(path)]) == 2
    assert "class cpu uses the host's memory" in capsys.readouterr().err


def test_a_job_that_is_wrong_otherwise_is_not_reckoned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    job = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "a"}, "spec": {"model": 1}}
    path.write_text(yaml11.dump_all([job]))
    assert main(["plan", "memory", str(path)]) == 1
    assert "spec.trainer: is required" in capsys.readouterr().err
