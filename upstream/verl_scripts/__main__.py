"""Write the tables of flags again, from a clone of verl: `python -m upstream.verl_scripts <verl.git>`.

The clone may be bare; it must have the commit of `table.COMMIT`. Scripts that say in their path or their code that they
are for NPUs are taken if they call verl's trainer once; the others are listed in a file beside the tables.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import yaml

from upstream.megatron_names import git
from upstream.verl_scripts.record import TRAINER, record
from upstream.verl_scripts.table import COMMIT, FOLDER, HEADER, OTHERS, file_of, script_of, text_of

FOLDERS = ("examples", "tests/special_npu", "tests/special_e2e")
FOR_NPUS = re.compile(r"(?<![a-z])npu|ascend|mindspeed", re.IGNORECASE)
COMMENT = re.compile(r"^\s*#.*$", re.MULTILINE)


def write_tables(clone: Path, commit: str, folder: Path, others: Path) -> None:
    """Write a table per script into a folder, and the list of scripts without a table."""
    paths = git(clone, "ls-tree", "-r", "--name-only", commit, *FOLDERS).splitlines()
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.yaml"):
        old.unlink()
    without = []
    for path in (path for path in paths if path.endswith(".sh")):
        text = git(clone, "show", f"{commit}:{path}")
        if not FOR_NPUS.search(path + COMMENT.sub("", text)):
            continue
        calls = record(Path(path).name, text)
        if len(calls) == 1:
            (folder / file_of(path)).write_text(text_of(script_of(path, calls[0])))
        else:
            without.append(path)
    others.write_text(HEADER + yaml.safe_dump(without))
    print(f"{len(list(folder.glob('*.yaml')))} tables; {len(without)} scripts without a single call of {TRAINER}")


def main() -> None:
    """Write all tables."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: python -m upstream.verl_scripts <clone of verl that has {COMMIT}>")
    write_tables(Path(sys.argv[1]), COMMIT, FOLDER, OTHERS)


if __name__ == "__main__":
    main()
