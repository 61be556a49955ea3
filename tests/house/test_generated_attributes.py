"""Generated files are marked in .gitattributes, so that reviews collapse them."""

import subprocess

from scripts.artifact_hub import CHART
from scripts.generate import OTHERS_WITH_CODE, QUICKSTART, ROOT, SCRAPE_CONFIG, generated_files

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


def marked(paths: list[str]) -> set[str]:
    """Return the paths with the attribute linguist-generated."""
    shown = subprocess.run(
        ["git", "check-attr", "-z", "linguist-generated", "--", *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    return {path for path, _, value in zip(shown[::3], shown[1::3], shown[2::3], strict=False) if value == "set"}


def test_generated_files_are_marked() -> None:
    # The examples are written by hand but for their last documents, the scrape configuration but for its names, and
    # Chart.yaml but for some annotations.
    mixed = (*OTHERS_WITH_CODE, QUICKSTART, SCRAPE_CONFIG, CHART)
    generated = [str(path.relative_to(ROOT)) for path in generated_files() if path not in mixed]
    expected = {*generated, *LOCKS_AND_GOLDENS}
    assert expected - marked(sorted(expected)) == set()


def test_hand_written_files_are_not_marked() -> None:
    assert marked(list(HAND_WRITTEN)) == set()
