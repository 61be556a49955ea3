"""Create docs/images/report.png, the picture in the README, from the report of the recorded run.

`PYTHONPATH=operator/tests python -m tests.report`
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import recorded

from rljob.cli.report.write_report import write_report
from tests.report import browser

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "report.png"
SIZE = (1280, 950)


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write_report(recorded.run(), page)
        browser.picture(page, PICTURE, SIZE)


if __name__ == "__main__":
    main()
