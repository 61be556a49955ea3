"""Write the tables of conditions from wheels, unpacked packages or bare clones, in the order of `SOURCES`.

Run it when a pin changes, then judge what is new in `verdicts` and run `make generate`:

    python -m upstream.conditions <verl> <vllm-ascend> <MindSpeed.git> <megatron-core>
"""

from __future__ import annotations

import sys
from pathlib import Path

from upstream.conditions.sources import SOURCES
from upstream.conditions.table import found, path_of, upstream_files, written


def main() -> None:
    """Write every table."""
    places = [Path(word) for word in sys.argv[1:]]
    if len(places) != len(SOURCES):
        names = ", ".join(f"{source.name} {source.version}" for source in SOURCES)
        sys.exit(f"got {len(places)} paths; pass one for each of {names}")
    for source, place in zip(SOURCES, places, strict=True):
        files = upstream_files(source, place)
        if not files:
            sys.exit(f"{place} has none of the files of {source.name} {source.version}; pass a wheel, folder or clone")
        rows = found(source, files)
        path_of(source).parent.mkdir(exist_ok=True)
        path_of(source).write_text(written(rows))
        print(f"wrote {path_of(source).name}: {len(rows)} conditions in {len(files)} files")


if __name__ == "__main__":
    main()
