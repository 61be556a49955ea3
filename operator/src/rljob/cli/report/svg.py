"""Plots as SVG: lines or stacked bars over steps, spans over time, horizontal bars. Pure.

Written by hand, because plotting libraries bring what this page must not have (docs/design/0002): tens of megabytes to
install, scripts in the page, or colors that the page's light and dark style sheets cannot change. The attributes
`data-plot` and `data-points` state what a figure contains, so that a test can read it. Hovering shows values by
`<title>` elements, without any script.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760.0, 250.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 14.0, 22.0, 40.0
DOT = 4.0
"""Radius of a dot."""
MAX_POINTS = 240
"""Columns of a plot. Longer runs are averaged, which keeps the page small and every column a few pixels wide."""
COLOURS = 12
"""Classes c0 to c11 of the page's style sheet."""
TICKS = 5
BAR_HEIGHT = 20.0
BAR_GAP = 8.0


@dataclass(frozen=True)
class Series:
    """One line, or one layer of a stack; NaN leaves a gap."""

    label: str
    values: Sequence[float]
    """One value for each x position of the plot."""


@dataclass(frozen=True)
class Mark:
    """A position that a vertical line marks."""

    x: float
    text: str


@dataclass(frozen=True)
class Span:
    """A range of the x axis."""

    begin: float
    end: float
    label: str
    text: str
    kind: str
    """Class of the style sheet: good, bad, other."""


@dataclass(frozen=True)
class Plot:
    """The content of a plot."""

    name: str
    title: str
    note: str
    """One sentence that explains the metrics."""
    unit: str
    x: Sequence[float]
    x_label: str
    series: Sequence[Series]
    marks: Sequence[Mark] = ()
    spans: Sequence[Span] = ()
    stacked: bool = False
    x_unit: str = "step"
    dotted: frozenset[str] = frozenset()
    """Labels of series with few values: each is a dot, joined by a line."""

    @property
    def points(self) -> int:
        """Return the number of values that are numbers."""
        return sum(math.isfinite(value) for series in self.series for value in series.values)


@dataclass(frozen=True)
class Bar:
    """A horizontal stacked bar."""

    label: str
    parts: Sequence[tuple[str, float]]
    """Labels and amounts, in the order of the colors."""
    text: str


@dataclass(frozen=True)
class Frame:
    """Mapping of values to positions in the picture."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        """Return the horizontal position of a value."""
        return LEFT + (value - self.x_low) / (self.x_high - self.x_low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the vertical position of a value."""
        return HEIGHT - BOTTOM - (value - self.y_low) / (self.y_high - self.y_low) * (HEIGHT - TOP - BOTTOM)


def draw(plot: Plot) -> str:
    """Return the figure; a plot without any number shows a message instead of empty axes."""
    if not plot.points:
        return _figure(plot.name, 0, plot.title, plot.note, '<p class="empty">No data in the records of this run.</p>')
    shown = _averaged(plot)
    frame = _frame(shown)
    parts = [*_axes(frame, shown), *_spans(frame, shown), *_marks(frame, shown)]
    parts += _stack(frame, shown) if shown.stacked else _lines(frame, shown)
    parts += _hits(frame, shown)
    picture = _picture(f"{plot.title}, {plot.unit}, by {plot.x_label}", HEIGHT, parts)
    labels = [series.label for series in plot.series if any(map(math.isfinite, series.values))]
    colours = [index for index, series in enumerate(plot.series) if series.label in labels]
    return _figure(plot.name, plot.points, plot.title, plot.note, picture + _legend(labels, colours))


