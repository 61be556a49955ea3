"""Leftovers of the cluster are identified only by their paths and marks."""

from pathlib import Path

from tests.cluster.leaks import Leftovers, mounts_below

MOUNTINFO = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:25 / /run rw - tmpfs tmpfs rw
40 22 0:30 / /var/lib/rljob-cluster/a rw - tmpfs tmpfs rw
41 40 0:31 / /var/lib/rljob-cluster/a/with\\040space rw - tmpfs tmpfs rw
42 30 0:4 mnt:[4026532] /run/rljob-cluster/node-1/mount-namespace rw - nsfs nsfs rw
43 22 0:32 / /var/lib/rljob-cluster-of-another rw - tmpfs tmpfs rw
"""
FOLDERS = (Path("/var/lib/rljob-cluster"), Path("/run/rljob-cluster"))


def test_mounts_below_our_folders_are_found_the_last_first() -> None:
    assert mounts_below(MOUNTINFO, FOLDERS) == [
        Path("/run/rljob-cluster/node-1/mount-namespace"),
        Path("/var/lib/rljob-cluster/a/with space"),
        Path("/var/lib/rljob-cluster/a"),
    ]


def test_a_folder_with_a_longer_name_is_not_ours() -> None:
    assert mounts_below(MOUNTINFO, (Path("/var/lib/rljob"),)) == []


def test_each_leftover_has_a_line_of_its_own() -> None:
    left = Leftovers(
        processes=(),
        mounts=(Path("/m"),),
        namespaces=("rljob-node-2",),
        links=("rljob1", "veth1"),
        cgroups=(),
        tables=(),
        files=(),
    )
    assert left.lines() == ["mount /m", "network namespace rljob-node-2", "interface rljob1", "interface veth1"]
