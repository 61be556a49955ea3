"""Read every table of facts again: `make upstream-facts SOURCES=<folder>`, when a pin moves.

The folder has wheels and bare clones under the names of `READERS`; README.md says where they come from. A reader whose
sources are absent is named and left out. What is new in the tables of conditions is judged afterwards.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

READERS: dict[str, tuple[str, ...]] = {
    "verl_names": ("verl-*.whl",),
    "ascend_names": ("vllm_ascend-*.whl", "MindSpeed.git"),
    "megatron_names": ("MindSpeed.git", "Megatron-LM.git"),
    "conditions": ("verl-*.whl", "vllm_ascend-*.whl", "MindSpeed.git", "megatron_core-*.whl"),
    "verl_scripts": ("verl.git",),
    "published_images": ("verl.git", "vllm-ascend.git"),
    "command_recipes": ("cann-recipes-train.git", "copies"),
}
"""Module of this package -> what it reads, in the order of its arguments."""
OPTIONAL = {"copies"}
"""Only a clone that lacks some commits needs it."""


def find(folder: Path, pattern: str) -> Path | None:
    """Return the source of that name. Exit if there are several."""
    found = sorted(folder.glob(pattern))
    if len(found) > 1:
        sys.exit(f"{folder} has {len(found)} of {pattern}; keep that of the pin: {', '.join(p.name for p in found)}")
    return found[0] if found else None


def main() -> None:
    """Run each reader whose sources are there."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("usage: make upstream-facts SOURCES=<folder of wheels and bare clones> (upstream/README.md)")
    folder = Path(sys.argv[1]).resolve()
    lacking = {}
    for module, patterns in READERS.items():
        found = {pattern: find(folder, pattern) for pattern in patterns}
        if absent := [pattern for pattern, path in found.items() if path is None and pattern not in OPTIONAL]:
            lacking[module] = absent
            continue
        print(f"upstream.{module}:", flush=True)
        paths = [str(path) for path in found.values() if path is not None]
        done = subprocess.run((sys.executable, "-m", f"upstream.{module}", *paths), check=False)
        if done.returncode:
            sys.exit(done.returncode)
    for module, absent in lacking.items():
        print(f"upstream.{module}: not read again, since {folder} has no {', '.join(absent)}")
    if len(lacking) == len(READERS):
        sys.exit(1)


if __name__ == "__main__":
    main()
