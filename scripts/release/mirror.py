"""Copy all images of an installation into a registry of your own: `python -m scripts.release.mirror --to REGISTRY`.

It prints the commands; `--run` runs them, each with a deadline, and continues with the next image if one fails. Images
keep their repository and tag below the registry, so that the chart finds them by `image.registry`.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.release.images import ROOT, read_names

LIST = ROOT / "deploy/images.txt"
COPY_SECONDS = 3600
TOOLS = {
    "skopeo": ("skopeo", "copy", "--all", "docker://{source}", "docker://{target}"),
    "crane": ("crane", "copy", "{source}", "{target}"),
    "oras": ("oras", "copy", "--recursive", "{source}", "{target}"),
}
"""Tool -> its command that copies an image with all its platforms."""


def target_of(name: str, registry: str) -> str:
    """Return the name of an image in the mirror: without its own registry, below the mirror's."""
    return f"{registry.rstrip('/')}/{name.partition('/')[2]}"


def commands(names: Sequence[str], registry: str, tool: str) -> list[list[str]]:
    """Return one command for each image."""
    return [[word.format(source=name, target=target_of(name, registry)) for word in TOOLS[tool]] for name in names]


def main(words: Sequence[str] | None = None) -> int:
    """Print or run the commands; 1 if one failed, 2 if they cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m scripts.release.mirror", description=__doc__)
    parser.add_argument("--to", required=True, metavar="REGISTRY", help="registry, or a folder of it")
    parser.add_argument(
        "--images", type=Path, default=LIST, metavar="FILE", help="list of images; default: %(default)s"
    )
    parser.add_argument("--tool", choices=TOOLS, default="skopeo", help="default: %(default)s")
    parser.add_argument("--run", action="store_true", help="copy instead of printing the commands")
    chosen = parser.parse_args(words)
    try:
        names = read_names(chosen.images.read_text())
    except OSError as error:
        parser.error(f"--images {chosen.images}: {error.strerror}")
    if not names:
        parser.error(f"--images {chosen.images}: no images; each line is one name")
    failed = []
    for name, command in zip(names, commands(names, chosen.to, chosen.tool), strict=True):
        print(shlex.join(command), flush=True)
        if chosen.run and not copied(command):
            failed.append(name)
    operator = next((target_of(name, chosen.to) for name in names if "/operator:" in name), "")
    print(f"# helm install: --set image.registry={operator.rpartition('/operator:')[0]}", flush=True)
    if failed:
        print(f"not copied: {', '.join(failed)}; the same command copies them again", file=sys.stderr)
    return 1 if failed else 0


def copied(command: Sequence[str]) -> bool:
    """Run one command and report whether it succeeded."""
    try:
        return subprocess.run(command, check=False, timeout=COPY_SECONDS).returncode == 0
    except FileNotFoundError:
        print(f"{command[0]} is not installed; install it, or choose another by --tool", file=sys.stderr)
    except subprocess.TimeoutExpired:
        print(f"{command[-1]}: not copied within {COPY_SECONDS} s", file=sys.stderr)
    return False


if __name__ == "__main__":
    sys.exit(main())
