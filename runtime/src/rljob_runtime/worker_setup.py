"""What every Ray worker of a run does as it begins: tell its stacks, name its network interface, take its CPUs.

Ray calls `begin` (runtime_env.worker_process_setup_hook) before an actor exists in the process; verl's plug-in calls it
once more for processes whose hook the job replaced by its own. It never raises.
"""

from __future__ import annotations

import os

from rljob_runtime import core_binding, hccl
from rljob_runtime.stacks import register as stack_register


def set_up() -> None:
    """Prepare this process; a second call changes nothing."""
    stack_register.register()
    hccl.apply(os.environ)
    core_binding.bind_data_worker()
