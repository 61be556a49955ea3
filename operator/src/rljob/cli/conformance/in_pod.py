"""Sent to a Ray container as `python -c` by `gather`: print as one JSON object what the claims need.

It runs in any image's Python and imports the standard library only. No variable is printed except HCCL's.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

PACKAGES = (
    "rljob-runtime",
    "verl",
    "ray",
    "vllm",
    "vllm-ascend",
    "torch",
    "torch-npu",
    "transformers",
    "tensordict",
    "TransferQueue",
    "megatron-core",
    "mindspeed",
)
METRICS = ("rljob_tokens_per_second", "rljob_first_dp_idle_ratio", "rljob_cluster_idle_ratio")


def versions() -> dict[str, str]:
    """Return the releases of the installed packages."""
    found = {"Python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def progress(spool: Path) -> dict[str, object]:
    """Return the progress as the exporter serves it (rljob_runtime.spool.spool)."""
    found: dict[str, object] = json.loads((spool / "current.json").read_text())
    with contextlib.suppress(OSError, ValueError):
        found["coreBinding"] = json.loads((spool / f"attempt-{found.get('attempt', 0)}" / "binding.json").read_text())
    return found


def metrics(port: str) -> dict[str, list[float]]:
    """Return the samples of the exporter by metric."""
    url = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found: dict[str, list[float]] = {}
    for line in lines:
        name = line.partition("{")[0].partition(" ")[0]
        if name in METRICS:
            found.setdefault(name, []).append(float(line.rsplit(" ", 1)[1]))
    return found


def checkpoints(folder: Path) -> dict[str, object]:
    """Return the steps of the checkpoint folder and the content of verl's tracker file."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    steps = sorted(int(name[12:]) for name in names if name.startswith("global_step_") and name[12:].isdigit())
    tracker = folder / "latest_checkpointed_iteration.txt"
    return {"steps": steps, "tracker": tracker.read_text().strip() if tracker.is_file() else ""}


def main() -> None:
    """Print what can be read, with the reason of what cannot."""
    reads: dict[str, Callable[[], object]] = {
        "versions": versions,
        "hccl": lambda: {name: value for name, value in sorted(os.environ.items()) if name.startswith("HCCL_")},
    }
    if len(sys.argv) > 1:
        reads |= {
            "progress": lambda: progress(Path(os.environ.get("RLJOB_SPOOL", "/var/run/rljob"))),
            "metrics": lambda: metrics(os.environ.get("RLJOB_METRICS_PORT") or "8090"),
            "checkpoints": lambda: checkpoints(Path(sys.argv[1])),
        }
    found: dict[str, object] = {}
    problems = []
    for name, read in reads.items():
        try:
            found[name] = read()
        except (OSError, ValueError) as error:
            problems.append(f"{name}: {error}")
    print(json.dumps(found | {"problem": "; ".join(problems)}))


if __name__ == "__main__":
    main()
