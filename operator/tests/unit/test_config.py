"""Settings of the operator process."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rljob.config import Config, ConfigError, _flag, _variable, read_config

README = Path(__file__).parents[2] / "src/rljob/cluster/README.md"


def test_a_flag_wins_over_its_variable_which_wins_over_the_default() -> None:
    environ = {"RLJOB_WORKERS": "3", "RLJOB_HTTP_PORT": "9090", "KUBECONFIG": "/tmp/config"}
    config = read_config(["--workers", "5"], environ)
    assert (config.workers, config.http_port, config.resync_seconds) == (5, 9090, 300)
    assert config.kubeconfig == "/tmp/config"


def test_a_path_is_a_path() -> None:
    assert read_config(["--token-key-file", "/a/b"], {}).token_key_file == Path("/a/b")


def test_two_processes_on_one_host_have_two_identities() -> None:
    assert read_config([], {}).identity != read_config([], {}).identity
    assert read_config(["--identity", "me"], {}).identity == "me"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--workers", "many"], "whole number"),
        (["--workers", "0"], "at least 1"),
        (["--http-port", "70000"], "port number"),
        (["--log-level", "LOUD"], "DEBUG"),
        (["--host-ports-blocks", "0"], "at least 1"),
        (["--partial-seconds", "0"], "at least 1"),
        (["--host-ports-first", "80"], "use a range within 1024 to 65535"),
        (["--host-ports-first", "60000"], "256 blocks of 32 end at 68191"),
    ],
)
def test_a_setting_that_cannot_work_names_flag_and_variable(arguments: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        read_config(arguments, {})
    assert arguments[0] in str(caught.value)
    assert "RLJOB_" in str(caught.value)


def test_the_readme_lists_every_setting() -> None:
    text = README.read_text()
    for field in dataclasses.fields(Config):
        assert f"| `{_variable(field)}` | `{_flag(field.name)}` |" in text
