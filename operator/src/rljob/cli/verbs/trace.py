"""`rljob trace`: a run as a timeline of spans."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rljob.cli import output
from rljob.cli.arguments import Commands, Parser, job_command
from rljob.cli.errors import UsageError
from rljob.cli.verbs.report import add_sources, gather

if TYPE_CHECKING:
    from rljob.cli.report.trace import Span

TRACES = "/v1/traces"
SEND_SECONDS = 60.0
AT_ONCE = 2000
"""Spans of a request: about half a megabyte. Collectors refuse bodies of more than some megabytes."""
ANSWER_BYTES = 2000


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = job_command(
        commands,
        "trace",
        "write a run as spans, with attempts, steps and their stages, for Perfetto; or send them to a collector",
        _trace,
        reads_spec=True,
        examples=(
            ("trace sums", "write trace.json, which https://ui.perfetto.dev opens"),
            ("trace sums --otlp http://localhost:4318", "send the spans to an OpenTelemetry collector"),
        ),
    )
    made.add_argument("-o", "--output", default="trace.json", metavar="FILE", help="file to write; default: trace.json")
    made.add_argument("--otlp", metavar="URL", help="send the spans to this OTLP/HTTP endpoint, and write no file")
    add_sources(made)


def _trace(chosen: argparse.Namespace) -> int:
    from rljob.cli.report.run import Wanted
    from rljob.cli.report.trace import perfetto, spans
    from rljob.cli.report.write_report import write_page

    if chosen.output in output.FORMS:
        raise UsageError(f"--output {chosen.output}: a trace is a file; name one, such as trace.json")
    run = gather(chosen, Wanted())
    found = spans(run, time.time())
    if not found:
        raise UsageError(f"{chosen.name}: no attempt is recorded yet ({run.source}); wait until it trains")
    if chosen.otlp is not None:
        _send(found, run.namespace, chosen.otlp)
        print(f"{len(found)} spans sent to {chosen.otlp}")
        return 0
    write_page(Path(chosen.output), json.dumps(perfetto(found), ensure_ascii=False), "--output")
    print(f"{chosen.output} ({len(found)} spans; open it in https://ui.perfetto.dev)")
    return 0


def _send(found: list[Span], namespace: str, url: str) -> None:
    from rljob.cli.report.trace import otlp

    document = otlp(found, namespace)
    scope: dict[str, Any] = document["resourceSpans"][0]["scopeSpans"][0]
    every = scope["spans"]
    for start in range(0, len(every), AT_ONCE):
        scope["spans"] = every[start : start + AT_ONCE]
        _post(f"{url.rstrip('/').removesuffix(TRACES)}{TRACES}", document)


def _post(url: str, document: dict[str, Any]) -> None:
    import urllib.error
    import urllib.request
    from http.client import HTTPException

    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--otlp {url}: use an address such as http://localhost:4318")
    body = json.dumps(document, ensure_ascii=False).encode()
    try:
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - checked above
        with urllib.request.urlopen(request, timeout=SEND_SECONDS) as answer:  # noqa: S310 - as above
            answer.read(ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        said = error.read(ANSWER_BYTES).decode(errors="replace")
        raise UsageError(
            f"{url} answers {error.code} {error.reason}: {said}; check that it takes OTLP as JSON"
        ) from error
    except (OSError, ValueError, HTTPException) as error:
        raise UsageError(
            f"{url} does not answer: {error!r}; check the address, and that its port is that of OTLP over HTTP, "
            "usually 4318 and not 4317"
        ) from error
