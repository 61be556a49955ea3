"""Files that other programs write are marked in .gitattributes, so that reviews collapse them.

`python -m scripts.generate --check` judges those that it writes itself.
"""

from pathlib import Path

from scripts.generate import ROOT, unmarked

LOCKS_AND_GOLDENS = (
    "requirements/operator.txt",
    "operator/tests/golden/small-cpu.yaml",
    "tests/chart/golden/default.yaml",
    "runtime/tests/upstream/rules.json",
    "tests/cluster/programs/kube/go.sum",
)
HAND_WRITTEN = (
    "docs/reference/definitions.md",
    "requirements/operator.in",
    "operator/tests/golden/jobs/small-cpu.yaml",
)


def paths(names: tuple[str, ...]) -> list[Path]:
    return [ROOT / name for name in names]


def test_locks_and_goldens_are_marked() -> None:
    assert unmarked(paths(LOCKS_AND_GOLDENS)) == []


def test_hand_written_files_are_not_marked() -> None:
    assert unmarked(paths(HAND_WRITTEN)) == paths(HAND_WRITTEN)
