"""A replacement for kubectl whose output the tests choose."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl that prints `answer`, or fails with `error`."""
    script = tmp_path / "kubectl"
    script.write_text(
        '#!/bin/sh\ncd "$(dirname "$0")"\necho "$@" >words\n[ ! -f error ] || { cat error >&2; exit 1; }\ncat answer\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path
