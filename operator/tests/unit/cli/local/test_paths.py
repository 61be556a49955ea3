"""Pod paths become folders: whole paths by the longest mount, and text where a mount path stands alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from rljob.cli.local.paths import Mount, MountMap

MOUNTS = MountMap(
    (Mount("/data", Path("/w/volumes/d")), Mount("/data/logs", Path("/w/logs")), Mount("/code", Path("/c")))
)


@pytest.mark.parametrize(
    ("pod", "local"),
    [
        ("/data", "/w/volumes/d"),
        ("/data/model", "/w/volumes/d/model"),
        ("/data/logs/x", "/w/logs/x"),
        ("/data2/model", "/data2/model"),
        ("/models/data", "/models/data"),
    ],
)
def test_the_longest_mount_decides_about_a_path(pod: str, local: str) -> None:
    assert MOUNTS.path(pod) == local
    assert MOUNTS.covers(pod) == (pod != local)


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("python /code/prepare.py --out=/data/x", "python /c/prepare.py --out=/w/volumes/d/x"),
        ("/data:/code", "/w/volumes/d:/c"),
        ("file:///data/train.parquet", "file:///w/volumes/d/train.parquet"),
        ("a='/data/logs'", "a='/w/logs'"),
        ("/data-2 /data.bak /mnt/data x/code ./code", "/data-2 /data.bak /mnt/data x/code ./code"),
        ("https://host/data/x", "https://host/data/x"),
    ],
)
def test_a_text_changes_only_where_a_mount_path_stands_on_its_own(text: str, local: str) -> None:
    assert MOUNTS.text(text) == local


def test_without_mounts_nothing_changes() -> None:
    assert MountMap(()).text("/data") == "/data"
    assert MountMap(()).path("/data") == "/data"
