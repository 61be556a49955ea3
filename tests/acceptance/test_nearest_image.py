"""`rljob check-image --deep` of an image with the releases that distinguish verl's published images from ours."""

from __future__ import annotations

import re

import pytest

from tests.e2e.test_image_check import check
from tests.kube import Kube

pytestmark = [pytest.mark.e2e, pytest.mark.training, pytest.mark.timeout(600)]

IMAGE = "rljob.local/runtime:nearest"
OUTSIDE = {"transformers": ("5.3.0", ">=5.5.3"), "numpy": ("1.26.4", ">=2.0.0")}
"""Release in the image, and the range of verl 0.9.1 that it is outside of."""


def test_everything_is_imported_and_what_is_outside_of_upstreams_ranges_is_untried(kube: Kube) -> None:
    code, found = check(IMAGE, kube.namespace, deep=True)
    assert "launchers" in found, found
    headlines = [found["launchers"][name]["headline"] for name in ("Verl", "Command")]
    assert (*headlines, code) == ("untried", "fits", 3), found
    (imports,) = [row["seen"] for row in found["rows"] if row["subject"] == "imports"]
    assert re.fullmatch(r"(\d+) of \1 modules", imports), found
    seen = {row["subject"]: row["seen"] for row in found["rows"]}
    reasons = found["launchers"]["Verl"]["reasons"]
    assert len(reasons) == len(OUTSIDE), reasons
    for name, (release, known) in OUTSIDE.items():
        assert seen[name] == release
        (reason,) = [text for text in reasons if text.startswith(f"{name}:")]
        assert "not tried" in reason, reason
        assert known in reason, reason
