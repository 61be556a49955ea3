"""The content of a report: of a real run, and of the same run with a lost node."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
import recorded

from rljob.cli.errors import UsageError
from rljob.cli.report.page import page
from rljob.cli.report.plots import timeline
from rljob.cli.report.run import ReportRun, Setting
from rljob.cli.report.write_report import write_report
from rljob.reading.records import Record
from rljob.reading.samples import Recorded
from rljob_runtime.contract import Sample, SampleSource

MADE = datetime(2026, 11, 22, 5, 0, tzinfo=UTC)
FOREIGN = re.compile(r"""(?:src|href|action)\s*=|url\(|@import|<script|<link|<img|<iframe""", re.IGNORECASE)
"""Elements that could send requests or run code."""


class Reader(HTMLParser):
    """Collects the figures' attributes, and all text outside of the style sheet."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.plots: dict[str, int] = {}
        self.text = ""
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        told = dict(attrs)
        if "data-plot" in told:
            self.plots[str(told["data-plot"])] = int(told["data-points"] or 0)

    def handle_data(self, data: str) -> None:
        self.text += f" {data}"


def read(run: ReportRun) -> Reader:
    return Reader(page(run, MADE))


def test_every_plot_has_a_point_for_each_step() -> None:
    plots = read(recorded.run()).plots
    assert tuple(plots) == recorded.DRAWN
    # Once for each line over the steps; stages by seven, which is the maximum of a step.
    assert {name: plots[name] for name in ("reward", "lengths", "tps", "idle", "entropy", "gradient")} == {
        "reward": 40,
        "lengths": 120,
        "tps": 120,
        "idle": 80,
        "entropy": 40,
        "gradient": 40,
    }
    assert plots["timeline"] == 40
    assert plots["stages"] >= 200
    assert plots["usage"] == 2


def test_it_shows_figures_configuration_and_decisions() -> None:
    text = read(replace(recorded.run(), device_time="goodput 67.0%, Start 33.0%")).text
    for told in (
        "device time of ended attempts",
        "default/quickstart",
        "Succeeded",
        "0.6195 → 0.9437",
        "trainer.learningRate",
        "1e-3",
        "optimizations.coreBinding",
        "class cpu has no devices to be near to",
        "Created 2026-11-22 05:00:00 UTC by rljob report; records from a volume.",
    ):
        assert told in text, told
    assert re.search(r"67%\s+goodput of the devices", text)


def test_it_needs_no_network_and_no_script() -> None:
    text = page(recorded.run(), MADE)
    assert not FOREIGN.search(text)
    assert "default-src 'none'" in text
    assert len(text) < 200_000


def test_a_lost_node_shows_on_the_steps_on_the_clock_and_in_the_table() -> None:
    run = recorded.restarted()
    text = page(run, MADE)
    assert [record.step for record in run.steps] == list(range(1, 41))
    assert "attempt 2 resumes at step 16: the previous attempt ended Lost (NodeLost)" in text
    assert text.count('class="mark"') >= 6
    spans = timeline(run).spans
    assert [(span.label, span.kind) for span in spans] == [("1", "bad"), ("2", "good")]
    assert spans[0].end < spans[1].begin
    assert timeline(run).points == 45
    assert "40%" in text


def test_what_a_run_says_is_text_and_never_markup() -> None:
    nasty = "<script>alert('x')</script><img src=x>"
    run = recorded.restarted()
    changed = ReportRun(
        **{
            **run.__dict__,
            "name": nasty,
            "message": nasty,
            "source": nasty,
            "notes": [nasty],
            "settings": [Setting(nasty, nasty, nasty)],
            "decisions": [Setting(nasty, nasty, nasty)],
        }
    )
    reader = read(changed)
    assert not {"script", "img"} & reader.tags
    assert reader.text.count(nasty) >= 9


def test_a_run_without_a_step_says_so_in_each_plot() -> None:
    run = ReportRun("team", "sums", "Starting", "", "a volume", [], [], notes=["There are no step records yet."])
    reader = read(run)
    assert set(reader.plots.values()) == {0}
    assert "There are no step records yet." in reader.text


def test_validations_before_the_training_are_dots_of_the_reward() -> None:
    run = recorded.run()
    checked = Record(1, 0, run.records[0].time - 5, {"rljob/validation/score/mean": 0.4})
    both = ReportRun(**{**run.__dict__, "records": [checked, *run.records]})
    assert page(both, MADE).count("<circle") == 1
    reader = read(both)
    assert reader.plots["reward"] == 41
    assert reader.plots["entropy"] == 40


def test_a_long_run_stays_below_two_megabytes() -> None:
    run = recorded.run()
    records = [
        Record(1 + number // 1000, number, run.records[0].time + 60.0 * number, run.records[number % 40].metrics)
        for number in range(1, 20_001)
    ]
    long = [
        Recorded(1, Sample(step, source, '"' * 4000, "&" * 4000, number / 64, tokens=4000))
        for source in SampleSource
        for step in range(0, 20_000, 2_500)
        for number in range(64)
    ]
    assert len(page(ReportRun(**{**run.__dict__, "records": records, "samples": long}), MADE)) < 2_000_000


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="choose another file with --output"):
        write_report(recorded.run(), tmp_path / "file" / "report.html")
