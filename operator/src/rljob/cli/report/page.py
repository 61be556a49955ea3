"""The report as one HTML file without scripts and network access, light or dark as the reader's system is. Pure.

All text of a run is escaped, and the page's content security policy forbids scripts and requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape

from rljob.cli.report import answers, plots
from rljob.cli.report.run import Attempt, ReportRun, Setting
from rljob.cli.report.svg import number
from rljob.reading import figures, records

PALETTE = (
    ("#0072b2", "#56a8e0"),
    ("#d55e00", "#f08a4b"),
    ("#009e73", "#3ecfa3"),
    ("#b0508c", "#e08fc0"),
    ("#a07800", "#e6c04d"),
    ("#4b4bc8", "#9a9aff"),
    ("#7a5230", "#c79a6b"),
    ("#5b6770", "#a9b6bf"),
    ("#a31f34", "#ff8090"),
    ("#2f7d32", "#8bd48e"),
    ("#00838f", "#5fd3de"),
    ("#8e8e00", "#d9d960"),
)
"""Colors c0 to c11, light and dark. The first five are by Okabe and Ito and distinguishable for color-blind readers
(https://jfly.uni-koeln.de/color/)."""
EVALUATION_HEAD = ("step", "state", "mean score", "RLJob", "message")
ATTEMPT_HEAD = ("attempt", "begin", "end", "outcome", "resumed from", "last step", "where", "message")
_NUMBER = ' class="n"'
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
:root{color-scheme:light dark;--page:#fff;--ink:#1b1f24;--soft:#57606a;--line:#d8dee4;--card:#f6f8fa;--hover:#0000000d;
--good:#009e7326;--bad:#d5000026;--other:#a0780026;LIGHT}
@media(prefers-color-scheme:dark){:root{--page:#0d1117;--ink:#e6edf3;--soft:#9aa4af;--line:#30363d;--card:#161b22;
--hover:#ffffff14;DARK}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem;max-width:1640px;background:var(--page);color:var(--ink);
font:15px/1.45 system-ui,"Liberation Sans","DejaVu Sans",sans-serif}
h1{font-size:1.6rem;margin:0}h2{font-size:1.05rem;margin:0}
header p,figcaption p,footer,.tile span{color:var(--soft)}
header p{margin:.3rem 0}figcaption p{margin:.1rem 0 .4rem;font-size:.85rem}
.state{font-size:.9rem;font-weight:600;padding:.15rem .6rem;border-radius:1rem;background:var(--other);margin-left:.6rem
;vertical-align:middle}.state.good{background:var(--good)}.state.bad{background:var(--bad)}
.tiles{display:flex;flex-wrap:wrap;gap:.7rem;margin:1rem 0}
.tile{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.5rem .9rem}
.tile b{display:block;font-size:1.25rem}.tile span{font-size:.8rem}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,560px),1fr));gap:1rem}
figure{margin:0;padding:.9rem;border:1px solid var(--line);border-radius:.5rem;min-width:0}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font-size:13px;fill:var(--soft)}
.grid{stroke:var(--line);stroke-width:.6}.axis{stroke:var(--soft);stroke-width:.8}
.mark{stroke:var(--ink);stroke-width:1;stroke-dasharray:4 3;opacity:.6}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.line.thin{stroke-width:.8;opacity:.6}
.hit{fill:transparent}.hit:hover{fill:var(--hover)}
.span.good{fill:var(--good)}.span.bad{fill:var(--bad)}.span.other{fill:var(--other)}
.legend{list-style:none;margin:.3rem 0 0;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.85rem}
.legend i{display:inline-block;width:.8rem;height:.8rem;border-radius:.15rem;margin-right:.35rem;vertical-align:-.05rem}
.empty{color:var(--soft);font-style:italic}
section{margin-top:1.6rem}.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.85rem;margin:.5rem 0}
th,td{text-align:left;vertical-align:top;padding:.25rem .9rem .25rem 0;border-bottom:1px solid var(--line);
overflow-wrap:anywhere}
td.n{text-align:right;font-variant-numeric:tabular-nums;overflow-wrap:normal}
th{color:var(--soft);font-weight:600;white-space:nowrap}
.answer{border-left:3px solid var(--line);padding-left:.7rem;margin:.6rem 0;font-size:.85rem}
.answer p{margin:0;font-weight:600;white-space:pre-wrap}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem .8rem;margin:.1rem 0}dt{color:var(--soft)}
dd{margin:0;min-width:0;white-space:pre-wrap;overflow-wrap:anywhere;font-family:ui-monospace,monospace}
details details{margin-left:1rem}summary{cursor:pointer}footer{margin-top:2rem;font-size:.8rem}
"""


def page(run: ReportRun, made: datetime) -> str:
    """Return the whole file."""
    title = f"{run.namespace}/{run.name}"
    body = "".join(
        [
            _header(run, title),
            f'<main><div class="plots">{"".join(plots.figures(run))}</div>',
            *_sections(run),
            "</main>",
            f"<footer>Created {_time(made.timestamp())} by rljob report; records from {escape(run.source)}.</footer>",
        ]
    )
    return document(f"{title} - RLJob report", body)


def document(title: str, body: str) -> str:
    """Return an HTML file without scripts and network access; the body is HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_style()}</style></head>\n<body>{body}</body></html>\n"
    )


