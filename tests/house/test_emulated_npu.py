"""The emulated NPU stays in tests, and has the sources and the claims that it names."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from rljob.cli.conformance.claims import CLAIMS
from tests.emulated_npu import mindspeed

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("operator/src", "runtime/src", "charts", "images", "crds", "examples")


def test_the_product_does_not_name_it() -> None:
    words = ("git", "grep", "-lE", "emulated[-_]npu|ascend-emulated", "--", *PRODUCT)
    assert subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False).stdout == ""


def test_mindspeed_is_that_of_the_ascend_image() -> None:
    assert f"ARG MINDSPEED_COMMIT={mindspeed.COMMIT}" in (ROOT / "images/runtime/ascend/Dockerfile").read_text()


def test_what_it_cannot_show_is_claimed_on_npus() -> None:
    table = (ROOT / "tests/emulated_npu/README.md").read_text().partition("## What it cannot show")[2]
    claimed = {name for row in table.splitlines() if row.startswith("| ") for name in re.findall("`([a-z-]+)`", row)}
    assert claimed - {"enforce_eager"} <= {claim.id for claim in CLAIMS}
