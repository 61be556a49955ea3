"""Entry point of group `verl.plugins`: verl imports this module in every process that imports verl.

verl suppresses exceptions of an entry point (verl/__init__.py logs them at DEBUG), so a failure is printed here and the
launcher checks `LOADED`. On NPUs, verl and vllm-ascend provide the platform.
"""

from __future__ import annotations

import os
import sys
import traceback

from rljob_runtime.node import core_binding, worker_setup
from rljob_runtime.verl_plugin.platform import cpu_defaults

LOADED: list[str] = []
"""Extensions that are active in this process."""


def load(environ: os._Environ[str] | dict[str, str]) -> None:
    """Attach the extensions for the platform."""
    LOADED.append("rljob")
    worker_setup.set_up()
    if environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
        load_cpu_platform(environ)
    else:
        from rljob_runtime.verl_plugin.platform import mindspeed_modules

        mindspeed_modules.install()
    if environ.get(core_binding.VARIABLE):
        # Last, because it imports modules of verl that read the platform.
        from rljob_runtime.verl_plugin.platform import worker_binding

        worker_binding.install()


def load_cpu_platform(environ: os._Environ[str] | dict[str, str]) -> None:
    """Let verl compute on CPUs."""
    for name, value in cpu_defaults.ENVIRONMENT.items():
        environ.setdefault(name, value)
    from rljob_runtime.verl_plugin.platform import cpu_patches, platform, vllm_alias

    cpu_patches.apply()
    vllm_alias.install()
    LOADED.append(platform.NAME)


try:
    load(os.environ)
except Exception:
    print("rljob_runtime: the verl plug-in did not load. verl hides the cause:", file=sys.stderr)  # noqa: T201
    traceback.print_exc()
    raise
