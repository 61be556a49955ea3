"""Variables of the manifest, and those that pods get from ConfigMaps, Secrets and fields; missing ones are reported."""

from __future__ import annotations

from typing import Any

import pytest
from builders import group, small_spec, typed

from rljob.api.sources import Initializer
from rljob.cli.local.companion_objects import Surroundings
from rljob.cli.local.variables import Variables

PREPARE = Initializer(name="prepare", command=["true"])
SURROUNDINGS = Surroundings(config_maps={"c": {"K": b"v"}}, secrets={"s": {"K": b"hidden", "L": b"l"}})
FROM = {
    "a": {"configMapKeyRef": {"name": "c", "key": "K"}},
    "b": {"secretKeyRef": {"name": "s", "key": "K"}},
    "HOME_TOKEN": {"secretKeyRef": {"name": "elsewhere", "key": "token"}},
    "NOWHERE": {"secretKeyRef": {"name": "elsewhere", "key": "token"}},
    "ip": {"fieldRef": {"fieldPath": "status.podIP"}},
    "node": {"fieldRef": {"fieldPath": "spec.nodeName"}},
}


def variables() -> Variables:
    return Variables("sums", SURROUNDINGS, {"HOME_TOKEN": "mine"})


def test_values_come_from_the_file_or_the_environment_or_are_listed_as_missing() -> None:
    env = [{"name": name, "valueFrom": source} for name, source in FROM.items()]
    spec = typed(small_spec(group({"template": {"env": env}})))
    ours = variables()
    assert ours.of_workers(spec) == {"a": "v", "b": "hidden", "HOME_TOKEN": "mine", "ip": "127.0.0.1"}
    ours.of_head(spec)
    assert ours.missing == [
        "NOWHERE is not set: key token of Secret elsewhere is not in the file, and your environment has no NOWHERE",
        "node is not set: a local run has no pod with a spec.nodeName",
    ]


def test_all_keys_of_an_object_can_be_taken_with_a_prefix() -> None:
    sources = [
        {"prefix": "P_", "configMapRef": {"name": "c"}},
        {"secretRef": {"name": "s"}},
        {"secretRef": {"name": "elsewhere"}},
    ]
    spec = typed(small_spec(group({"template": {"envFrom": sources}})))
    ours = variables()
    assert ours.of_workers(spec) == {"P_K": "v", "K": "hidden", "L": "l"}
    assert ours.missing == ["Secret elsewhere is not in the file; set its variables in your environment"]


def test_secret_refs_reach_workers_head_and_initializers() -> None:
    references = [
        {"name": "s", "items": [{"key": "L", "env": "TOKEN"}]},
        {"name": "elsewhere", "items": [{"key": "x", "env": "HOME_TOKEN"}]},
        {"name": "unknown"},
    ]
    spec = typed(small_spec({"secretRefs": references}))
    ours = variables()
    expected = {"TOKEN": "l", "HOME_TOKEN": "mine"}
    assert ours.of_workers(spec) == ours.of_head(spec) == ours.of_initializer(spec, PREPARE) == expected
    assert ours.missing == ["Secret unknown is not in the file; set its variables in your environment"]


@pytest.mark.parametrize("placement", ["Pod", "Shared"])
def test_services_are_expected_at_their_ports(placement: str) -> None:
    spec = typed(small_spec({"services": [{"name": "judge", "image": "i", "port": 8000, "placement": placement}]}))
    assert variables().of_workers(spec) == {"RLJOB_SERVICE_JUDGE_URL": "http://localhost:8000"}
    assert variables().of_initializer(spec, PREPARE) == {}


def test_a_private_repository_needs_a_password_and_perhaps_a_name() -> None:
    def entry(name: str, secret: str, *, optional: bool) -> dict[str, Any]:
        return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": "K", "optional": optional}}}

    ours = variables()
    entries = [entry("USER", "elsewhere", optional=True), entry("PASSWORD", "s", optional=False)]
    assert ours.of_code_fetch(entries) == {"PASSWORD": "hidden"}
    assert ours.missing == []
    assert ours.of_code_fetch([entry("PASSWORD", "elsewhere", optional=False)]) == {}
    assert len(ours.missing) == 1


def test_on_one_machine_the_workers_win_for_ray_and_the_head_for_the_launcher() -> None:
    change = group({"template": {"env": [{"name": "A", "value": "worker"}, {"name": "B", "value": "b"}]}})
    spec = typed(small_spec(change | {"head": {"template": {"env": [{"name": "A", "value": "head"}]}}}))
    assert variables().of_workers(spec) == {"A": "worker", "B": "b"}
    assert variables().of_head(spec) == {"A": "head", "B": "b"}
