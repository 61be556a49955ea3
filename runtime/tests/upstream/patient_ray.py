"""Give Ray's nodes minutes to start, because a machine that runs several stages of tests at once may need them.

Ray gives a node 30 s and has no setting for it (2.60, _private/node.py:428), and its raylet ends for good where its
agents need longer than that to start ("Timed out waiting for file"): then only another start helps. No test fails by
it: what hangs ends with the limit of its test.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import time
from typing import Any

SECONDS = 120.0
"""How long one start may take."""
STARTS = 5
POLL_SECONDS = 0.2
PORT_SECONDS = "RAY_gcs_server_port_wait_time_s"
"""The variable for how long the GCS may take to write its port (2.60, _private/node.py:1405)."""
SLOW = re.compile(r"timed out|dashboard|GCS", re.IGNORECASE)
"""What Ray's errors have in common of starts that took too long (2.60, _private/node.py:440 and services.py:1486)."""


def install() -> None:
    """Let each node that this process starts take its time, and start it again where its raylet gave up."""
    import ray
    from ray._private import ray_constants, services

    os.environ[PORT_SECONDS] = f"{SECONDS:.0f}"
    ray_constants.RAY_DASHBOARD_STARTUP_TIMEOUT_S = int(SECONDS)
    ask, start = services.get_node, ray.init

    @functools.wraps(ask)
    def wait(*arguments: Any, **named: Any) -> Any:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                return ask(*arguments, **named)
            except RuntimeError:  # as Ray's own loop
                if time.monotonic() >= deadline:
                    raise
            time.sleep(POLL_SECONDS)

    @functools.wraps(start)
    def start_again(*arguments: Any, **named: Any) -> Any:
        for _ in range(STARTS - 1):
            try:
                return start(*arguments, **named)
            except Exception as error:
                if not SLOW.search(str(error)):
                    raise
                print(f"Ray starts again: {error}", file=sys.stderr, flush=True)
            ray.shutdown()
        return start(*arguments, **named)

    services.get_node, ray.init = wait, start_again
