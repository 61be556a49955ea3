"""Text of a job that would control the terminal, through the real commands: it is shown and not obeyed."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import small_spec

from rljob.api.printing import one_line, printable, without_colours
from rljob.api.yaml11 import load_all
from rljob.cli.main import main
from rljob.cli.progress_line import Line
from rljob.cli.terminal import PrintableStream, printable_output, send_control

HOSTILE = {
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;cm0gLXJm\x1b\\",
    "eight bits": "\x9b2J\x9d0;owned\x9c",
    "overwritten line": "Failed\rSucceeded",
    "erased": "Failed\b\b\b\b\b\bfine",
    "reordered": "\u202edeliaF\u202c\u2066x\u2069",
    "separator": "a\u2028Succeeded",
    "delete": "\x7f",
}
hostile = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())


def job(text: str) -> dict[str, Any]:
    """Return a job whose every free text is hostile."""
    status = {
        "state": "Training",
        "reason": text,
        "message": text,
        "notes": [text],
        "conditions": [{"type": "Ready", "status": "False", "reason": text, "message": f"a\n{text}"}],
        "progress": {"step": 3, "totalSteps": 40, "summary": text, "reward": text, "tokensPerSecondPerCard": text},
        "attempts": [
            {"number": 1, "clusterName": text, "outcome": "Failed", "reason": text, "endTime": "2026-01-01T00:00:00Z"}
        ],
        "rayCluster": {"name": text, "dashboardURL": text, "runtimeImage": text},
        "intent": {"clusterName": text},
        "excludedNodes": [{"name": text, "reason": text}],
    }
    metadata = {"name": "sums", "namespace": "team", "uid": "u-1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"kind": "RLJob", "metadata": metadata, "spec": {"suspend": False}, "status": status}


def unprintable(text: str) -> list[str]:
    return [character for character in text if not character.isprintable() and character != "\n"]


@hostile
@pytest.mark.parametrize(
    "words",
    [
        ("status", "sums"),
        ("status", "sums", "-o", "json"),
        ("status", "sums", "-o", "yaml"),
        ("describe", "sums"),
        ("describe", "sums", "-o", "json"),
    ],
    ids=" ".join,
)
def test_commands_on_a_job_print_no_control_character(
    text: str, words: tuple[str, ...], kubectl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kubectl / "answer").write_text(json.dumps(job(text) | {"items": []}))
    main([*words])
    told = capsys.readouterr()
    assert told.out
    assert unprintable(told.out + told.err) == []


@hostile
@pytest.mark.parametrize("words", [("top", "--once"), ("top", "--once", "-A")], ids=" ".join)
def test_the_table_of_all_jobs_has_a_row_for_each(
    text: str, words: tuple[str, ...], kubectl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faked = job(f"{text}\nfake  Succeeded")
    (kubectl / "answer").write_text(json.dumps({"items": [faked]}))
    assert main([*words]) == 0
    told = capsys.readouterr().out
    assert unprintable(told) == []
    assert len(told.splitlines()) == 4


@hostile
def test_errors_of_kubectl_are_printable(text: str, kubectl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kubectl / "error").write_text(f"Error from server: {text}")
    assert main(["status", "sums"]) == 2
    told = capsys.readouterr().err
    assert told
    assert unprintable(told) == []


@hostile
@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", lambda text: load_all(text)[0])])
def test_output_for_programs_keeps_the_text(
    text: str, output: str, read: Callable[[str], Any], kubectl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kubectl / "answer").write_text(json.dumps(job(text)))
    main(["status", "sums", "-o", output])
    assert read(capsys.readouterr().out)["message"] == text


@hostile
@pytest.mark.parametrize("command", ["validate", "explain", "render", "plan memory", "diff"])
def test_commands_on_a_file_print_no_control_character(
    text: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.json"
    spec = small_spec({"trackers": {"experiment": text}, text: 1, "reward": {"path": text, "function": text}})
    head = {"apiVersion": "rljob.dev/v1alpha1", "kind": "RLJob", "metadata": {"name": f"x{text}", "namespace": text}}
    file.write_text(json.dumps({**head, "spec": spec}))
    against = ["--against", str(file)] if command == "diff" else []
    main([*command.split(), "-f", str(file), *against])
    told = capsys.readouterr()
    assert told.out + told.err
    assert unprintable(told.out + told.err) == []


@hostile
def test_labels_of_a_prometheus_are_printable(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    series = [{"metric": {"rljob_namespace": f"{text}\nfake", "queue": text}, "value": [0, "7200"]}]
    monkeypatch.setattr("rljob.cli.report.prometheus.Server.query", lambda *_: series)
    words = ["usage", "--month", "2026-10", "--prometheus", "http://localhost:1", "-A"]
    assert main(words) == 0
    table = capsys.readouterr().out
    assert unprintable(table) == []
    assert len(table.splitlines()) == 2
    assert main([*words, "-o", "csv"]) == 0
    assert unprintable(capsys.readouterr().out) == []


def test_a_line_of_a_message_does_not_look_like_one_of_the_page(
    kubectl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kubectl / "answer").write_text(json.dumps(job("x\nteam/other  Succeeded")))
    main(["status", "sums"])
    assert not [line for line in capsys.readouterr().out.splitlines() if line.startswith("team/other")]


@hostile
def test_the_progress_line_is_one_line(text: str) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    Line(out).draw(f"{text}\nSucceeded", important=True)
    assert unprintable(out.getvalue().removeprefix("\r\033[K")) == []
    assert "\n" not in out.getvalue()


def test_every_control_character_is_shown_and_no_letter_is_changed() -> None:
    directions = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    marks = "\u061c\u200e\u200f"
    for character in map(chr, range(0x11000)):
        control = unicodedata.category(character) in ("Cc", "Zl", "Zp")
        control |= unicodedata.bidirectional(character) in directions or character in marks
        assert (one_line(character) != character) == control, hex(ord(character))
        assert (printable(character) != character) == (control and character not in "\n\t"), hex(ord(character))
    assert printable("añb\tc\n深度\U0001f600") == "añb\tc\n深度\U0001f600"
    assert printable("\x9b") == "\\u009b"
    assert one_line("a\nb\tc") == "a\\u000ab\\u0009c"


def test_own_control_sequences_are_sent_and_streams_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    with printable_output():
        print("\x1b[2J")
        send_control("\x1b[K", sys.stdout)
        sys.stdout.writelines(["\x07", "x\n"])
        print("\x9b", file=sys.stderr)
        assert isinstance(sys.stdout, PrintableStream)
        assert getattr(sys.stdout, "encoding", None) == before.encoding
    assert sys.stdout is before
    told = capsys.readouterr()
    assert (told.out, told.err) == ("\\u001b[2J\n\x1b[K\\u0007x\n", "\\u009b\n")
    plain = io.StringIO()
    send_control("\x1b[K", plain)
    assert plain.getvalue() == "\x1b[K"


def test_an_error_ends_the_replacement() -> None:
    before = sys.stderr
    with contextlib.suppress(ValueError), printable_output():
        raise ValueError
    assert sys.stderr is before


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[36m(WorkerDict pid=7)\x1b[0m step 3", "(WorkerDict pid=7) step 3"),
        ("\x1b[1;31merror\x1b[m", "error"),
        (" 10%|#\r 20%|##\r\ndone", " 10%|#\n 20%|##\ndone"),
        ("\x1b[2Jcleared", "\x1b[2Jcleared"),
    ],
    ids=["Ray's prefix", "bold", "a progress bar", "not a colour"],
)
def test_the_output_of_a_program_is_shown_without_its_colours(written: str, shown: str) -> None:
    assert without_colours(written) == shown
