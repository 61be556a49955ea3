"""Copy what an installation without access to the internet needs: `python -m scripts.release.mirror --to REGISTRY`.

Images go into a registry of your own; charts, the packages of the images' builds, and the models and data sets of the
built-in recipes into a folder. It prints the commands; `--run` runs them, each with a deadline, and continues with the
next one if one fails. Images keep their repository and tag below the registry, so that the chart finds them by
`image.registry`.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime.contract.downloads import Hub
from scripts.release import charts, models, packages
from scripts.release.images import LOCAL_REGISTRY, ROOT, read_names

LIST = ROOT / "deploy/images.txt"
COPY_SECONDS = 12 * 3600
"""Of one command. The largest is a model of some hundred gigabytes."""
TOOLS = {
    "skopeo": ("skopeo", "copy", "--all", "docker://{source}", "docker://{target}"),
    "crane": ("crane", "copy", "{source}", "{target}"),
    "oras": ("oras", "copy", "--recursive", "{source}", "{target}"),
    "cosign": ("cosign", "copy", "{source}", "{target}"),
}
"""Tool -> its command that copies an image with all its platforms. Only cosign copies its own signatures, too."""
PARTS = ("images", "charts", "packages", "models")
OF_RELEASE = ("images", "charts")
"""Parts that the list of images determines."""


@dataclass(frozen=True)
class Part:
    """Commands that belong together."""

    title: str
    commands: dict[str, list[str]]
    """What a command copies -> the command."""
    use: str
    """How the copies are used."""


def target_of(name: str, registry: str) -> str:
    """Return the name of an image in the mirror: without its own registry, below the mirror's."""
    return f"{registry.rstrip('/')}/{name.partition('/')[2]}"


def commands(names: Sequence[str], registry: str, tool: str) -> dict[str, list[str]]:
    """Return one command for each image."""
    return {
        name: [word.format(source=name, target=target_of(name, registry)) for word in TOOLS[tool]] for name in names
    }


def parts(names: Sequence[str], chosen: argparse.Namespace) -> dict[str, Part]:
    """Return everything that can be copied."""
    operator = charts.operator_image(names)
    registry = target_of(operator, chosen.to).rpartition("/operator:")[0] if operator else ""
    found = chosen.folder / "packages"
    return {
        "images": Part(
            "images", commands(names, chosen.to, chosen.tool), f"helm install: --set image.registry={registry}"
        ),
        "charts": Part(
            "charts",
            charts.commands(chosen.folder / "charts", names),
            f"helm install: name the files in {chosen.folder / 'charts'}; image.repository is KubeRay's in the mirror",
        ),
        "packages": Part(
            "Python packages, only to build images",
            packages.commands(found),
            f"serve {found} as an index, as pypi-server does, and build with PIP_INDEX_URL and UV_INDEX_URL set",
        ),
        "models": Part(
            "models and data sets of the built-in recipes",
            models.commands(chosen.folder, Hub(chosen.hub)),
            "copy them to a volume of the jobs; download: {source: Path, path: FOLDER ON THE VOLUME, to: ...}",
        ),
    }


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m scripts.release.mirror", description=__doc__)
    made.add_argument("--to", required=True, metavar="REGISTRY", help="registry, or a folder of it, for images")
    made.add_argument("--images", type=Path, default=LIST, metavar="FILE", help="list of images; default: %(default)s")
    made.add_argument("--tool", choices=TOOLS, default="skopeo", help="copies images; default: %(default)s")
    made.add_argument("--folder", type=Path, default=Path("mirror"), help="for everything else; default: %(default)s")
    hubs = [hub.value for hub in Hub]
    made.add_argument("--hub", choices=hubs, default=hubs[0], help="of models and data sets; default: %(default)s")
    made.add_argument("--only", choices=PARTS, action="append", help="part to copy; default: all; repeatable")
    made.add_argument("--run", action="store_true", help="copy instead of printing the commands")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Print or run the commands; 1 if one failed, 2 if they cannot be made."""
    reader = parser()
    chosen = reader.parse_args(words)
    try:
        names = read_names(chosen.images.read_text())
    except OSError as error:
        reader.error(f"--images {chosen.images}: {error.strerror}")
    if not names:
        reader.error(f"--images {chosen.images}: no images; each line is one name")
    selected = chosen.only or PARTS
    local = next((name for name in names if name.startswith(f"{LOCAL_REGISTRY}/")), "")
    if local and not set(OF_RELEASE).isdisjoint(selected):
        problem = f"{local} is an image of a checkout, and in no registry"
        reader.error(f"--images {chosen.images}: {problem}; name the images.txt of a release by --images")
    failed = []
    for name, part in parts(names, chosen).items():
        if name not in selected:
            continue
        print(f"# {part.title}", flush=True)
        for what, command in part.commands.items():
            print(shlex.join(command), flush=True)
            if chosen.run and not copied(command):
                failed.append(what)
        print(f"# {part.use}", flush=True)
    if failed:
        print(f"not copied: {', '.join(failed)}; the same command copies them again", file=sys.stderr)
    return 1 if failed else 0


def copied(command: Sequence[str]) -> bool:
    """Run one command and report whether it succeeded."""
    try:
        return subprocess.run(command, check=False, timeout=COPY_SECONDS).returncode == 0
    except FileNotFoundError:
        others = "install it, or choose another by --tool" if command[0] in TOOLS else "install it"
        hint = "install uv, which has it" if command[0] == "uvx" else others
        print(f"{command[0]} is not on PATH; {hint}", file=sys.stderr)
    except subprocess.TimeoutExpired:
        print(f"{command[-1]}: not copied within {COPY_SECONDS} s", file=sys.stderr)
    return False


if __name__ == "__main__":
    sys.exit(main())
