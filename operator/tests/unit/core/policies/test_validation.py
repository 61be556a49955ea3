"""Bad specs: each is refused with the field and what to do, all at once, and none crashes anything."""

from typing import Any

import pytest
from builders import Json, group, merged, small_spec
from hypothesis import given
from hypothesis import strategies as st

from rljob.build.names import JobIdentity
from rljob.core.policies.validation import validate
from rljob.core.policies.violation import Violation
from rljob.launchers import verl

IDENTITY = JobIdentity("team", "sums", "0a1b2c3d")
VOLUME = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


def template(change: Json) -> Json:
    return group({"template": change})


def override(**values: Any) -> Json:  # noqa: ANN401 - JSON
    return {"verl": {"overrides": {key.replace("__", "."): value for key, value in values.items()}}}


BAD = {
    "no image": ({"runtime": {"image": None}}, "spec.runtime.image", "is required and not set"),
    "no model": ({"model": None}, "spec.model", "is required and not set"),
    "unknown field": ({"trainer": {"step": 1}}, "spec.trainer.step", "is no field of RLJob"),
    "wrong type": ({"trainer": {"steps": "many"}}, "spec.trainer.steps", "'many': "),
    "zero nodes": (group({"nodes": 0}), "spec.workerGroups[0].nodes", "0: Input should be greater than or equal to 1"),
    "negative steps": ({"trainer": {"steps": -1}}, "spec.trainer.steps", "-1: "),
    "no worker group": ({"workerGroups": []}, "spec.workerGroups", "at least 1 item"),
    "two worker groups": (
        {"workerGroups": [{"name": "a", "devicesPerNode": 2}, {"name": "b", "devicesPerNode": 2}]},
        "spec.workerGroups",
        "at most 1 item",
    ),
    "unknown accelerator": ({"accelerator": {"class": "h100"}}, "spec.accelerator.class", "'h100': "),
    "relative path": ({"reward": {"path": "reward.py"}}, "spec.reward.path", "'reward.py': "),
    "number as text": ({"trainer": {"learningRate": "fast"}}, "spec.trainer.learningRate", "'fast': "),
    "number without end": ({"trainer": {"learningRate": "1e999"}}, "spec.trainer.learningRate", "1e999 is too large"),
    "coefficient without end": ({"algorithm": {"klCoefficient": "9e999"}}, "spec.algorithm.klCoefficient", "too large"),
    "too many nodes": (
        merged(group({"nodes": 8192}), {"trainer": {"globalBatchSize": 2048}}),
        "spec.workerGroups[0].nodes",
        "at most 5000",
    ),
    "too many devices": (
        group({"devicesPerNode": 32}),
        "spec.workerGroups[0].devicesPerNode",
        "a node of class cpu has 16",
    ),
    "split card": (
        merged(
            {"accelerator": {"class": "atlas-a3-superpod"}, "trainer": {"globalBatchSize": 33}},
            group({"devicesPerNode": 3}),
        ),
        "spec.workerGroups[0].devicesPerNode",
        "3 devices split a card: class atlas-a3-superpod has 2 dies a card; use a multiple of 2",
    ),
    "replica over nodes": (
        {"rollout": {"parallelism": {"tensor": 3}}},
        "spec.rollout.parallelism.tensor",
        "3 does not divide workerGroups[0].devicesPerNode 2, so a replica would span nodes; use one of 1, 2",
    ),
    "mini batch": ({"trainer": {"miniBatchSize": 5}}, "spec.trainer.miniBatchSize", "5 does not divide"),
    "batch over devices": (
        merged({"trainer": {"globalBatchSize": 3, "samplesPerPrompt": 2}}, group({"nodes": 2})),
        "spec.trainer.globalBatchSize",
        "over 4 devices (workerGroups[0].nodes 2 × devicesPerNode 2); set globalBatchSize to 4",
    ),
    "micro batch": (
        {"trainer": {"microBatchSizePerDevice": 3}},
        "spec.trainer.microBatchSizePerDevice",
        "3 does not divide a device's 128 samples of a mini batch; use one of 1, 2, 4, 8, 16, 32, 64, 128",
    ),
    "lonely sample": ({"trainer": {"samplesPerPrompt": 1}}, "spec.trainer.samplesPerPrompt", "use 2 or more"),
    "code without source": ({"code": {"type": "ConfigMap"}}, "spec.code", "set both or neither"),
    "source without type": ({"code": {"configMap": {"name": "code"}}}, "spec.code", "set both or neither"),
    "reserved volume": (
        template({"volumes": [{"name": "rljob-spool", "emptyDir": {}}]}),
        "spec.workerGroups[0].template.volumes[0].name",
        "rljob-spool is taken by the operator; rename it",
    ),
    "a mount on the spool": (
        template(
            {
                "volumes": [{"name": "data", "emptyDir": {}}],
                "volumeMounts": [{"name": "data", "mountPath": "/var/run/rljob/"}],
            }
        ),
        "spec.workerGroups[0].template.volumeMounts[0].mountPath",
        "/var/run/rljob/ is the operator's; use another path",
    ),
    "a variable of the contract": (
        template({"env": [{"name": "RAY_AUTH_TOKEN", "value": "x"}]}),
        "spec.workerGroups[0].template.env[0].name",
        "RAY_AUTH_TOKEN is the operator's; use another name",
    ),
    "volume without source": (
        template({"volumes": [{"name": "data"}]}),
        "spec.workerGroups[0].template.volumes[0]",
        "has none; set exactly one of persistentVolumeClaim, configMap",
    ),
    "volume of two sources": (
        template({"volumes": [VOLUME | {"emptyDir": {}}]}),
        "spec.workerGroups[0].template.volumes[0]",
        "has persistentVolumeClaim and emptyDir; set exactly one",
    ),
    "variable of two minds": (
        template({"env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
        "spec.workerGroups[0].template.env[0]",
        "has value and valueFrom; set at most one of them",
    ),
    "rule without trigger": (
        {"restart": {"rules": [{"name": "a", "action": "Fail"}]}},
        "spec.restart.rules[0]",
        "has none; set exactly one of onExitCodes, onLogPattern",
    ),
    "mount of nothing": (
        template({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}),
        "spec.workerGroups[0].template.volumeMounts[0].name",
        "no volume data; volumes are: none",
    ),
    "head mounts nothing": (
        {"head": {"template": {"volumeMounts": [{"name": "x", "mountPath": "/x"}]}}} | template({"volumes": [VOLUME]}),
        "spec.head.template.volumeMounts[0].name",
        "no volume x; volumes are: data",
    ),
    "toleration with a value for nothing": (
        template({"tolerations": [{"key": "a", "value": "b"}]}),
        "spec.workerGroups[0].template.tolerations[0]",
        "operator Exists takes no value, got b; use operator Equal",
    ),
    "toleration without key": (
        {"head": {"template": {"tolerations": [{"operator": "Equal", "value": "b"}]}}},
        "spec.head.template.tolerations[0]",
        "operator Equal needs a key",
    ),
    "override of a typed field": (
        override(trainer__nnodes=4),
        "spec.verl.overrides[trainer.nnodes]",
        "is set by spec.workerGroups[0].nodes; set it there",
    ),
    "override by force": (
        {"verl": {"overrides": {"++trainer.nnodes": 4}}},
        "spec.verl.overrides[++trainer.nnodes]",
        "is set by spec.workerGroups[0].nodes",
    ),
    "override through a map": (
        override(trainer={"nnodes": 4}),
        "spec.verl.overrides[trainer]",
        "is set by spec.workerGroups[0].nodes",
    ),
    "override of a section": (
        override(actor_rollout_ref__actor=None),
        "spec.verl.overrides[actor_rollout_ref.actor]",
        "is a section with fields of its own",
    ),
    "override of depth": (override(a={"b": {"c": 1}}), "spec.verl.overrides[a]", "dict is no JSON scalar"),
    "override of lists": (override(a=[[1]]), "spec.verl.overrides[a]", "list is no JSON scalar"),
    "override of no number": (override(a=float("nan")), "spec.verl.overrides[a]", "a number must be finite"),
    "same initializer": (
        {"initializers": [{"name": "a", "command": ["a"]}, {"name": "a", "command": ["b"]}]},
        "spec.initializers[1].name",
        "a is used twice; rename one",
    ),
    "empty command": ({"initializers": [{"name": "a", "command": []}]}, "spec.initializers[0].command", "at least 1"),
}


@pytest.mark.parametrize(("change", "field", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_spec_is_refused_with_field_and_fix(change: Json, field: str, message: str) -> None:
    checked = validate("sums", small_spec(change))
    spec, violations = checked.spec, checked.violations
    assert spec is None
    assert [violation.field for violation in violations] == [field]
    assert message in violations[0].message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x" * 41, "41 characters; at most 40"),
        ("1st", "beginning with a letter"),
        ("Sums", "lower-case"),
        ("a\n", "DNS-1035"),
    ],
)
def test_a_bad_name_is_refused(name: str, message: str) -> None:
    checked = validate(name, small_spec())
    spec, violations = checked.spec, checked.violations
    assert spec is None
    assert [violation.field for violation in violations] == ["metadata.name"]
    assert message in violations[0].message


def test_all_violations_are_told_at_once() -> None:
    everything = small_spec(
        merged(group({"devicesPerNode": 32}), {"trainer": {"globalBatchSize": 33, "samplesPerPrompt": 1}})
        | {"code": {"type": "ConfigMap"}}
        | override(trainer__nnodes=4)
    )
    checked = validate("Sums", everything)
    violations = checked.violations
    assert [violation.field for violation in violations] == [
        "metadata.name",
        "spec.workerGroups[0].devicesPerNode",
        "spec.trainer.globalBatchSize",
        "spec.trainer.samplesPerPrompt",
        "spec.verl.overrides[trainer.nnodes]",
        "spec.code",
    ]
    typed = validate("sums", small_spec({"model": None, "reward": None, "madeUp": 1})).violations
    assert len(typed) == 3


def test_a_violation_reads_as_a_line() -> None:
    assert str(Violation("spec.model", "is required and not set")) == "spec.model: is required and not set"


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"trainer": {"miniBatchSize": 16, "microBatchSizePerDevice": 4}},
        template({"volumes": [VOLUME], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}),
        template({"tolerations": [{}, {"key": "a", "operator": "Equal", "value": "b"}]}),
        override(trainer__balance_batch=False, data__shuffle=[True, None], extra={"deep": 1.5}),
        group({"devicesPerNode": 1}) | {"accelerator": {"class": "atlas-a3-superpod"}},
    ],
)
def test_a_good_spec_passes(change: Json) -> None:
    checked = validate("sums", small_spec(change))
    spec, violations = checked.spec, checked.violations
    assert violations == ()
    assert spec is not None


