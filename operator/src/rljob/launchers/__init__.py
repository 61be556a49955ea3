"""From the typed spec to the configuration of what trains.

`LAUNCHER` asks the implementation that `spec.launcher.type` names. Only wiring reads it, and passes it to the core as
its `rljob.core.launcher.Launcher`.
"""

from rljob.core.launcher import Launcher
from rljob.launchers.by_type import LauncherByType

LAUNCHER: Launcher = LauncherByType()
