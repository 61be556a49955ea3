"""Releases that work together: the runtime's own table, for components that job.json does not restrict.

Versions of Ascend components mix numbers and words (`25.3.rc1.2`, `8.3.RC1`, `2.10.0.post4`): a release candidate comes
before its release, a post release after it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_WORDS = {"alpha": -3, "beta": -2, "rc": -1, "post": 1}


@dataclass(frozen=True)
class VersionRule:
    """A release of one component and the minimum version of another one that it needs."""

    part: str
    begins: str
    """Prefix of the release's version."""
    needs: str
    minimum: str
    source: str
    since: str = "0"
    """The first release with this prefix that needs it."""


_VLLM_ASCEND = "vllm-ascend, versioning_policy.md"
_VERL = "verl, Ascend installation guide"
_MIND = "MindCluster 26.1, supported driver releases"
TABLE = (
    VersionRule("torch_npu", "2.10.", "cann", "9.0.0", _VLLM_ASCEND),
    VersionRule("torch_npu", "2.10.0.post", "cann", "9.0.1", _VLLM_ASCEND, since="2.10.0.post2"),
    VersionRule("torch_npu", "2.10.0.post", "cann", "9.1.0", _VLLM_ASCEND, since="2.10.0.post4"),
    VersionRule("torch_npu", "2.9.", "cann", "8.5.0", _VLLM_ASCEND),
    VersionRule("torch_npu", "2.9.0.post", "cann", "8.5.1", _VLLM_ASCEND),
    VersionRule("torch_npu", "2.8.", "cann", "8.3.rc2", _VLLM_ASCEND),
    VersionRule("torch_npu", "2.8.0.post", "cann", "8.5.0", _VLLM_ASCEND),
    VersionRule("torch_npu", "2.7.1", "cann", "8.3.rc1", _VERL),
    VersionRule("cann", "9.", "driver", "25.5.0", _MIND),
    VersionRule("cann", "9.1", "driver", "26.0.rc1", _VERL),
    VersionRule("cann", "8.5", "driver", "25.3.rc1", _VERL),
    VersionRule("cann", "8.3", "driver", "25.3.rc1", "verl/utils/device.py, check_ipc_version_support"),
)
"""Of the rows that a release matches, the newest minimum counts. The rows of torch_npu are those of vllm-ascend
182b75ea, docs/source/community/versioning_policy.md:26-47; CANN 9.1's driver is that of verl 1dda039b,
docs/ascend_tutorial/get_start/install_guidance.rst:85-86."""


def sort_key(version: str) -> tuple[tuple[int, int], ...]:
    """Return the sort key of a version."""
    key: list[tuple[int, int]] = []
    for word, digits in re.findall(r"([a-z]+)?(\d*)", version.lower()):
        if word:
            key.append((_WORDS.get(word, 0), int(digits or 0)))
        elif digits:
            key.append((0, int(digits)))
    return tuple(key)


def older(version: str, minimum: str) -> bool:
    """Return whether a version comes before another. Missing parts count as zero."""
    left, right = sort_key(version), sort_key(minimum)
    length = max(len(left), len(right))
    fill = ((0, 0),) * length
    return (left + fill)[:length] < (right + fill)[:length]


def minimums(seen: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Return the minimums for a node's releases: component -> (minimum, why)."""
    wanted: dict[str, tuple[str, str]] = {}
    for row in TABLE:
        version = seen.get(row.part, "")
        matches = version.lower().startswith(row.begins) and not older(version, row.since)
        if matches and (row.needs not in wanted or older(wanted[row.needs][0], row.minimum)):
            wanted[row.needs] = (row.minimum, f"{row.part} {version} ({row.source})")
    return wanted
