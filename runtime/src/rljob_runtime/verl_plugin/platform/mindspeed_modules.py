"""Hide transformers' aliases of old module names from MindSpeed's patcher.

For each patch, MindSpeed asks every loaded module for the attribute that it replaces (mindspeed/patch_utils.py:96 and
:126, e4772499). transformers has an alias for the old name of every image processor (transformers/__init__.py:803-847,
5.5.4), which answers by importing the processor and with a warning: seconds of CPU in every trainer process, and
nearly all lines of a job's log.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

PACKAGE = "transformers."


class LoadedModules:
    """What MindSpeed's patcher uses of `sys.modules`."""

    def __getitem__(self, name: str) -> ModuleType:
        return sys.modules[name]

    def __setitem__(self, name: str, module: ModuleType) -> None:
        sys.modules[name] = module

    def copy(self) -> dict[str, ModuleType]:
        """Return all modules except the aliases, which have no spec because they were never imported."""
        return {
            name: module
            for name, module in sys.modules.copy().items()
            if not (name.startswith(PACKAGE) and module.__spec__ is None)
        }


def install() -> None:
    """Give them to the patcher, where MindSpeed is installed."""
    try:
        from mindspeed import patch_utils
    except ImportError:
        return
    patch_utils.sys = SimpleNamespace(modules=LoadedModules())
