"""Record each Python process of a run: frozen objects and collections of garbage. Copied to `sitecustomize.py`.

Python imports that module when it starts. Every process writes `FOLDER/<pid>.json` twice a second, so that its last
state is there however it ends. FOLDER is the variable PROCESS_LOG.
"""

from __future__ import annotations

import gc
import json
import os
import threading
import time
from pathlib import Path

FOLDER = os.environ.get("PROCESS_LOG")
SECONDS = 0.5
_begun = [0.0]
_pauses: list[tuple[float, int, float]] = []
"""Unix time, generation and seconds of each collection."""


def _watch(phase: str, info: dict[str, int]) -> None:
    if phase == "start":
        _begun[0] = time.perf_counter()
    else:
        _pauses.append((time.time(), info["generation"], time.perf_counter() - _begun[0]))


def _write(folder: Path) -> None:
    name = Path("/proc/self/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    seen = {"name": name, "frozen": gc.get_freeze_count(), "enabled": gc.isenabled(), "pauses": list(_pauses)}
    temporary = folder / f".{os.getpid()}"
    temporary.write_text(json.dumps(seen))
    temporary.replace(folder / f"{os.getpid()}.json")


def _keep_writing(folder: Path) -> None:
    while True:
        time.sleep(SECONDS)
        _write(folder)


def begin(folder: Path) -> None:
    """Record this process."""
    gc.callbacks.append(_watch)
    threading.Thread(target=_keep_writing, args=(folder,), daemon=True).start()


if FOLDER:
    begin(Path(FOLDER))
