"""`rljob plan rollout` on files."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import merged, small_spec
from corpus.memory import OFFLOADED, on_a3

from rljob.api import yaml11
from rljob.api.texts import write_texts
from rljob.cli.main import main

ROOT = Path(__file__).resolve().parents[5]
RECIPES = str(ROOT / "charts/rljob-operator/recipes")
FLAGSHIP = ["-f", str(ROOT / "examples/deepseek-v3.yaml"), "-f", RECIPES]
SMALL = on_a3({"tensor": 2}, {"architecture": "Qwen2.5-1.5B"}, {"trainer": {"globalBatchSize": 64}}, OFFLOADED)


def written(folder: Path, *changes: dict[str, Any]) -> str:
    """Return a file with a job of 64 prompts on one node of A3."""
    path = folder / "job.yaml"
    spec = write_texts(small_spec(merged(SMALL, *changes)))
    job = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "small"}, "spec": spec}
    path.write_text(yaml11.dump_all([job]))
    return str(path)


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["plan", "rollout", "-o", "json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_flagship_gets_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "rollout", *FLAGSHIP]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "deepseek-v3: 8,192 responses on 256 devices: 2 replicas of 64 ranks, up to 256 responses at a time on a rank"
    )
    assert lines[1].startswith("lengths (published): mean 1,577, longest 3,072 tokens: cann-recipes-train, DeepSeek-R1")
    assert lines[2].startswith("step time (published): ")
    assert [line.split("  ")[0] for line in lines[6:11]] == [
        "adjacent",
        "adjacent + gears",
        "two-stage rebalance",
        "interleaved + gears *",
        "event rebalance",
    ]
    assert any(line.startswith("floor: ") for line in lines)

    # The published rollout of this layout took 373.65 s, which nothing here was fitted to.
    seconds = float(next(line for line in lines if line.startswith("interleaved")).split()[4].replace(",", ""))
    assert seconds == pytest.approx(373.65, rel=0.1)


def test_data_say_where_each_number_is_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "-f", written(tmp_path))
    assert found["lengths"]["origin"] == "modelled"
    assert found["stepTime"]["origin"] == "modelled"
    assert {row["origin"] for row in found["policies"]} == {"modelled"}
    assert [row["name"] for row in found["policies"] if row["asToday"]] == ["interleaved + gears"]
    assert all(row["seconds"] >= found["floorSeconds"] for row in found["policies"])
    assert found["lengths"]["responses"] == 64 * 8
    first = found["policies"][1]
    assert first["overFloor"] == pytest.approx(first["seconds"] / found["floorSeconds"] - 1, abs=1e-3)
    assert first["gears"][0]["step"] == 0


def test_recorded_lengths_are_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "lengths.jsonl"
    trace.write_text("".join(f'{{"prompt": {n // 8}, "response_tokens": {10 + n}}}\n' for n in range(64)))
    found = document(capsys, "-f", written(tmp_path), "--trace", str(trace))
    assert found["lengths"] == {
        "name": "lengths.jsonl",
        "origin": "measured",
        "source": "64 recorded responses of lengths.jsonl",
        "responses": 64,
        "meanTokens": 41.5,
        "longestTokens": 73,
    }
    assert {row["steps"] for row in found["policies"]} == {73}
    (note,) = found["notes"]
    assert note.startswith("the trace has 64 responses, a step of the job 512 (trainer.globalBatchSize 64 × ")


def test_recorded_lengths_beyond_the_jobs_limit_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "lengths.jsonl"
    # Some editors begin a file with a byte order mark.
    trace.write_text("".join(f'{{"prompt": {n // 8}, "response_tokens": 300}}\n' for n in range(512)), "utf-8-sig")
    job = written(tmp_path, {"data": {"maxResponseTokens": 256}})
    (note,) = document(capsys, "-f", job, "--trace", str(trace))["notes"]
    assert note.startswith("the trace's longest response has 300 tokens, but data.maxResponseTokens ends one at 256")
    assert main(["plan", "rollout", "-f", job, "--trace", str(trace)]) == 0
    assert f"note: {note}" in capsys.readouterr().out


def test_captured_sizes_of_sequences_with_drafts_are_in_sequences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drafts = {"method": "Suffix", "tokens": 7}
    rollout = {"rollout": {"speculative": drafts, "maxSequences": 4, "captureSizes": [8, 16, 32]}}
    assert document(capsys, "-f", written(tmp_path, rollout))["captureSizes"] == [1, 2, 4]


def test_lengths_are_drawn_by_name_and_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = written(tmp_path, {"rollout": {"maxSequences": 8}})
    one, again, other = (
        document(capsys, "-f", job, "--lengths", "bimodal", "--seed", seed)["policies"][1]["seconds"]
        for seed in ("1", "1", "2")
    )
    assert one == again != other


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "No such file or directory; pass a file with one response a line"),
        ("{", "line 1: not JSON"),
        ("1" * (1 << 20), "line 1: longer than 65,536 characters"),
    ],
)
def test_an_unreadable_trace_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, told: str
) -> None:
    trace = tmp_path / "trace"
    if text is not None:
        trace.write_text(text)
    assert main(["plan", "rollout", "-f", written(tmp_path), "--trace", str(trace)]) == 2
    assert told in capsys.readouterr().err


def test_a_response_that_fits_in_no_cache_is_refused_with_the_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace"
    trace.write_text('{"prompt": 1, "response_tokens": 16000000}\n')
    assert main(["plan", "rollout", "-f", written(tmp_path), "--trace", str(trace)]) == 2
    told = capsys.readouterr().err
    assert "does not fit into the cache of a rank" in told
    assert "raise rollout.memoryFraction" in told


def test_a_command_has_no_rollout_to_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "rollout", "-f", str(ROOT / "examples/command.yaml")]) == 2
    assert "launcher.type is Command" in capsys.readouterr().err


def test_without_sizes_of_the_model_nothing_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "rollout", "-f", str(ROOT / "examples/quickstart.yaml")]) == 2
    assert "the sizes of the model are unknown" in capsys.readouterr().err


def test_the_cache_of_a_job_on_cpus_has_no_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = small_spec({"model": {"architecture": "Qwen2.5-0.5B"}, "rollout": {"eager": True, "maxSequences": 4}})
    job = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": "small"}, "spec": spec}
    path = tmp_path / "cpu.yaml"
    path.write_text(yaml11.dump_all([job]))
    assert main(["plan", "rollout", "-f", str(path)]) == 0
    assert "cache (modelled): never full" in capsys.readouterr().out
    found = document(capsys, "-f", str(path))
    assert found["cacheTokensPerRank"] is None
    assert found["captureSizes"] == [1, 2, 3, 4]


def test_a_page_draws_the_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "pages" / "plan.html"
    assert main(["plan", "rollout", "-f", written(tmp_path), "--page", str(page)]) == 0
    assert f"rljob: wrote {page}" in capsys.readouterr().err
    text = page.read_text()
    assert [name for name in ("policies", "unfinished", "sizes") if f'data-plot="{name}"' in text] == [
        "policies",
        "unfinished",
        "sizes",
    ]
    for name in ("adjacent", "interleaved + gears", "event rebalance"):
        assert f"<td>{name}</td>" in text
    assert "all seconds are modelled" in text
    assert "<script" not in text
    assert "default-src 'none'" in text


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "rollout", "-f", written(tmp_path), "--page", str(tmp_path)]) == 2
    assert "choose another file with --page" in capsys.readouterr().err


def test_a_batch_that_is_too_large_to_simulate_is_refused_with_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = written(tmp_path, {"trainer": {"globalBatchSize": 1 << 20}})
    assert main(["plan", "rollout", "-f", job]) == 2
    told = capsys.readouterr().err
    assert "8,388,608 responses a step; up to 131,072 can be simulated; lower trainer.globalBatchSize" in told
