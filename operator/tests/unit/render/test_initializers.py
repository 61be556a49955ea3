"""Initializers that are no command of the user's: the runtime in their pods, tokens, claims, and several pods."""

from __future__ import annotations

from typing import Any

import pytest
from builders import IDENTITY, Json, group, merged, small_spec, typed
from corpus.bad import volume

from rljob.render.accelerators import BUILT_IN
from rljob.render.initializer import build_initializer
from rljob_runtime.contract import INJECTED_FOLDER
from rljob_runtime.contract.downloads import TOKEN_VARIABLE, DatasetName, Hub, InitializerRequest

OPERATOR = "registry.example/rljob/operator:1.2.3"
MODEL: Json = {"type": "Model", "download": {"repository": "Qwen/Qwen3-8B", "to": "/data/model"}}


def job(initializer: Json, change: Json | None = None) -> Json:
    entry = {"name": "prepare"} | initializer
    spec = typed(
        small_spec(merged(group({"template": volume()}), {"initializers": [entry]}, change or {})),
        BUILT_IN.with_operator_image(OPERATOR),
    )
    made: Json = build_initializer(IDENTITY, spec, spec.initializers[0])["spec"]
    return made


def pod(made: Json) -> Json:
    found: Json = made["template"]["spec"]
    return found


def request(made: Json) -> InitializerRequest:
    *_, subcommand, argument = pod(made)["containers"][0]["command"]
    assert subcommand == "initialize"
    return InitializerRequest.from_argument(argument)


def test_the_runtime_comes_from_the_operators_image() -> None:
    made = pod(job(MODEL))
    assert [(each["name"], each["image"]) for each in made["initContainers"]] == [("rljob-runtime", OPERATOR)]
    (container,) = made["containers"]
    assert container["command"][:5] == ["env", f"PYTHONPATH={INJECTED_FOLDER}/code", "python", "-m", "rljob_runtime"]
    mounted = {mount["name"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    assert mounted == {"data": False, "rljob-runtime": True}
    assert mounted.keys() <= {each["name"] for each in made["volumes"]}


def test_an_image_with_the_runtime_gets_nothing() -> None:
    made = pod(job(MODEL, {"runtime": {"injection": "Never"}}))
    assert "initContainers" not in made
    assert made["containers"][0]["command"][:3] == ["python", "-m", "rljob_runtime"]


def test_a_command_of_the_users_needs_no_runtime() -> None:
    made = job({"command": ["python", "/code/prepare.py"]})
    assert "initContainers" not in pod(made)
    assert "podFailurePolicy" not in made


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {"hub": Hub.HUGGING_FACE, "repository": "Qwen/Qwen3-8B"}),
        (
            {"source": "ModelScope", "revision": "v1", "endpoint": "https://mirror.example", "include": ["*.json"]},
            {"hub": Hub.MODEL_SCOPE, "revision": "v1", "endpoint": "https://mirror.example", "include": ("*.json",)},
        ),
        ({"source": "Path", "path": "/data/raw", "sha256": "a" * 64}, {"source": "/data/raw", "sha256": "a" * 64}),
        ({"source": "PVC", "claim": {"claimName": "models"}}, {"source": "/rljob-source", "hub": None}),
    ],
)
def test_the_request_says_what_the_field_says(change: Json, expected: Json) -> None:
    asked = request(job(merged(MODEL, {"download": change})))
    assert {name: getattr(asked, name) for name in expected} == expected
    assert (asked.to, asked.convert, asked.dataset) == ("/data/model", False, None)


def test_a_data_set_and_a_conversion_say_so() -> None:
    dataset = request(job({"type": "Dataset", "download": {"dataset": "DeepScaleR", "to": "/data/x"}}))
    assert (dataset.dataset, dataset.repository) == (DatasetName.DEEP_SCALE_R, "")
    conversion = request(job({"type": "Conversion", "conversion": {"from": "/data/fp8", "to": "/data/bf16"}}))
    assert (conversion.convert, conversion.source, conversion.to) == (True, "/data/fp8", "/data/bf16")


def test_a_checkpoint_is_converted_with_the_models_own_code_only_if_that_is_trusted() -> None:
    conversion = {"format": "Checkpoint", "from": "/data/ckpt", "to": "/data/model"}
    entry = {"name": "m", "type": "Conversion", "conversion": conversion}
    last = request(job(entry))
    assert (last.checkpoint, last.convert, last.step, last.source) == (True, False, 0, "/data/ckpt")
    assert not last.trust_remote_code
    assert request(job(merged(entry, {"conversion": {"step": 20}}))).step == 20
    trusted = typed(small_spec({"model": {"trustRemoteCode": True}, "initializers": [entry]}))
    made = build_initializer(IDENTITY, trusted, trusted.initializers[0])
    assert request(made["spec"]).trust_remote_code


def test_a_token_is_a_variable_and_on_no_command_line() -> None:
    made = pod(job(merged(MODEL, {"download": {"credentials": {"name": "hub", "key": "token"}}})))
    source = {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert {"name": TOKEN_VARIABLE, "valueFrom": source} in made["containers"][0]["env"]
    assert "token" not in " ".join(made["containers"][0]["command"])


def test_a_claim_is_mounted_read_only() -> None:
    claim = {"claimName": "models", "subPath": "qwen"}
    made = pod(job(merged(MODEL, {"download": {"source": "PVC", "repository": None, "claim": claim}})))
    mounted = {"name": "rljob-source", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}}
    assert mounted in made["volumes"]
    mount = {"name": "rljob-source", "mountPath": "/rljob-source", "readOnly": True, "subPath": "qwen"}
    assert mount in made["containers"][0]["volumeMounts"]


@pytest.mark.parametrize("pods", [1, 8])
def test_several_pods_share_a_conversion_by_their_index(pods: int) -> None:
    entry = {"type": "Conversion", "conversion": {"from": "/data/fp8", "to": "/data/bf16", "pods": pods}}
    made = job(entry)
    expected = {"completionMode": "Indexed", "completions": 8, "parallelism": 8} if pods > 1 else {}
    assert {name: made[name] for name in ("completionMode", "completions", "parallelism") if name in made} == expected
    assert request(made).pods == pods


def test_a_try_that_cannot_succeed_is_the_last() -> None:
    def rules(made: Json) -> list[tuple[Any, ...]]:
        found = [rule["onExitCodes"] for rule in made["podFailurePolicy"]["rules"]]
        return [(each["containerName"], each["values"]) for each in found]

    code = {"code": {"type": "Git", "git": {"url": "https://git.example/r.git", "revision": "a" * 40}}}
    assert rules(job(MODEL)) == [("initializer", [64])]
    assert rules(job(MODEL, code)) == [("fetch-code", [64]), ("initializer", [64])]
