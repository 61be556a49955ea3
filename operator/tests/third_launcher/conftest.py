"""Wiring with a third launcher: its type has fields, and specs of that type have it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rljob.api.launcher import READS
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.launcher import Launcher, LauncherOf
from rljob.launchers import LAUNCHER
from third_launcher.shell import READS_OF_SHELL, SHELL, Shell

Wire = Callable[[Shell], LauncherOf]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    """Return what adds a launcher to those of the product."""
    monkeypatch.setitem(READS, SHELL, READS_OF_SHELL)

    def add(third: Shell) -> LauncherOf:
        def launcher_of(spec: RLJobSpec) -> Launcher:
            return third if spec.launcher.type == SHELL else LAUNCHER(spec)

        return launcher_of

    return add
