"""Golden manifests: every change of rendered objects is visible in review, byte by byte.

RLJOB_WRITE_GOLDEN=1 pytest operator/tests/golden rewrites them. A change means that the same spec renders differently:
increase `labels.RENDERER_VERSION` with it, once a version has been released.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import EXAMPLES
from rendered import render

FOLDER = Path(__file__).parent
JOBS = sorted(
    [
        *(FOLDER / "jobs").glob("*.yaml"),
        EXAMPLES / "ascend/a3-superpod-host-network.yaml",
        EXAMPLES / "qwen3-32b-async.yaml",
        EXAMPLES / "qwen3-235b-separate.yaml",
    ],
    key=lambda path: path.name,
)
"""Each shows something that no other does; what examples and recipes say is judged by the tests of validation."""
RENDERED = [
    *JOBS,
    *(EXAMPLES / name for name in ("qwen3-235b.yaml", "deepseek-v3.yaml")),
    *sorted((EXAMPLES / "recipes").glob("*.yaml")),
    *sorted((EXAMPLES / "ascend").glob("*.yaml")),
]
"""Jobs whose containers are read, too."""
USERS = ("warm", "log-shipper")
"""Containers of templates in the jobs, whose resources are the user's."""


def text(documents: Iterable[dict[str, Any]]) -> str:
    """Return the objects as a golden file has them."""
    return "---\n".join(yaml.dump(each, Dumper=_Plain, sort_keys=False, width=120) for each in documents)


class _Plain(yaml.SafeDumper):
    """YAML without anchors, so that each object is complete."""

    def ignore_aliases(self, data: object) -> bool:
        """Never alias."""
        del data
        return True


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_job_renders_to_its_golden_manifests(path: Path) -> None:
    golden, rendered = FOLDER / path.name, text(render(yaml.safe_load(path.read_text())))
    if os.environ.get("RLJOB_WRITE_GOLDEN"):
        golden.write_text(rendered)
    assert rendered == golden.read_text()


def test_every_golden_file_belongs_to_a_job() -> None:
    assert sorted(path.name for path in FOLDER.glob("*.yaml")) == [path.name for path in JOBS]


def pods(value: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - JSON
    """Return every pod spec below a manifest."""
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield value
        for member in value.values():
            yield from pods(member)
    elif isinstance(value, list):
        for member in value:
            yield from pods(member)


@pytest.mark.parametrize("path", sorted(set(RENDERED)), ids=lambda path: path.stem)
def test_every_container_of_ours_has_requests_and_limits(path: Path) -> None:
    """A ResourceQuota on limits.cpu, for example, refuses a pod with a single container that has no such limit."""
    documents = render(yaml.safe_load(path.read_text()))
    made = [pod for each in documents if each.get("kind") in ("RayCluster", "Job") for pod in pods(each["spec"])]
    assert made
    for pod in made:
        # Containers of the user are passed on as they are.
        ours = [each for each in (*pod["containers"], *pod.get("initContainers", ())) if each["name"] not in USERS]
        lacking = {
            (each["name"], kind, resource)
            for each in ours
            for kind in ("requests", "limits")
            for resource in ("cpu", "memory")
            if resource not in each["resources"][kind]
        }
        assert lacking == set()
