"""Draw the chart's dashboards from the data of a run, as SVG for the documentation.

    python -m tests.monitoring.pictures build/e2e

draws the run that `make test` watched last (`tests.e2e.shared`) into docs/images, as `make pictures` does. The pictures
are our own drawing of the boards' queries, not Grafana's. Each one names the board that it was drawn from by a digest,
so that a test finds a picture that is older than its board.
"""

from __future__ import annotations

import hashlib
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from html import escape
from pathlib import Path

from rljob.cli.report.page import PALETTE
from rljob.cli.report.svg import ticks
from tests.e2e.shared import NAME, SCRAPE_SECONDS, variables, watched_earlier
from tests.monitoring.boards import Board, Line, Panel, look, written
from tests.monitoring.prometheus import ROOT, Prometheus
from tests.monitoring.questions import Time, board_files

IMAGES = ROOT / "docs" / "images"
DRAWN = ("fleet", "job", "operator", "rollout")
"""Boards with pictures; that of npu-exporter needs NPUs."""
COLUMN, ROW, GAP = 52.0, 26.0, 6.0
"""Size of a cell of Grafana's grid, and distance between panels, in pixels."""
HEAD = 58.0
TITLE, FOOT, AXIS = 22.0, 34.0, 54.0
COLOURS = tuple(light for light, _ in PALETTE)
MAX_LINES = 8
"""Legends shown of a panel; the others are counted."""
LETTER = 5.9
"""Width of a letter of the legend."""
NOTE = (
    "Drawn by tests/monitoring/pictures.py from the queries of this board and the Prometheus data of a run of the "
    "quickstart. Grafana draws it in its own style."
)
STYLE = (
    "text{font:11px system-ui,'Liberation Sans','DejaVu Sans',sans-serif;fill:#57606a}"
    ".t{font-weight:600;fill:#1b1f24}.h{font-size:17px;font-weight:600;fill:#1b1f24}.v{font-size:21px;fill:#1b1f24}"
    ".p{fill:#fff;stroke:#d8dee4}.g{stroke:#e4e8ec;stroke-width:.7}.l{fill:none;stroke-width:1.5;stroke-linejoin:round;"
    "stroke-linecap:round}.e{font-style:italic}"
)


def digest(board: Path) -> str:
    """Return what names a board in its picture."""
    return hashlib.sha256(board.read_bytes()).hexdigest()[:16]


def drawn_from(picture: Path) -> str:
    """Return the digest of the board that a picture was drawn from."""
    found = re.search(r"<metadata>board ([0-9a-f]+)</metadata>", picture.read_text())
    return found[1] if found else ""


def write(prometheus: Prometheus, folder: Path, variables: Mapping[str, str], time: Time) -> list[Path]:
    """Draw the boards into a folder."""
    paths = []
    for file in board_files():
        if file.stem in DRAWN:
            paths.append(folder / f"board-{file.stem}.svg")
            paths[-1].write_text(draw(look(prometheus, file, variables, time), digest(file), time))
    return paths


def draw(board: Board, name: str, time: Time) -> str:
    """Return a board as SVG."""
    width = 24 * COLUMN + GAP
    height = HEAD + max(panel.place["y"] + panel.place["h"] for panel in board.panels) * ROW + GAP
    body = [
        f'<text class="h" x="{GAP + 4:.0f}" y="24">{escape(board.title)}</text>',
        f'<text x="{GAP + 4:.0f}" y="44">{NOTE}</text>',
    ]
    body += [
        f'<text class="t" x="{GAP + 4:.0f}" y="{HEAD + (y + 0.7) * ROW:.0f}">▾ {escape(title)}</text>'
        for title, y in board.rows
    ]
    for panel in board.panels:
        body.extend(_panel(panel, time))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">'
        f"<metadata>board {name}</metadata><style>{STYLE}</style>"
        f'<rect width="100%" height="100%" fill="#f6f8fa"/>{"".join(body)}</svg>\n'
    )


def _panel(panel: Panel, time: Time) -> Iterator[str]:
    x, y = GAP + panel.place["x"] * COLUMN, HEAD + panel.place["y"] * ROW
    width, height = panel.place["w"] * COLUMN - GAP, panel.place["h"] * ROW - GAP
    yield f'<g transform="translate({x:.0f} {y:.0f})">'
    yield f'<rect class="p" width="{width:.0f}" height="{height:.0f}" rx="4"/>'
    yield f'<text class="t" x="8" y="15">{escape(panel.title)}</text>'
    if panel.empty:
        yield from _words(panel.no_value, width, height)
    elif panel.kind == "stat":
        (line, *_) = panel.lines
        yield f'<text class="v" x="8" y="{height - 14:.0f}">{escape(written(line.last, panel.unit))}</text>'
    elif panel.kind == "table":
        yield from _table(panel, width)
    elif panel.kind == "timeseries":
        yield from _curves(panel, width, height, time)
    else:
        yield from _bands(panel, width, height, time)
    yield "</g>"


def _words(text: str, width: float, height: float) -> Iterator[str]:
    """Return the text for no data, in as many lines as the panel's width needs."""
    rows, row = [], ""
    for word in text.split():
        if row and len(row) + len(word) > (width - 16) / LETTER:
            rows.append(row)
            row = ""
        row = f"{row} {word}".strip()
    rows.append(row)
    for index, line in enumerate(rows):
        yield f'<text class="e" x="8" y="{max(34, height / 2) + 14 * index:.0f}">{escape(line)}</text>'


