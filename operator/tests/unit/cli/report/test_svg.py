"""Plots as SVG text: what is drawn where, and what is left out."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest

from rljob.cli.report.svg import MAX_POINTS, Bar, Mark, Plot, Series, Span, draw, draw_bars, number, ticks

NAN = math.nan


def plot(*series: Series, x: list[float] | None = None, **fields: object) -> Plot:
    places = [float(index + 1) for index in range(len(series[0].values))] if x is None else x
    made = Plot("name", "Title", "Note.", "s", places, "step", series)
    return Plot(**{**made.__dict__, **fields})


def figure(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - our own text


def paths(text: str, kind: str) -> list[str]:
    return re.findall(rf'class="{kind} c\d+" d="([^"]*)"', text)


def test_a_figure_says_what_it_holds() -> None:
    drawn = figure(draw(plot(Series("a", [1, NAN, 3]), Series("b", [NAN, NAN, 2]))))
    assert (drawn.get("data-plot"), drawn.get("data-points")) == ("name", "3")
    assert [item.text or item[0].tail for item in drawn.iter("li")] == ["a", "b"]


def test_a_gap_breaks_the_line_and_a_lone_value_is_a_dot() -> None:
    (path,) = paths(draw(plot(Series("a", [1, 2, NAN, 4]))), "line")
    assert [part[0] for part in re.findall("[MLh][^MLh]*", path)] == ["M", "h", "L", "M", "h"]


def test_nothing_to_draw_is_said_and_has_no_axes() -> None:
    drawn = figure(draw(plot(Series("a", [NAN, math.inf]))))
    assert drawn.get("data-points") == "0"
    assert "No data" in "".join(drawn.itertext())
    assert drawn.find("svg") is None


def test_layers_of_a_stack_stand_on_each_other() -> None:
    lower, upper = paths(draw(plot(Series("a", [1.0]), Series("b", [2.0]), stacked=True)), "bar")
    top_of_lower = re.findall(r"V([\d.]+)h", lower)[0]
    bottom_of_upper = re.findall(r"V([\d.]+)z", upper)[0]
    assert top_of_lower == bottom_of_upper


def test_hovering_shows_the_figures_of_the_step() -> None:
    (title,) = figure(draw(plot(Series("a", [0.5]), Series("b", [NAN])))).iter("title")
    assert title.text == "step 1\na: 0.5 s"


def test_text_of_a_run_is_text() -> None:
    nasty = "<script>alert(1)</script>\"'&"
    span = Span(0, 1, nasty, nasty, "good")
    drawn = draw(plot(Series(nasty, [1, 2]), Series("b", [1, 2]), marks=[Mark(1, nasty)], spans=[span], title=nasty))
    bars = draw_bars("usage", nasty, nasty, "h", [Bar(nasty, [(nasty, 1.0)], nasty)])
    for text in (drawn, bars):
        assert "<script" not in text
        assert nasty in "".join(figure(text).itertext())


def test_a_long_run_is_averaged_into_few_columns() -> None:
    drawn = draw(plot(Series("a", [float(step % 2) for step in range(100_000)])))
    assert drawn.count('class="hit"') <= MAX_POINTS
    assert len(drawn) < 100_000
    assert 'data-points="100000"' in drawn


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0, 8.9, [0, 2, 4, 6, 8]),
        (-2, 3, [-2, -1, 0, 1, 2, 3]),
        (0, 1e-7, [0, 2e-8, 4e-8, 6e-8, 8e-8, 1e-7]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_one_step_alone_and_one_value_over_and_over_have_axes_too() -> None:
    for values in ([0.0], [5.0], [-1.0, -1.0]):
        places = re.findall(r"[MLHV](-?[\d.]+)", draw(plot(Series("a", values))))
        assert all(math.isfinite(float(place)) for place in places)


def test_numbers_are_short() -> None:
    assert [number(value) for value in (NAN, 0.123456, 12.0, 123456.7)] == ["-", "0.1235", "12", "123,457"]


def test_bars_share_one_scale_and_none_is_drawn_of_nothing() -> None:
    parts = [("kept", 1.0), ("rest", 3.0)]
    text = draw_bars(
        "usage", "Usage", "n", "h", [Bar("1", parts, "4 h"), Bar("all", [("kept", 2.0), ("rest", 0.0)], "2")]
    )
    widths = [float(rect.get("width", "nan")) for rect in figure(text).iter("rect")]
    assert widths[1] == pytest.approx(3 * widths[0], abs=0.2)
    assert widths[2] == pytest.approx(2 * widths[0], abs=0.2)
    assert 'data-points="0"' in draw_bars("usage", "Usage", "n", "h", [])
