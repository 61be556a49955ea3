"""The operator's PodGroups against the schemas of Volcano's releases: each uses only fields that the release has.

The CRDs come from Volcano's own Go modules, fetched by name. There are none of Volcano 1.9 and 1.12, which Ascend's
plug-in is also built for: 1.10 has the PodGroup of 1.9, and the Go types show the fields of 1.9 and 1.13.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import BUILT_IN_RECIPES, IDENTITY, Json, merged
from schema_check import violations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cluster.kinds import POD_GROUP
from rljob.cluster.manifests import spec_fields
from rljob.core.validation.validate import validate
from rljob.launchers import LAUNCHER
from rljob.render.accelerators import BUILT_IN
from rljob.render.podgroup import NEWEST_FIELDS, TOPOLOGY, build_pod_group
from rljob.render.raycluster import build_raycluster
from tests.cluster import programs

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "operator/tests/golden/jobs/volcano-a3-superpod.yaml"
LEVELS: tuple[Json, ...] = (
    {"level": None},
    {"level": "2", "mode": "Required"},
    {"level": "0"},
    {"level": "volcano.sh/hypernode", "mode": "Required"},
)
CRDS = {
    "v1.10.0": frozenset[str](),
    "v1.14.1": NEWEST_FIELDS,
    "v1.15.0": NEWEST_FIELDS,
}
TYPES = {"v1.9.0": frozenset[str](), "v1.13.0": frozenset({TOPOLOGY}), "v1.14.0": NEWEST_FIELDS}
"""Versions of volcano.sh/apis."""
QUANTITY = "x-kubernetes-int-or-string"


@cache
def schema(version: str) -> Json:
    """Return the schema of a PodGroup."""
    path = "config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml"
    crd = yaml.safe_load((programs.module("volcano.sh/volcano", version) / path).read_text())
    (found,) = (entry for entry in crd["spec"]["versions"] if entry["name"] == POD_GROUP.version)
    assert found["served"]
    made: Json = found["schema"]["openAPIV3Schema"]
    return made


def judged(part: Json) -> Json:
    """Return a schema that our validator accepts: quantities are strings, and the server sets defaults."""
    if QUANTITY in part:
        return {"type": "string", "pattern": part["pattern"]}
    dropped = {"default", "x-kubernetes-map-type"}
    kept = {name: value for name, value in part.items() if name not in dropped}
    if "properties" in kept:
        kept["properties"] = {key: judged(member) for key, member in kept["properties"].items()}
    for name in ("items", "additionalProperties"):
        if isinstance(kept.get(name), dict):
            kept[name] = judged(kept[name])
    return kept


def fields_of(version: str) -> frozenset[str]:
    """Read the fields as the operator does, from what the API server would derive from the CRD."""
    kind = {"group": POD_GROUP.group, "version": POD_GROUP.version, "kind": POD_GROUP.kind}
    served = schema(version) | {"x-kubernetes-group-version-kind": [kind]}
    return spec_fields(POD_GROUP, {"components": {"schemas": {"sh.volcano.PodGroup": served}}})


def spec_of(topology: Json) -> RLJobSpec:
    raw = merged(yaml.safe_load(JOB.read_text())["spec"], {"scheduling": {"topology": topology}})
    checked = validate("gang", raw, BUILT_IN_RECIPES, launcher=LAUNCHER, accelerators=BUILT_IN)
    assert checked.spec is not None, checked.violations
    return checked.spec


def group(topology: Json, fields: frozenset[str]) -> Json:
    spec = spec_of(topology)
    return build_pod_group(IDENTITY, spec, 1, build_raycluster(IDENTITY, spec, 1, "digest"), fields)


@pytest.mark.parametrize("version", CRDS)
def test_the_fields_that_a_release_has_are_found(version: str) -> None:
    assert fields_of(version) & NEWEST_FIELDS == CRDS[version]
    assert {"minMember", "minResources", "queue", "priorityClassName"} <= fields_of(version)


@pytest.mark.parametrize("topology", LEVELS, ids=str)
@pytest.mark.parametrize("version", CRDS)
def test_a_group_fits_the_release_that_it_is_made_for(version: str, topology: Json) -> None:
    made = group(topology, fields_of(version))
    wanted = judged(schema(version)["properties"]["spec"])
    assert list(violations(wanted, made["spec"], "spec")) == []


def test_a_group_for_a_newer_release_does_not_fit_an_older_one() -> None:
    made = group({"level": "2"}, NEWEST_FIELDS)
    wanted = judged(schema("v1.10.0")["properties"]["spec"])
    assert list(violations(wanted, made["spec"], "spec")) == [f"spec.{TOPOLOGY}: unknown"]


@pytest.mark.parametrize("version", TYPES)
def test_the_go_types_of_a_release_have_what_its_groups_say(version: str) -> None:
    types = programs.module("volcano.sh/apis", version) / "pkg/apis/scheduling/v1beta1/types.go"
    names = {name: _json_names(types.read_text(), name) for name in ("PodGroupSpec", "NetworkTopologySpec")}
    known = names["PodGroupSpec"] | {f"{TOPOLOGY}.{name}" for name in names["NetworkTopologySpec"]}
    assert known & NEWEST_FIELDS == TYPES[version]
    for topology in LEVELS:
        made: dict[str, Any] = group(topology, TYPES[version])["spec"]
        assert set(made) <= known
        assert {f"{TOPOLOGY}.{name}" for name in made.get(TOPOLOGY, {})} <= known


def _json_names(source: str, name: str) -> set[str]:
    found = re.search(rf"^type {name} struct \{{$(.*?)^\}}$", source, re.MULTILINE | re.DOTALL)
    return set(re.findall(r'json:"([A-Za-z]+)', found[1])) if found else set()
