"""From the typed spec to the configuration of a training framework.

`LAUNCHER` is the framework of this version. Only wiring reads it, and passes it to the core as its
`rljob.core.launcher.Launcher`.
"""

from rljob.core.launcher import Launcher
from rljob.launchers.verl.launcher import VerlLauncher

LAUNCHER: Launcher = VerlLauncher()