def _table(panel: Panel, width: float) -> Iterator[str]:
    step = (width - 16) / len(panel.columns)
    for row, cells in enumerate((panel.columns, *panel.cells)):
        for column, text in enumerate(cells):
            kind = "" if row else ' class="t"'
            yield f'<text{kind} x="{8 + column * step:.0f}" y="{38 + 18 * row}">{escape(text)}</text>'


def _curves(panel: Panel, width: float, height: float, time: Time) -> Iterator[str]:
    lines, base = list(panel.lines), dict[float, float]()
    if panel.stacked:
        stacked = []
        for line in lines:
            samples = {moment: value + base.get(moment, 0.0) for moment, value in line.samples.items()}
            base.update(samples)
            stacked.append(Line(line.legend, line.query, samples))
        lines = stacked
    values = [value for line in lines for value in line.samples.values()]
    low = min(values) if panel.low is None else min(panel.low, *values)
    high = max(values) if panel.high is None else panel.high
    if high <= low:
        low, high = min(low, 0.0), max(high, 0.0) or low + 1.0
    top, bottom, right = TITLE + 6, height - FOOT, width - 8

    def at_x(moment: float) -> float:
        return AXIS + (moment - time.begin) / (time.end - time.begin) * (right - AXIS)

    def at_y(value: float) -> float:
        return bottom - (value - low) / (high - low) * (bottom - top)

    for value in ticks(low, high, 4):
        y = at_y(value)
        yield f'<path class="g" d="M{AXIS:.0f} {y:.1f}H{right:.0f}"/>'
        yield f'<text x="{AXIS - 5:.0f}" y="{y + 4:.1f}" text-anchor="end">{escape(written(value, panel.unit))}</text>'
    yield from _clock(time, at_x, bottom)
    for number, line in enumerate(lines):
        path, before = "", -math.inf
        for moment, value in sorted(line.samples.items()):
            # A gap in the data is a gap in the line.
            joined = moment - before <= 1.5 * time.step_seconds
            path += f"{'L' if joined else 'M'}{at_x(moment):.1f} {at_y(value):.1f}{'' if joined else 'h0'}"
            before = moment
        yield f'<path class="l" stroke="{COLOURS[number % len(COLOURS)]}" d="{path}"/>'
    yield from _legends(panel, width, height)


def _legends(panel: Panel, width: float, height: float) -> Iterator[str]:
    x = 8.0
    for number, line in enumerate(panel.lines):
        text = line.legend
        rest = len(panel.lines) - number
        if number == MAX_LINES or x + 16 + LETTER * len(text) > width - 60 * (rest > 1):
            yield f'<text x="{x:.0f}" y="{height - 6:.0f}">and {rest} more</text>'
            return
        yield f'<rect x="{x:.0f}" y="{height - 15:.0f}" width="9" height="9" fill="{COLOURS[number % len(COLOURS)]}"/>'
        yield f'<text x="{x + 13:.0f}" y="{height - 6:.0f}">{escape(text)}</text>'
        x += 26 + LETTER * len(text)


def _bands(panel: Panel, width: float, height: float, time: Time) -> Iterator[str]:
    """Return a band for each line, darker where its value is higher."""
    top, left, right = TITLE + 6, 110.0, width - 8
    each = (height - FOOT - top) / len(panel.lines)
    most = max(value for line in panel.lines for value in line.samples.values()) or 1.0

    def at_x(moment: float) -> float:
        return left + (moment - time.begin) / (time.end - time.begin) * (right - left)

    for number, line in enumerate(panel.lines):
        y = top + number * each
        yield f'<text x="{left - 6:.0f}" y="{y + each / 2 + 4:.0f}" text-anchor="end">{escape(line.legend)}</text>'
        for begin, end, value in _runs(line, time):
            yield (
                f'<rect x="{at_x(begin):.1f}" y="{y:.1f}" width="{max(0.5, at_x(end) - at_x(begin)):.1f}"'
                f' height="{0.9 * each:.1f}" fill="{COLOURS[0]}" fill-opacity="{value / most:.2f}"/>'
            )
    yield from _clock(time, at_x, height - FOOT)


def _runs(line: Line, time: Time) -> Iterator[tuple[float, float, float]]:
    """Return the ranges of time with one value, except zero."""
    begin = end = value = math.nan
    for moment, now in sorted(line.samples.items()):
        if now == value and moment - end <= 0.5 * time.step_seconds:
            end = moment + time.step_seconds
            continue
        if value > 0:
            yield begin, end, value
        begin, end, value = moment, moment + time.step_seconds, now
    if value > 0:
        yield begin, min(end, time.end), value


def _clock(time: Time, at_x: Callable[[float], float], bottom: float) -> Iterator[str]:
    for minutes in ticks(0.0, (time.end - time.begin) / 60, 6):
        x = at_x(time.begin + 60 * minutes)
        yield f'<text x="{x:.0f}" y="{bottom + 13:.0f}" text-anchor="middle">{minutes:g} min</text>'


def main() -> None:
    """Draw the boards of a run whose data is kept in the folder that is named."""
    with watched_earlier(Path(sys.argv[1])) as (prometheus, seen):
        # A table shows the end of the range, at which the job should still train.
        query = f'max(rljob_phase{{phase="Training",rljob="{NAME}"}}) == 1'
        training = prometheus.over(query, seen.begin, seen.end, SCRAPE_SECONDS)
        end = max(training[0].samples) - 10 * SCRAPE_SECONDS
        step = max(2.0 * SCRAPE_SECONDS, (end - seen.begin) // 90)
        for path in write(prometheus, IMAGES, variables(seen), Time(seen.begin, end, step)):
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
