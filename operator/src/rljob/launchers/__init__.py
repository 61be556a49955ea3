"""From the typed spec to the configuration of what trains.

`LAUNCHER` returns the implementation that `spec.launcher.type` names. Only wiring reads it, and passes it to the core
as its `rljob.core.launcher.LauncherOf`.
"""

from rljob.core.launcher import LauncherOf
from rljob.launchers.by_type import launcher_of
from rljob.launchers.verl.versions import VERSIONS

LAUNCHER: LauncherOf = launcher_of

__all__ = ["LAUNCHER", "VERSIONS"]