def test_an_impossible_batch_is_refused_at_once_however_large_the_job() -> None:
    checked = validate("sums", small_spec(group({"nodes": 2_147_483_647, "devicesPerNode": 2_147_483_647})))
    violations = checked.violations
    assert "spec.trainer.globalBatchSize" in [violation.field for violation in violations]


def paths(document: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    entries = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [path, *(found for key, member in entries for found in paths(member, (*path, key)))]


RICH = small_spec(
    template({"volumes": [VOLUME], "tolerations": [{"key": "a"}], "env": [{"name": "A", "value": "b"}]})
    | {"code": {"type": "ConfigMap", "configMap": {"name": "code"}}, "initializers": [{"name": "a", "command": ["a"]}]}
    | override(data__shuffle=True)
    | {"checkpoint": {"path": "/data", "everySteps": 5}, "scheduling": {"queueName": "team"}}
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20) | st.just("/data"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)


@given(changes=st.lists(st.tuples(st.sampled_from(paths(RICH)[1:]), JSON), min_size=1, max_size=3))
def test_no_mutation_of_a_spec_crashes_and_what_passes_can_be_rendered(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    mutated = merged(RICH, {})
    for (*way, last), value in changes:
        node: Any = mutated
        for key in way:
            try:
                node = node[key]
            except (KeyError, IndexError, TypeError):
                break
        else:
            if isinstance(node, dict) or (isinstance(node, list) and isinstance(last, int) and last < len(node)):
                node[last] = value
    checked = validate("sums", mutated)
    spec, violations = checked.spec, checked.violations
    assert (spec is None) == bool(violations)
    if spec is not None:
        assert verl.job_config(IDENTITY, spec, 1).digest()
