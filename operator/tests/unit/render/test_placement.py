"""Workers that should be close to each other if no queue places them."""

from __future__ import annotations

import pytest
from builders import IDENTITY, Json, group, merged, small_spec, typed

from rljob.core.validation.validate import warnings_of
from rljob.launchers import LAUNCHER
from rljob.render.accelerators import SUPER_POD
from rljob.render.placement import requires_domain
from rljob.render.raycluster import build_raycluster

A3 = merged(small_spec(group({"nodes": 4, "devicesPerNode": 16})), {"accelerator": {"class": "atlas-a3-superpod"}})
RACK = "example.com/rack"
OTHERS = {"matchLabels": {"ray.io/cluster": "sums-0a1b2-1", "ray.io/node-type": "worker"}}
REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))


def wish(spec: Json, scheduling: Json | None = None, **topology: object) -> Json:
    return merged(spec, {"scheduling": {"topology": topology} | (scheduling or {})})


def near(spec: Json, part: str = "workers") -> Json:
    """Return the pod affinity of a part."""
    made = build_raycluster(IDENTITY, typed(spec), 1, "digest")["spec"]
    pods = made["headGroupSpec"] if part == "head" else made["workerGroupSpecs"][0]
    found: Json = pods["template"]["spec"].get("affinity", {}).get("podAffinity", {})
    return found


def required(level: str) -> Json:
    return {REQUIRED: [{"labelSelector": OTHERS, "topologyKey": level}]}


def preferred(level: str) -> Json:
    return {PREFERRED: [{"weight": 100, "podAffinityTerm": {"labelSelector": OTHERS, "topologyKey": level}}]}


@pytest.mark.parametrize(
    ("topology", "affinity"),
    [
        ({}, {}),
        ({"level": RACK}, preferred(RACK)),
        ({"level": RACK, "mode": "Required"}, required(RACK)),
        ({"mode": "Required"}, required(SUPER_POD)),
        ({"nodesPerSuperPodBlock": 4}, preferred(SUPER_POD)),
        ({"nodesPerSuperPodBlock": 4, "mode": "Required"}, required(SUPER_POD)),
        ({"nodesPerSuperPodBlock": 4, "level": RACK}, preferred(RACK)),
        ({"nodesPerSuperPodBlock": 2, "mode": "Required"}, {}),
    ],
)
def test_workers_are_kept_in_one_domain(topology: Json, affinity: Json) -> None:
    assert near(wish(A3, **topology)) == affinity
    assert near(wish(A3, **topology), "head") == {}
    assert requires_domain(typed(wish(A3, **topology))) is (REQUIRED in affinity)


@pytest.mark.parametrize("scheduling", [{"queueName": "cards"}, {"gang": "Volcano"}])
def test_where_somebody_else_places_them_they_are_left_alone(scheduling: Json) -> None:
    assert near(wish(A3, scheduling, level=RACK, mode="Required")) == {}


def test_the_users_own_affinity_stays() -> None:
    own = {REQUIRED: [{"labelSelector": {}, "topologyKey": "example.com/room"}]}
    template = {"template": {"affinity": {"podAffinity": own}}}
    spec = merged(A3, group({"nodes": 4, "devicesPerNode": 16, **template}))
    assert near(wish(spec, level=RACK, mode="Required"))[REQUIRED] == [*own[REQUIRED], *required(RACK)[REQUIRED]]
    assert near(spec) == own


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (wish(A3, nodesPerSuperPodBlock=2), True),
        (wish(A3, nodesPerSuperPodBlock=4), False),
        (wish(A3, {"queueName": "cards"}, nodesPerSuperPodBlock=2), False),
        (wish(A3, {"gang": "Volcano"}, nodesPerSuperPodBlock=2), False),
        (wish(A3, level=RACK), False),
    ],
)
def test_blocks_beyond_node_affinity_are_a_warning_with_the_schedulers_that_can(spec: Json, *, told: bool) -> None:
    words = [str(warning) for warning in warnings_of(typed(spec), LAUNCHER) if "nodesPerSuperPodBlock" in str(warning)]
    assert len(words) == told
    assert all("scheduling.queueName" in text and "Volcano" in text for text in words)
