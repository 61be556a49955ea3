"""A patch whose values have other shapes than those of core/v1 is refused: the renderer reads into them."""

from __future__ import annotations

import pytest
from builders import Json, small_spec, validate

HEAD = "spec.podSpecPatch.head"
RAY = f"{HEAD}.containers[0]"


def of_ray(**fields: object) -> Json:
    return {"containers": [{"name": "ray-head", **fields}]}


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"securityContext": "x"}, f"{HEAD}.securityContext"),
        ({"securityContext": [1]}, f"{HEAD}.securityContext"),
        ({"securityContext": 5}, f"{HEAD}.securityContext"),
        (of_ray(securityContext="x"), f"{RAY}.securityContext"),
        (of_ray(securityContext={"capabilities": [1]}), f"{RAY}.securityContext.capabilities"),
        (of_ray(securityContext={"capabilities": {"add": [[1]]}}), f"{RAY}.securityContext.capabilities.add"),
        (of_ray(securityContext={"capabilities": {"add": 5}}), f"{RAY}.securityContext.capabilities.add"),
        (of_ray(resources="x"), f"{RAY}.resources"),
        (of_ray(resources={"limits": ["x"]}), f"{RAY}.resources.limits"),
        (of_ray(readinessProbe=1), f"{RAY}.readinessProbe"),
        (of_ray(volumeMounts=[{"mountPath": "/dev/shm", "readOnly": True}]), f"{RAY}.volumeMounts[0].name"),
    ],
)
def test_it_is_refused(patch: Json, field: str) -> None:
    checked = validate("sums", small_spec({"podSpecPatch": {"head": patch}}))
    assert [violation.field for violation in checked.violations] == [field]


def test_a_mount_may_be_removed_by_its_path() -> None:
    patch = of_ray(volumeMounts=[{"mountPath": "/dev/shm", "$patch": "delete"}])
    assert validate("sums", small_spec({"podSpecPatch": {"head": patch}})).violations == ()
