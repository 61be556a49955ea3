"""`rljob samples` and the report's section, from the folder of a local run."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import recorded

from rljob.cli.main import main
from rljob.reading.samples import READ_SAMPLES, files, newest_attempts, of_step, parse_samples, spread
from rljob_runtime.contract import JobConfig, Platform, SampleSource


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a local run with two attempts, the second of which repeated step 20."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / ".rljob" / "sums"
    for number in (1, 2):
        (root / "spool" / f"attempt-{number}").mkdir(parents=True)
    recorded.write_samples(root / "spool" / "attempt-1")
    folder = root / "spool" / "attempt-2" / "samples"
    folder.mkdir()
    first = root / "spool" / "attempt-1" / "samples" / "000000020-rollout.jsonl"
    (folder / first.name).write_text(first.read_text().replace('"8"', '"again"'))
    (folder / "notes.txt").write_text("nothing to do with it")
    config = JobConfig(1, "default", "sums", "uid", "local", 1, Platform.CPU, 1, 2, 1, 40, {})
    (root / "job.json").write_bytes(config.to_json())
    return root


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["samples", "sums", "--local", *words]) == 0
    return capsys.readouterr().out


def test_the_newest_step_is_shown_as_the_last_attempt_recorded_it(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys)
    assert text.startswith("step 20  score 1  acc True  1 tokens\n  prompt  4+4=\n  answer  again\n\nstep 20  no score")
    assert "What is" not in text
    (root / "spool/attempt-2/samples/000000020-rollout.jsonl").unlink()
    assert "  answer  8\n" in shown(capsys)


@pytest.mark.usefixtures("root")
def test_one_answer_is_shown_in_full_and_several_are_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--step", "1")
    assert [line.split()[3] for line in text.splitlines() if line.startswith("step 1 ")] == ["1", "0.5", "0"]
    assert "[... 8400 characters are left out ...]" in text
    assert "5\\u001b[31m" in text
    assert "6" * 9000 in shown(capsys, "--step", "1", "--longest")
    assert "5\\u001b[31m" in shown(capsys, "--step", "1", "--worst")
    assert "<b>2</b>" in shown(capsys, "--step", "1", "--best")
    assert "  answer  14\n" in shown(capsys, "--validation")


@pytest.mark.usefixtures("root")
def test_programs_get_everything(capsys: pytest.CaptureFixture[str]) -> None:
    (page,) = [json.loads(shown(capsys, "--step", "1", "-o", "json"))]
    assert (page["job"], [row["score"] for row in page["samples"]]) == ("sums", [1.0, 0.5, 0.0])
    assert page["samples"][2]["answer"] == "5\x1b[31m"
    rows = list(csv.DictReader(shown(capsys, "--step", "1", "-o", "csv").splitlines()))
    assert [row["tokens"] for row in rows] == ["8", "9000", "6"]


def test_a_step_that_is_not_recorded_names_those_that_are(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["samples", "sums", "--local", "--step", "7"]) == 2
    assert "no answer of step 7 is recorded; recorded steps are 1, 20; observability.samples" in capsys.readouterr().err
    for path in root.glob("spool/*/samples/*validation*"):
        path.unlink()
    assert main(["samples", "sums", "--local", "--validation"]) == 2
    assert "no answer of a validation is recorded yet" in capsys.readouterr().err
    for path in root.glob("spool/*/samples/*.jsonl"):
        path.unlink()
    assert main(["samples", "sums", "--local"]) == 2


@pytest.mark.usefixtures("root")
def test_the_report_has_answers_without_markup_of_theirs() -> None:
    assert main(["report", "sums", "--local"]) == 0
    text = Path("report.html").read_text()
    assert "<h2>Answers of the model</h2>" in text
    assert "&lt;b&gt;2&lt;/b&gt;" in text
    assert "<b>2</b>" not in text
    assert "<summary>What is 7+7?</summary>" in text
    parts = [part.partition("</summary>")[0] for part in text.split("<summary>")[1:]]
    assert parts[:4] == ["Best", "Worst", "Longest", "The same prompt over the run"]
    assert {"Step 1, rollout", "Step 1, validation", "Step 20, rollout"} <= set(parts)


def test_files_are_chosen_by_step_and_spread_over_the_run() -> None:
    names = [f"sums-0a1b2-1/attempt-{1 + step // 50}/samples/{step:09d}-rollout.jsonl" for step in range(1, 101)]
    found = files([*names, "attempt-1/samples/000000100-validation.jsonl", "attempt-x/samples/000000001-rollout.jsonl"])
    assert len(found) == 101
    assert [each.step for each in of_step(found, None, None)] == [100]
    assert of_step(found, None, None)[0].source is SampleSource.ROLLOUT
    assert of_step(found, 100, SampleSource.VALIDATION)[0].attempt == 1
    assert [each.step for each in spread(found, 4)] == [1, 34, 67, 100, 100]
    with pytest.raises(LookupError, match=r"recorded steps are 1, ..., 89, 90"):
        of_step(found, 500, None)


def test_a_listing_with_anything_else_in_it_is_read_as_far_as_it_is_one() -> None:
    line = '{"step": 3, "source": "rollout", "prompt": "p", "answer": "==> a"}'
    text = f"junk\n==> attempt-1/samples/x\n{line}\n==> attempt-2/samples/000000003-rollout.jsonl\n{line}\n[1]\n"
    text += f"\n==> attempt-1/samples/000000003-rollout.jsonl\n{line}\n"
    found = parse_samples(text)
    assert [each.attempt for each in found] == [2, 1]
    assert [each.attempt for each in newest_attempts(found)] == [2]
    assert "$*" in READ_SAMPLES
