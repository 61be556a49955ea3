"""`rljob top` and `rljob status --watch`: the output while jobs change, and when it ends."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from rljob.cli import kubectl, watch
from rljob.cli.errors import UsageError
from rljob.cli.kubectl import Place
from rljob.cli.main import main
from rljob.cli.watch import FIRST_SCREEN, HOME, SECOND_SCREEN, overview, top, watch_status

NOW = datetime(2026, 1, 1, 0, 0, tzinfo=UTC)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def job(
    name: str, state: str, step: int = 0, *, namespace: str = "team", uid: str = "u", **status: object
) -> dict[str, Any]:
    progress = {"step": step, "totalSteps": 40, "reward": "0.8", "tokensPerSecondPerCard": "310.2"} if step else {}
    told = {"state": state, "progress": progress, "resolved": {"cards": "16"}, **status}
    metadata = {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "status": told}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Return the results of successive polls; an error is raised. The last one must be reached."""
    given: list[Any] = []

    def look(*_: object, **__: object) -> object:
        found = given.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr(kubectl, "get_job", look)
    monkeypatch.setattr(kubectl, "list_jobs", look)
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((100, 20)))
    yield given
    assert not given


def test_the_table_sums_up_and_puts_what_is_over_last() -> None:
    eta = {"step": 20, "totalSteps": 40, "clusterIdleRatio": "0.12", "eta": "2026-01-01T02:05:00Z"}
    table = overview(
        [
            job("done", "Succeeded", 40, attempts=[{"endTime": "t"}]),
            job("sums", "Training", progress=eta, restarts=2, attempts=[{}]),
            job("new", "Pending", resolved=None),
            job("again", "Restarting", 3, attempts=[{"endTime": "t"}]),
        ],
        NOW,
    )
    assert (
        table
        == """\
RLJobs: 1 Pending, 1 Restarting, 1 Succeeded, 1 Training; 16 cards held  00:00:00 UTC

NAME   STATE       STEP                      REWARD  TPS/CARD  DP IDLE  LEFT  CARDS  RESTARTS
again  Restarting  [#...............] 3/40   0.8     310       -        -     -      0
new    Pending     -                         -       -         -        -     -      0
sums   Training    [########........] 20/40  -       -         12.0%    2h05  16     2
done   Succeeded   [################] 40/40  0.8     310       -        -     -      0"""
    )


def test_names_carry_their_namespace_where_there_are_several() -> None:
    table = overview([job("a", "Training"), job("a", "Training", namespace="other")], NOW)
    assert [line.split()[0] for line in table.splitlines()[3:]] == ["other/a", "team/a"]
    assert overview([], NOW) == "no RLJobs"


def test_top_off_a_terminal_prints_once(looks: list[Any]) -> None:
    looks.append([job("sums", "Training", 3)])
    out = io.StringIO()
    assert top(Place(), everywhere=False, once=False, interval_seconds=1, out=out) == 0
    assert "\033" not in out.getvalue()
    assert out.getvalue().count("sums") == 1


def test_top_redraws_shows_an_outage_and_restores_the_screen(looks: list[Any]) -> None:
    looks += [[job("sums", "Training", 3)], UsageError("kubectl: no route"), [job("sums", "Training", 4)]]
    looks.append(KeyboardInterrupt())
    out = Terminal()
    assert top(Place(), everywhere=True, once=False, interval_seconds=1, out=out) == 0
    text = out.getvalue()
    assert text.startswith(SECOND_SCREEN)
    assert text.endswith(FIRST_SCREEN)
    pages = text.split(HOME)[1:]
    assert ["3/40" in page for page in pages] == [True, True, False]
    assert ["no route" in page for page in pages] == [False, True, False]


def test_a_page_is_cut_to_the_terminal_and_moves_no_cursor(looks: list[Any]) -> None:
    looks += [[job(f"job-{number}\033[2J", "Training") for number in range(50)], KeyboardInterrupt()]
    out = Terminal()
    top(Place(), everywhere=False, once=False, interval_seconds=1, out=out)
    (page,) = out.getvalue().split(HOME)[1:]
    assert page.count("\n") == 18
    assert "\033[2J" not in page


def test_a_watch_off_a_terminal_prints_changes_and_the_page_at_the_end(looks: list[Any]) -> None:
    looks += [job("sums", "Starting"), job("sums", "Training", 1), UsageError("away"), job("sums", "Training", 2)]
    looks.append(job("sums", "Succeeded", 40))
    out = io.StringIO()
    assert watch_status("sums", Place(), 1, out) == 0
    lines = out.getvalue().splitlines()
    assert ["Starting" in lines[0], "1/40" in lines[1], "2/40" in lines[3]] == [True, True, True]
    assert lines[2] == "out of date since 0 s: away"
    assert lines[4] == "team/sums  Succeeded"
    assert "[##############################] 40/40" in lines


@pytest.mark.parametrize(("state", "code"), [("Succeeded", 0), ("Stopped", 0), ("Failed", 1), ("Invalid", 1)])
def test_the_exit_code_is_that_of_the_end(looks: list[Any], state: str, code: int) -> None:
    looks += [job("sums", "Training", 2), job("sums", state)]
    assert watch_status("sums", Place(), 1, Terminal()) == code


def test_a_watch_on_a_terminal_shows_the_page_and_what_is_wrong(looks: list[Any]) -> None:
    looks += [job("sums", "Training", 1), UsageError("away"), job("sums", "Training", 2), job("sums", "Succeeded", 40)]
    out = Terminal()
    assert watch_status("sums", Place(), 1, out) == 0
    shown, left = out.getvalue().split(FIRST_SCREEN)
    pages = shown.split(HOME)[1:]
    assert ["away" in page for page in pages] == [False, True, False, False]
    assert ["2/40" in page for page in pages] == [False, False, True, False]
    assert left.startswith("team/sums  Succeeded\n")


def test_a_watch_ends_when_the_job_is_gone_or_another_one(looks: list[Any]) -> None:
    looks += [job("sums", "Training", 2), kubectl.NotFoundError("(NotFound)")]
    with pytest.raises(UsageError, match="it was deleted"):
        watch_status("sums", Place(), 1, io.StringIO())
    looks += [job("sums", "Training", 2), job("sums", "Training", uid="another")]
    with pytest.raises(UsageError, match="another job of this name was created"):
        watch_status("sums", Place(), 1, Terminal())


def test_a_watch_gives_up_when_the_cluster_stays_away(looks: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PATIENCE_SECONDS", -1.0)
    looks += [job("sums", "Training", 2), UsageError("kubectl: no route")]
    with pytest.raises(UsageError, match="no route"):
        watch_status("sums", Place(), 1, io.StringIO())


def test_ctrl_c_ends_a_watch(looks: list[Any]) -> None:
    looks += [job("sums", "Training", 2), KeyboardInterrupt()]
    assert watch_status("sums", Place(), 1, io.StringIO()) == 130


def test_both_are_commands(looks: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    looks += [[job("sums", "Training", 2)], job("sums", "Failed")]
    assert main(["top", "-A", "--once"]) == 0
    assert main(["status", "sums", "--watch", "--interval", "0.5"]) == 1
    assert "team/sums  Failed" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["top", "--interval", "0.1"])
    assert "must be a number of seconds, such as 2, and at least 0.5" in capsys.readouterr().err


def test_all_namespaces_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def answer(arguments: list[str], *_: object, **__: object) -> str:
        asked.append(arguments)
        return json.dumps({"items": []})

    monkeypatch.setattr(kubectl, "run", answer)
    main(["top", "-A"])
    assert "--all-namespaces" in asked[0]