def _style() -> str:
    light, dark = ("".join(f"--c{index}:{pair[side]};" for index, pair in enumerate(PALETTE)) for side in (0, 1))
    rules = "".join(
        f".line.c{index}{{stroke:var(--c{index})}}.bar.c{index}{{fill:var(--c{index})}}"
        f"i.c{index}{{background:var(--c{index})}}"
        for index in range(len(PALETTE))
    )
    return STYLE.replace("LIGHT", light).replace("DARK", dark) + rules


def _header(run: ReportRun, title: str) -> str:
    kind = {"Succeeded": "good", "Training": "good", "running": "good", "Failed": "bad", "Invalid": "bad"}
    state = f'<span class="state {kind.get(run.state, "other")}">{escape(run.state)}</span>'
    facts = ", ".join(escape(fact) for fact in _facts(run))
    message = f"<p>{escape(run.message)}</p>" if run.message else ""
    notes = "".join(f"<p>{escape(note)}</p>" for note in run.notes)
    tiles = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(label)}</span></div>' for label, value in _tiles(run)
    )
    return (
        f"<header><h1>{escape(title)}{state}</h1><p>{facts}</p>{message}{notes}"
        f'<div class="tiles">{tiles}</div></header>'
    )


def _facts(run: ReportRun) -> Iterator[str]:
    chosen = {setting.field: setting.value for setting in run.settings}
    for label, field in (("", "algorithm.name"), ("model ", "model.path"), ("class ", "accelerator.class")):
        if field in chosen:
            yield f"{label}{chosen[field]}"
    if run.devices:
        yield figures.count(run.devices, "device")
    if math.isfinite(run.created):
        yield f"made {_time(run.created)}"


def _tiles(run: ReportRun) -> Iterator[tuple[str, str]]:
    steps = records.figures(run.records)
    if steps:
        rows = {row[0]: row for row in records.figure_table(steps)}
        yield "last step", str(steps[-1].number)
        yield "reward, first five and last five steps", f"{rows['reward'][1]} → {rows['reward'][2]}"
        for name, label in (
            ("TPS per card", "tokens/s per card, median"),
            ("step time", "s per step, median"),
            ("DP idle, cluster", "of the rollout idle, median"),
        ):
            yield label, rows[name][3]
    if run.attempts:
        yield "attempts", str(run.attempts[-1].number)
    if run.held_seconds > 0:
        yield "device-hours held", number(run.held_seconds / plots.SECONDS_AN_HOUR)
        yield "goodput of the devices", f"{run.productive_seconds / run.held_seconds:.0%}"
    if run.device_time:
        yield "device time of ended attempts", run.device_time


def _sections(run: ReportRun) -> Iterator[str]:
    if steps := records.figures(run.records):
        head, *rows = records.figure_table(steps)
        yield section("Figures", table(head, rows, numbers=(1, 2, 3)))
    if run.samples:
        yield section("Answers of the model", answers.tables(run.samples))
    if run.attempts:
        attempts = [_attempt(attempt) for attempt in run.attempts]
        yield section("Attempts", table(ATTEMPT_HEAD, attempts, numbers=(0, 4, 5)))
    if lost := [_recovery(attempt) for attempt in run.attempts if attempt.recovery]:
        yield section("Lost to recovery", table(("before attempt", "seconds", "by cause"), lost, numbers=(0, 1)))
    if run.evaluations:
        yield section("Evaluations", table(EVALUATION_HEAD, run.evaluations, numbers=(0, 2)))
    if run.decisions:
        decided = [(d.field, d.value, d.source) for d in run.decisions]
        yield section("Decisions for the job", table(("field", "value", "why"), decided))
    if run.settings:
        own, defaults = ([s for s in run.settings if bool(s.source) is set_] for set_ in (True, False))
        body = _settings(own)
        if defaults:
            body += f"<details><summary>{len(defaults)} defaults</summary>{_settings(defaults)}</details>"
        yield section("Configuration", body)


def _settings(settings: Sequence[Setting]) -> str:
    return table(("field", "value", "from"), [(s.field, s.value, s.source or "default") for s in settings])


def _recovery(attempt: Attempt) -> tuple[str, ...]:
    listed = ", ".join(f"{cause} {seconds} s" for cause, seconds in attempt.recovery)
    return str(attempt.number), str(sum(seconds for _, seconds in attempt.recovery)), listed


def _attempt(attempt: Attempt) -> tuple[str, ...]:
    reason = f" ({attempt.reason})" if attempt.reason else ""
    return (
        str(attempt.number),
        _time(attempt.begin),
        _time(attempt.end),
        f"{attempt.outcome or 'unknown'}{reason}",
        str(attempt.resumed_from or "-"),
        str(attempt.last_step),
        attempt.place,
        attempt.message,
    )


def section(title: str, body: str) -> str:
    """Return a section with a heading; the body is HTML."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a table; the columns of `numbers` are aligned to the right."""
    heads = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    lines = "".join(
        "<tr>"
        + "".join(f"<td{_NUMBER if index in numbers else ''}>{escape(cell)}</td>" for index, cell in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>'


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if math.isfinite(seconds) else "-"
