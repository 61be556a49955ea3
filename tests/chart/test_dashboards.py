"""The chart's dashboards: Grafana's own types parse them, each panel has a description and queries existing metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.chart.helm import pick, render
from tests.monitoring.known import KNOWN
from tests.monitoring.pictures import DRAWN, IMAGES, digest, drawn_from
from tests.monitoring.questions import BOARDS, board_files, board_questions, names, panels

ON = ["--set", "metrics.dashboard.enabled=true"]
ADDED = {"titleFormat", "textFormat", "step", "tagKeys", "useValueForTime"}
"""Fields of annotations that Grafana's Prometheus data source reads and the schema does not contain."""
MOST_BYTES = 200_000
files = pytest.mark.parametrize("path", board_files(), ids=lambda path: path.stem)


def board(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def test_there_are_five_boards() -> None:
    assert [path.stem for path in board_files()] == ["fleet", "job", "npu", "operator", "rollout"]


@files
def test_grafanas_types_read_it_and_lose_nothing(path: Path) -> None:
    register_default_plugins()
    raw = board(path)
    for row in raw["annotations"]["list"]:
        for key in ADDED:
            del row[key]
    assert json.loads(JSONEncoder().encode(Dashboard.from_json(raw))) == raw


@files
def test_every_panel_has_a_unit_a_description_and_words_for_no_data(path: Path) -> None:
    for panel in panels(board(path)):
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"], panel["title"]
        assert len(panel["description"]) > 10, panel["title"]
        assert defaults["noValue"], panel["title"]
        assert panel["targets"], panel["title"]


@files
def test_the_panels_do_not_overlap(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    loaded = board(path)
    for panel in [*panels(loaded), *(panel for panel in loaded["panels"] if panel["type"] == "row")]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells


@files
def test_it_uses_the_variables_that_it_has(path: Path) -> None:
    loaded = board(path)
    has = {variable["name"] for variable in loaded["templating"]["list"]}
    text = json.dumps([loaded["panels"], loaded["annotations"], loaded["templating"]])
    used = set(re.findall(r"\$\{?([a-z]\w*)", text))
    assert used == has


@pytest.mark.parametrize("name", DRAWN)
def test_the_documentations_picture_is_of_this_board(name: str) -> None:
    drawn = drawn_from(IMAGES / f"board-{name}.svg")
    assert drawn == digest(BOARDS / f"{name}.json"), "run `make pictures` after a `make test`"


def test_the_boards_lead_to_each_other_with_the_same_job_and_time() -> None:
    for path in board_files():
        loaded = board(path)
        assert "rljob" in loaded["tags"]
        (link,) = loaded["links"]
        assert (link["type"], link["tags"], link["includeVars"], link["keepTime"]) == (
            "dashboards",
            ["rljob"],
            True,
            True,
        )
    assert {board(path)["uid"] for path in board_files()} == {f"rljob-{path.stem}" for path in board_files()}
    assert "/d/rljob-job?" in (board_files()[0]).read_text()


def test_the_boards_ask_for_series_that_exist() -> None:
    unknown = {
        question.place: name
        for question in board_questions()
        for name in names(question.expression)
        if not KNOWN.fullmatch(name)
    }
    assert unknown == {}
    asked = {name for question in board_questions() for name in names(question.expression)}
    assert asked >= {"rljob_score", "rljob_tokens_per_second", "rljob_cluster_idle_ratio", "rljob:pod:info"}


def test_the_chart_brings_each_board_in_a_config_map_of_its_own() -> None:
    manifests = render(*ON)
    for path in board_files():
        charted = pick(manifests, "ConfigMap", f"rljob-operator-dashboard-{path.stem}")
        assert charted["metadata"]["labels"]["grafana_dashboard"] == "1"
        (text,) = charted["data"].values()
        assert json.loads(text) == board(path)
        assert len(text.encode()) < MOST_BYTES
