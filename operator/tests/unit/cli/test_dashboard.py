"""What `rljob dashboard` says about the token."""

from __future__ import annotations

import argparse

import pytest

from rljob.cli.verbs.dashboard import _announce


@pytest.mark.parametrize(
    ("token", "show", "said"),
    [
        ("secret", True, "token: secret"),
        ("secret", False, "pass --show-token"),
        (None, False, "which you may not read"),
        ("", False, "asks for no token: the job's Ray cannot check one"),
    ],
)
def test_the_token_is_printed_where_there_is_one(
    token: str | None, show: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _announce(argparse.Namespace(show_token=show, open=False), "http://127.0.0.1:8265", token)
    assert said in capsys.readouterr().out
