"""Programs with limits on time and size, as real processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rljob.cli import bounded_process
from rljob.cli.bounded_process import TooLongError, run
from rljob.cli.main import main


def test_output_errors_and_code_are_returned() -> None:
    program = "import sys; print(sys.stdin.read()); print('no', file=sys.stderr); sys.exit(3)"
    done = run([sys.executable, "-c", program], "é", 20)
    assert (done.code, done.output, done.errors) == (3, "é\n", "no\n")


def test_bytes_that_are_no_text_are_replaced() -> None:
    done = run(["printf", r"a\377b\300"], None, 20)
    assert done.output == "a\ufffdb\ufffd"


@pytest.mark.parametrize("target", ["", ">&2"])
def test_an_endless_output_ends_the_program(target: str) -> None:
    with pytest.raises(TooLongError):
        run(["sh", "-c", f"exec yes {target}"], None, 60, limit=100_000)


def test_a_program_that_does_not_end_is_killed() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run(["sleep", "600"], None, 0.3)


def test_a_short_program_may_fill_the_limit() -> None:
    assert len(run(["printf", "x" * 1000], None, 20, limit=1000).output) == 1000


def test_kubectl_says_what_wrote_too_much(
    kubectl: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (kubectl / "kubectl").write_text("#!/bin/sh\nexec yes\n")
    monkeypatch.setattr(bounded_process.run, "__defaults__", (1000,))
    assert main(["status", "x"]) == 2
    assert "kubectl get wrote more than" in capsys.readouterr().err


def test_deep_json_of_the_cluster_is_an_error(kubectl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kubectl / "answer").write_text("[" * 100_000)
    assert main(["status", "x"]) == 2
    assert "the answer is not JSON" in capsys.readouterr().err
