"""Which images of a node may be removed."""

from __future__ import annotations

from tests.cluster.imagestore import superseded


def test_only_untagged_images_of_earlier_builds_go() -> None:
    images = {
        "rljob.local/operator:dev": "sha256:new",
        "sha256:config-of-new": "sha256:new",
        "sha256:config-of-old": "sha256:old",
    }
    assert superseded(images) == ["sha256:config-of-old"]
