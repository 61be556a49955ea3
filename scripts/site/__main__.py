"""Build the site into build/site/html. `make site` calls it.

python -m scripts.site                        build, strictly: a link to a missing page or heading is an error
python -m scripts.site translations           list the Chinese pages, and which are older than their English ones
python -m scripts.site accept PAGE.zh.md ...  state that these pages agree with their English ones
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path

from scripts.compat import Interpreter, prepare
from scripts.site import translations
from scripts.site.check import foreign_resources
from scripts.site.pages import ROOT, stage
from scripts.site.search import repair_engine, split_index

LOCK = ROOT / "requirements/docs.txt"
BUILT = ROOT / "build/site"
BUILD_SECONDS = 300


def build() -> int:
    """Build the site and return the exit code."""
    count = stage(BUILT / "pages")
    python = prepare(Interpreter(Path(sys.executable), platform.python_version()), LOCK)
    command = [str(python), "-m", "mkdocs", "build", "--strict", "--config-file", str(ROOT / "mkdocs.yml")]
    # Not --quiet, with which MkDocs does not count warnings. The variable suppresses an advertisement of Material.
    done = subprocess.run(
        command,
        cwd=ROOT,
        check=False,
        timeout=BUILD_SECONDS,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        print(*(line for line in done.stdout.splitlines() if not line.startswith("INFO")), sep="\n")
        return done.returncode
    repair_engine(BUILT / "html")
    split_index(BUILT / "html")
    if foreign := foreign_resources(BUILT / "html"):
        print("pages load from elsewhere, so the site does not work offline:", *foreign, sep="\n  ")
        return 1
    print(f"{count} pages in {(BUILT / 'html').relative_to(ROOT)}")
    return 0


def main() -> int:
    """Run the chosen command and return its exit code."""
    parser = argparse.ArgumentParser(prog="scripts.site", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("translations", help="list the Chinese pages and which are stale")
    accept = commands.add_parser("accept", help="state that Chinese pages agree with their English ones")
    accept.add_argument("pages", nargs="+", type=Path)
    chosen = parser.parse_args()
    if chosen.command == "translations":
        print(translations.table())
        return 0
    if chosen.command == "accept":
        for page in chosen.pages:
            translations.accept(page)
        return 0
    return build()


if __name__ == "__main__":
    sys.exit(main())
