"""The entry point of group `verl.plugins`: verl imports this module in every process that imports verl.

verl swallows what an entry point raises (verl/__init__.py logs it at DEBUG), so a failure is printed here, and the
launcher looks at `LOADED`. On NPUs only the stacks are to be registered: verl and vllm-ascend bring their platform.
"""

from __future__ import annotations

import os
import sys
import traceback

from rljob_runtime.stacks import register as stack_register
from rljob_runtime.verl_plugin import cpu_defaults

LOADED: list[str] = []
"""What took effect in this process."""


def load(environ: os._Environ[str] | dict[str, str]) -> None:
    """Attach what the platform needs."""
    LOADED.append("rljob")
    stack_register.register()
    if environ.get("VERL_PLATFORM", "").strip().lower() != "cpu":
        return
    for name, value in cpu_defaults.ENVIRONMENT.items():
        environ.setdefault(name, value)
    from rljob_runtime.verl_plugin import cpu_patches, platform, vllm_alias

    cpu_patches.apply()
    vllm_alias.install()
    LOADED.append(platform.NAME)


try:
    load(os.environ)
except Exception:
    print("rljob_runtime: the verl plug-in did not load; verl hides the cause, so here it is:", file=sys.stderr)  # noqa: T201
    traceback.print_exc()
    raise
