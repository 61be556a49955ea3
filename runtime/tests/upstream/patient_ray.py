"""Give Ray's nodes minutes to start, because a machine that runs several stages of tests at once may need them.

Ray gives a node 30 s and has no setting for it (2.60, _private/node.py:428). No test fails by it: what hangs ends with
the limit of its test.
"""

from __future__ import annotations

import functools
import time
from typing import Any

SECONDS = 600.0
POLL_SECONDS = 0.2


def install() -> None:
    """Let each node that this process starts take its time."""
    from ray._private import services

    ask = services.get_node

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

    services.get_node = wait
