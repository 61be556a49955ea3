"""Set up every Ray worker of a run at its start: stack traces, network interface, CPU binding.

Ray calls `set_up` (runtime_env.worker_process_setup_hook) before the process runs an actor. verl's plug-in calls it
again for processes in which the job replaced the hook with its own. Never raises.
"""

from __future__ import annotations

import os

from rljob_runtime.node import core_binding, hccl, ray_binding
from rljob_runtime.stacks import register as stack_register


def set_up() -> None:
    """Set up this process. Further calls have no effect."""
    stack_register.register()
    hccl.apply(os.environ)
    core_binding.bind_data_worker()
    ray_binding.install()
