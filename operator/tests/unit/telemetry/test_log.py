"""Structured logs."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rljob.telemetry.log import TEXT_LIMIT, Log, configure, redact, redact_field

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    stream = io.StringIO()
    configure("DEBUG", stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_a_constant_message_and_fields(stream: io.StringIO) -> None:
    Log("rljob.test").info("Resync done", kind="pods", drift=0, missing=None)
    (line,) = lines(stream)
    assert (line["level"], line["logger"], line["message"]) == ("info", "rljob.test", "Resync done")
    assert (line["kind"], line["drift"], line["missing"]) == ("pods", 0, None)


def test_a_failure_carries_its_traceback_in_one_line(stream: io.StringIO) -> None:
    Log("rljob.test").failure("Round crashed", ValueError("password=hunter2"))
    (line,) = lines(stream)
    assert "ValueError" in line["traceback"]
    assert "hunter2" not in line["traceback"]


def test_kopf_is_never_heard_at_debug(stream: io.StringIO) -> None:
    logging.getLogger("kopf.objects").debug("a whole object")
    assert lines(stream) == []


@pytest.mark.parametrize("name", ["token", "entrypoint", "env", "Authorization", "data"])
def test_secret_fields_are_hidden_by_name(name: str) -> None:
    assert redact_field(name, "value") == "[redacted]"


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer s3cr3t",
        "HF_TOKEN=s3cr3t",
        '{"api_key": "s3cr3t"}',
        "--wandb-password s3cr3t=1 secret=s3cr3t",
    ],
)
def test_secrets_in_texts_are_hidden(text: str) -> None:
    assert "=s3cr3t" not in redact(text).replace("s3cr3t=1", "")
    assert "Bearer s3cr3t" not in redact(text)
    assert '"s3cr3t' not in redact(text)


@given(st.text(max_size=5000))
def test_a_text_is_cut_to_its_limit(text: str) -> None:
    assert len(redact(text)) <= max(TEXT_LIMIT, 0)