def draw_bars(name: str, title: str, note: str, unit: str, bars: Sequence[Bar], *, left: float = 110.0) -> str:
    """Return the figure of horizontal bars, whose labels have the width `left`."""
    high = max((math.fsum(amount for _, amount in bar.parts) for bar in bars), default=0.0)
    if not high > 0:
        return _figure(name, 0, title, note, '<p class="empty">No data in the records of this run.</p>')
    scale = (WIDTH - left - RIGHT - 190) / high
    rows = []
    for row, bar in enumerate(bars):
        y, x = BAR_GAP + row * (BAR_HEIGHT + BAR_GAP), left
        middle = y + BAR_HEIGHT / 2 + 4
        rows.append(
            f'<text class="tick" x="{left - 8:.0f}" y="{middle:.0f}" text-anchor="end">{escape(bar.label)}</text>'
        )
        for colour, (label, amount) in enumerate(bar.parts):
            tooltip = f"{bar.label}: {label} {number(amount)} {unit}"
            rows.append(
                f'<rect class="bar c{colour}" x="{x:.1f}" y="{y:.1f}" width="{amount * scale:.1f}"'
                f' height="{BAR_HEIGHT:.0f}"><title>{escape(tooltip)}</title></rect>'
            )
            x += amount * scale
        rows.append(f'<text class="tick" x="{x + 6:.1f}" y="{middle:.0f}">{escape(bar.text)}</text>')
    height = BAR_GAP + len(bars) * (BAR_HEIGHT + BAR_GAP)
    labels = [label for label, _ in bars[0].parts]
    picture = _picture(f"{title}, {unit}", height, rows) + _legend(labels, range(len(labels)))
    return _figure(name, sum(len(bar.parts) for bar in bars), title, note, picture)


def number(value: float) -> str:
    """Format a value for people."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def ticks(low: float, high: float, count: int = TICKS) -> list[float]:
    """Return about the given number of round values between two bounds."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    size = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / size - 1e-9)
    return [index * size for index in range(first, math.floor(high / size + 1e-9) + 1)]


