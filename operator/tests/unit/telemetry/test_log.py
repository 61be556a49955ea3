"""Structured logs."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rljob.telemetry import log
from rljob.telemetry.log import MARGIN, TEXT_LIMIT, Log, configure, redact, redact_field, redacted_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REFERENCE = re.compile(
    r"(?P<keep>bearer\s+|\b[\w-]*(?:token|password|secret|api[_-]?key)[\w-]*[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&]+",
    re.IGNORECASE,
)
"""A simple definition of a secret, whose time is quadratic in the length of a text."""
PARTS = (
    *("token", "Secret", "api-key", "bearer", "xbearer", "a", "é", "-", "_", ".", "=", ":", "'", '"', " ", "\n", ","),
    *("token=abcd", "bearer abcd", "my-secret: 'abcd", " token  =  ", '"', "abcd"),
)
TEXTS = st.lists(st.sampled_from(PARTS), max_size=30).map("".join)
SECRETS = ("token=§§§", "my-password  :  '§§§", '"API_KEY": "§§§', "Authorization: Bearer  §§§", "x.secret_id =§=§")


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


def test_a_line_does_not_control_the_terminal_of_its_reader(stream: io.StringIO) -> None:
    said = "\x1b[2J\x07\x7f\x9b2J\u202eend\u2028\r\n"
    Log("rljob.test").info("Refused", error=said)
    assert [c for c in stream.getvalue() if not c.isprintable()] == ["\n"]
    (line,) = lines(stream)
    assert line["error"] == said


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("authorization: Basic dXNlcjpnZWhlaW0=", "authorization: Basic [redacted]"),
        ("basic settings", "basic settings"),
        ("clone https://me:geheim@example.com/x", "clone [redacted]example.com/x"),
        ("run --hub-token geheim --steps 3", "run --hub-token [redacted] --steps 3"),
        ("run --tokenizer /model --max-tokens 8", "run --tokenizer /model --max-tokens 8"),
        ("hf_" + "a" * 30, "[redacted]"),
        ("key AKIA" + "B" * 16, "key [redacted]"),
        ("-----BEGIN PRIVATE KEY-----\ngeheim\n-----END PRIVATE KEY-----", "[redacted]-----END PRIVATE KEY-----"),
    ],
)
def test_secrets_are_known_by_their_formats(text: str, shown: str) -> None:
    assert redact(text) == shown


@given(st.text(max_size=5000))
def test_a_text_is_cut_to_its_limit(text: str) -> None:
    assert len(redact(text)) <= max(TEXT_LIMIT, 0)


@given(TEXTS)
def test_what_is_hidden_is_what_a_simple_pattern_finds(text: str) -> None:
    assert redact(text) == REFERENCE.sub(r"\g<keep>[redacted]", text)


@given(TEXTS, st.integers(min_value=1, max_value=40))
def test_behind_a_cut_nothing_shows_that_the_whole_text_would_hide(text: str, size: int) -> None:
    whole = REFERENCE.sub(r"\g<keep>[redacted]", text)
    shown = redacted_end(text, size)
    if len(text) <= size:
        assert shown == whole
    else:
        assert shown.startswith("…[redacted]")
        assert whole.endswith(shown.removeprefix("…[redacted]"))


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_that_a_cut_tears_apart_does_not_show(secret: str) -> None:
    hidden = " token=" + "x" * (
        TEXT_LIMIT + MARGIN - 20
    )  # so short, once redacted, that the text is shown from the cut on
    for place in range(len(secret) + 1):
        text = "word " * 9 + secret + hidden
        text += "," * (TEXT_LIMIT + MARGIN - len(secret) + place - len(hidden))
        told = redact(text)
        assert "§" not in told
        assert told.startswith("…[redacted]")


class Spied:
    """A pattern that records the length of the texts that it searches."""

    def __init__(self, pattern: re.Pattern[str], seen: list[int]) -> None:
        self._pattern, self._seen = pattern, seen

    def sub(self, shown: Callable[[re.Match[str]], str], text: str) -> str:
        self._seen.append(len(text))
        return self._pattern.sub(shown, text)

    def match(self, text: str) -> re.Match[str] | None:
        self._seen.append(len(text))
        return self._pattern.match(text)


@pytest.mark.parametrize("unit", ["a-", "token", "token-", "bearer ", "token\n", "token='", "é", "="])
def test_the_patterns_see_a_bounded_part_of_a_text(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    for name in ("_SECRET", "_TORN"):
        monkeypatch.setattr(log, name, Spied(getattr(log, name), seen))
    assert len(redact(unit * 100_000)) <= TEXT_LIMIT
    assert len(redact(unit * 100_000, 50)) <= 50
    assert len(seen) == 4
    assert max(seen) <= TEXT_LIMIT + MARGIN


def test_no_repetition_of_the_patterns_gives_anything_back() -> None:
    for name in ("_SECRET", "_TORN"):
        pattern = getattr(log, name).pattern.replace(r"(?=[\w-]*?", "")  # tried once for each name
        assert not set("*+") & set(re.sub(r"[*+?]\+", "", pattern))
