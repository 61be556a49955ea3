"""Read upstream sources and the generated tables, one TSV file per source with a row per condition."""

from __future__ import annotations

import csv
import io
import subprocess
import zipfile
from pathlib import Path

from upstream.conditions.extract import Condition, conditions
from upstream.conditions.sources import SOURCES, Source

TABLES = Path(__file__).resolve().parent / "tables"
COLUMNS = ("file", "function", "digest", "line", "kind", "condition")


def path_of(source: Source) -> Path:
    """Return the file of a source's table."""
    return TABLES / f"{source.name.lower()}.tsv"


def upstream_files(source: Source, place: Path) -> dict[str, str]:
    """Return the text of every file in scope from a wheel, a folder, or a bare clone."""
    if zipfile.is_zipfile(place):
        wheel = zipfile.ZipFile(place)
        return {name: wheel.read(name).decode() for name in sorted(wheel.namelist()) if source.reads(name)}
    if (place / "objects").is_dir():
        names = _git(place, "ls-tree", "-r", "--name-only", source.version).splitlines()
        return {name: _git(place, "show", f"{source.version}:{name}") for name in names if source.reads(name)}
    return source.files(place)


def _git(clone: Path, *words: str) -> str:
    return subprocess.run(("git", "-C", str(clone), *words), check=True, capture_output=True, text=True).stdout


def found(source: Source, files: dict[str, str]) -> list[Condition]:
    """Return the conditions of the files of a source."""
    return [
        condition
        for name, text in sorted(files.items())
        for condition in conditions(text, name, whole=source.is_whole(name))
    ]


def written(rows: list[Condition]) -> str:
    """Return the text of a table."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE, escapechar="\\")
    writer.writerow(COLUMNS)
    writer.writerows((row.file, row.function, row.digest, row.line, row.kind, row.text) for row in rows)
    return out.getvalue()


def read(source: Source) -> list[Condition]:
    """Return the rows of a committed table."""
    lines = path_of(source).read_text().splitlines()
    rows = csv.reader(lines[1:], delimiter="\t", quoting=csv.QUOTE_NONE, escapechar="\\")
    return [
        Condition(file, function, digest, int(line), kind, text) for file, function, digest, line, kind, text in rows
    ]


def every() -> dict[Source, list[Condition]]:
    """Return all committed tables."""
    return {source: read(source) for source in SOURCES}