def _averaged(plot: Plot) -> Plot:
    size = -(-len(plot.x) // MAX_POINTS)
    if size == 1:
        return plot
    groups = [slice(start, start + size) for start in range(0, len(plot.x), size)]
    series = [Series(s.label, [_mean(s.values[group]) for group in groups]) for s in plot.series]
    x = [plot.x[group][-1] for group in groups]
    return Plot(**{**plot.__dict__, "x": x, "series": series})


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return math.fsum(known) / len(known) if known else math.nan


def _totals(plot: Plot) -> list[float]:
    columns = zip(*(series.values for series in plot.series), strict=True)
    return [math.fsum(value for value in column if math.isfinite(value)) for column in columns]


def _frame(plot: Plot) -> Frame:
    known = [value for series in plot.series for value in series.values if math.isfinite(value)]
    high, low = max(_totals(plot) if plot.stacked else known), min(0.0, *known)
    # Time starts at zero, so that waiting is visible.
    edges = [*plot.x, *(edge for span in plot.spans for edge in (0.0, span.begin, span.end))]
    # A bar is centered on its step, and a single step needs a width too.
    margin = 0.5 if plot.stacked or min(edges) == max(edges) else 0.0
    top = high if high > low else low + 1.0
    return Frame(min(edges) - margin, max(edges) + margin, low, top + (top - low) * 0.05)


def _axes(frame: Frame, plot: Plot) -> Iterator[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for value in ticks(frame.y_low, frame.y_high):
        y = frame.y(value)
        yield f'<path class="grid" d="M{LEFT:.0f} {y:.1f}H{right:.0f}"/>'
        yield f'<text class="tick" x="{LEFT - 6:.0f}" y="{y + 4:.1f}" text-anchor="end">{number(value)}</text>'
    for value in ticks(frame.x_low, frame.x_high, 8):
        if plot.x_unit == "step" and value != int(value):
            continue
        x = frame.x(value)
        yield f'<path class="axis" d="M{x:.1f} {bottom:.0f}v4"/>'
        yield f'<text class="tick" x="{x:.1f}" y="{bottom + 16:.0f}" text-anchor="middle">{number(value)}</text>'
    yield f'<path class="axis" d="M{LEFT:.0f} {bottom:.0f}H{right:.0f}"/>'
    yield (
        f'<text class="label" x="{right:.0f}" y="{HEIGHT - 4:.0f}" text-anchor="end">{escape(plot.x_label)}</text>'
        f'<text class="label" x="2" y="11">{escape(plot.unit)}</text>'
    )


def _spans(frame: Frame, plot: Plot) -> Iterator[str]:
    height = HEIGHT - BOTTOM - TOP
    for span in plot.spans:
        x, width = frame.x(span.begin), max(1.0, frame.x(span.end) - frame.x(span.begin))
        yield (
            f'<rect class="span {span.kind}" x="{x:.1f}" y="{TOP:.0f}" width="{width:.1f}" height="{height:.0f}">'
            f"<title>{escape(span.text)}</title></rect>"
            f'<text class="tick" x="{x + 3:.1f}" y="{TOP + 12:.0f}">{escape(span.label)}</text>'
        )


def _marks(frame: Frame, plot: Plot) -> Iterator[str]:
    for mark in plot.marks:
        yield (
            f'<path class="mark" d="M{frame.x(mark.x):.1f} {TOP:.0f}V{HEIGHT - BOTTOM:.0f}">'
            f"<title>{escape(mark.text)}</title></path>"
        )


def _lines(frame: Frame, plot: Plot) -> Iterator[str]:
    for colour, series in enumerate(plot.series):
        if series.label in plot.dotted:
            yield from _dots(frame, plot, series, colour)
            continue
        path, before = "", False
        for x, value in zip(plot.x, series.values, strict=True):
            known = math.isfinite(value)
            if known:
                # A line of zero length is drawn as a dot by its round ends, so that a single value is visible.
                path += f"{'L' if before else 'M'}{frame.x(x):.1f} {frame.y(value):.1f}{'' if before else 'h0'}"
            before = known
        if path:
            yield f'<path class="line c{colour % COLOURS}" d="{path}"/>'


def _dots(frame: Frame, plot: Plot, series: Series, colour: int) -> Iterator[str]:
    places = [(frame.x(x), frame.y(v)) for x, v in zip(plot.x, series.values, strict=True) if math.isfinite(v)]
    if len(places) > 1:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        yield f'<path class="line thin c{colour % COLOURS}" d="M{path}"/>'
    for x, y in places:
        yield f'<circle class="bar c{colour % COLOURS}" cx="{x:.1f}" cy="{y:.1f}" r="{DOT:g}"/>'


def _stack(frame: Frame, plot: Plot) -> Iterator[str]:
    width = max(0.5, 0.9 * (WIDTH - LEFT - RIGHT) / max(1, len(plot.x)))
    base = [0.0] * len(plot.x)
    for colour, series in enumerate(plot.series):
        path = ""
        for index, value in enumerate(series.values):
            if not math.isfinite(value) or value <= 0:
                continue
            top, bottom = frame.y(base[index] + value), frame.y(base[index])
            left = frame.x(plot.x[index]) - width / 2
            path += f"M{left:.1f} {bottom:.1f}V{top:.1f}h{width:.1f}V{bottom:.1f}z"
            base[index] += value
        if path:
            yield f'<path class="bar c{colour % COLOURS}" d="{path}"/>'


def _hits(frame: Frame, plot: Plot) -> Iterator[str]:
    """Return a column over each position that shows its values on hover. Spans have their own."""
    if plot.spans:
        return
    width = (WIDTH - LEFT - RIGHT) / max(1, len(plot.x))
    height = HEIGHT - BOTTOM - TOP
    for index, x in enumerate(plot.x):
        known = [(series.label, series.values[index]) for series in plot.series]
        text = "\n".join(f"{label}: {number(value)} {plot.unit}" for label, value in known if math.isfinite(value))
        if text:
            yield (
                f'<rect class="hit" x="{frame.x(x) - width / 2:.1f}" y="{TOP:.0f}" width="{width:.1f}"'
                f' height="{height:.0f}"><title>{escape(f"{plot.x_unit} {number(x)}")}\n{escape(text)}</title></rect>'
            )


def _picture(label: str, height: float, parts: Sequence[str]) -> str:
    body = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{escape(label)}">{body}</svg>'


def _legend(labels: Sequence[str], colours: Sequence[int]) -> str:
    if len(labels) < 2:
        return ""
    items = "".join(
        f'<li><i class="c{colour % COLOURS}"></i>{escape(label)}</li>'
        for label, colour in zip(labels, colours, strict=True)
    )
    return f'<ul class="legend">{items}</ul>'


def _figure(name: str, points: int, title: str, note: str, body: str) -> str:
    return (
        f'<figure data-plot="{escape(name)}" data-points="{points}"><figcaption><h2>{escape(title)}</h2>'
        f"<p>{escape(note)}</p></figcaption>{body}</figure>\n"
    )
