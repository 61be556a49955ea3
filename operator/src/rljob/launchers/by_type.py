"""Chooses the launcher that a spec names; the rules of one never judge a job of the other."""

from __future__ import annotations

from collections.abc import Mapping

from rljob.api.launcher import LauncherType
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.launcher import Launcher
from rljob.launchers.command.command_launcher import CommandLauncher
from rljob.launchers.verl.verl_launcher import VerlLauncher

LAUNCHERS: Mapping[LauncherType, Launcher] = {
    LauncherType.VERL: VerlLauncher(),
    LauncherType.COMMAND: CommandLauncher(),
}


def launcher_of(spec: RLJobSpec) -> Launcher:
    """Return the launcher of the spec's type."""
    return LAUNCHERS[spec.launcher.type]
