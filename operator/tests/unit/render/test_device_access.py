"""No container without devices gets any by a variable."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from builders import IDENTITY, Json, small_spec, typed
from corpus.good import GOOD

from rljob.render.accelerators import facts_of
from rljob.render.export import build_export
from rljob.render.initializer import build_initializer, initializers
from rljob.render.raycluster import build_raycluster
from rljob.render.shared_services import build_shared_services

VOID = {"name": "ASCEND_VISIBLE_DEVICES", "value": "void"}


def containers(change: Json) -> Iterator[Json]:
    """Yield the containers of all objects of a job."""
    spec = typed(small_spec(change))
    cluster = build_raycluster(IDENTITY, spec, 1, "digest")["spec"]
    made = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    made += [build_initializer(IDENTITY, spec, each)["spec"] for each in initializers(spec)]
    made += [each["spec"] for each in build_shared_services(IDENTITY, spec, 1) if each["kind"] == "Deployment"]
    if spec.export is not None:
        made.append(build_export(IDENTITY, spec, spec.export, "e", 2, 1 << 30)["spec"])
    for each in made:
        pod = each["template"]["spec"]
        yield from (*pod["containers"], *pod.get("initContainers", ()))


@pytest.mark.parametrize("change", GOOD.values(), ids=GOOD)
def test_each_container_has_devices_or_says_that_it_has_none(change: Json) -> None:
    resource = facts_of(typed(small_spec(change))).resource
    for container in containers(change):
        named = [entry for entry in container.get("env", ()) if entry["name"] == VOID["name"]]
        holds = resource in container.get("resources", {}).get("limits", {})
        assert named == ([] if holds else [VOID]), container["name"]
        assert not holds or container["name"] == "ray-worker"
