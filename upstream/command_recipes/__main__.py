"""Write the tables of facts again: `python -m upstream.command_recipes <clone> [<folder>]`.

The clone is one of cann-recipes-train and may be bare. The files that `sources.COPIED` names are read from
`<folder>/<commit>/<path>` if the folder is given.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from upstream.command_recipes.record import record
from upstream.command_recipes.sources import COPIED, REPOSITORY, SOURCES, Source
from upstream.command_recipes.table import FOLDER, Facts, text_of


def read(clone: Path, folder: Path | None, commit: str, path: str) -> str:
    """Return a file of the repository."""
    characters = COPIED.get((commit, path))
    if folder is not None and characters is not None:
        text = (folder / commit / path).read_text()
        if len(text) != characters:
            sys.exit(f"{folder / commit / path} has {len(text)} characters, and the file {characters}: copy it whole")
        return text
    command = ("git", "-C", str(clone), "show", f"{commit}:{path}")
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{path} of commit {commit} is neither in {clone} nor in a folder given as the second argument")
    return done.stdout.decode()


def facts_of(source: Source, clone: Path, folder: Path | None) -> Facts:
    """Return the facts of one script."""
    before = tuple(read(clone, folder, source.before_commit or source.commit, path) for path in source.before)
    module, flags, environment = record(read(clone, folder, source.commit, source.path), before, source.given)
    place = (source.name, REPOSITORY, source.commit, source.path)
    return Facts(*place, module, flags, environment)


def main() -> None:
    """Write all tables."""
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m upstream.command_recipes <clone of cann-recipes-train> [<folder>]")
    folder = Path(sys.argv[2]) if len(sys.argv) == 3 else None
    tables = {source.name: facts_of(source, Path(sys.argv[1]), folder) for source in SOURCES}
    FOLDER.mkdir(exist_ok=True)
    for name, facts in tables.items():
        (FOLDER / f"{name}.yaml").write_text(text_of(facts))
    print(f"{len(tables)} tables")


if __name__ == "__main__":
    main()
