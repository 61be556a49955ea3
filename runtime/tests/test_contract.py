"""The contract with the operator: documents survive a round trip, and unknown content is rejected."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rljob_runtime.contract import (
    CONTRACT_VERSION,
    ContractError,
    ExitCode,
    JobConfig,
    LogRule,
    NodeFinding,
    Outcome,
    Phase,
    Platform,
    Port,
    Preflight,
    Progress,
    RequiredPath,
    StopMode,
    StopRequest,
    TrainerMode,
    exporter_port,
    quoted,
)
from rljob_runtime.contract.foreign_json import INTEGER_MAX

text = st.text(max_size=20)
number = st.floats(allow_nan=False, allow_infinity=False)
scalar = st.none() | st.booleans() | st.integers(-INTEGER_MAX, INTEGER_MAX) | number | text
override = scalar | st.lists(scalar, max_size=3) | st.dictionaries(text, scalar, max_size=3)
jobs = st.builds(
    JobConfig,
    version=st.just(CONTRACT_VERSION),
    namespace=text,
    name=text,
    uid=text,
    cluster_name=text,
    cluster_generation=st.integers(1, 9),
    platform=st.sampled_from(Platform),
    nodes=st.integers(1, 64),
    devices=st.integers(1, 1024),
    dies_per_card=st.sampled_from([1, 2]),
    total_steps=st.integers(1, 10**6),
    overrides=st.dictionaries(text, override, max_size=5),
    required_paths=st.lists(st.builds(RequiredPath, field=text, path=text), max_size=3).map(tuple),
    checkpoint_path=st.none() | text,
    log_rules=st.lists(st.builds(LogRule, name=text, pattern=text), max_size=3).map(tuple),
    mode=st.sampled_from(TrainerMode),
)
outcomes = st.builds(
    Outcome,
    exit_code=st.sampled_from(ExitCode).map(int),
    reason=text,
    message=text,
    unruled_exit_code=st.none() | st.integers(1, 255),
)
maybe = st.none() | number
progresses = st.builds(
    Progress,
    pod_uid=text,
    phase=st.sampled_from(Phase),
    step=st.integers(0, INTEGER_MAX),
    reward=maybe,
    first_dp_idle_ratio=maybe,
    median_step_seconds=maybe,
    median_rollout_seconds=maybe,
    record_seconds=maybe,
    resumed_from_step=st.none() | st.integers(0, INTEGER_MAX),
    checkpoint_step=st.none() | st.integers(0, INTEGER_MAX),
    checkpoint_time=maybe,
    checkpoint_bytes=st.none() | st.integers(0, INTEGER_MAX),
    outcome=st.none() | outcomes,
)


@given(jobs)
def test_a_job_survives_the_way_there_and_back(job: JobConfig) -> None:
    assert JobConfig.from_json(job.to_json()) == job
    assert JobConfig.from_json(job.to_json()).digest() == job.digest()


@given(progresses)
def test_progress_survives_the_way_there_and_back(progress: Progress) -> None:
    assert Progress.from_json(progress.to_json()) == progress


@given(st.integers(0, INTEGER_MAX), st.sampled_from(StopMode))
def test_a_stop_request_survives_the_way_there_and_back(attempt: int, mode: StopMode) -> None:
    request = StopRequest(attempt=attempt, mode=mode)
    assert StopRequest.from_json(request.to_json()) == request


@given(outcomes)
def test_an_outcome_is_one_line(outcome: Outcome) -> None:
    assert b"\n" not in outcome.to_json()


def test_half_of_a_pair_in_a_text_is_written_out() -> None:
    finding = NodeFinding("model files", "node-1", "no file \ud83d.safetensors")
    progress = Progress(pod_uid="p", phase=Phase.STARTING, preflight=Preflight(1, 0.5, (), (finding,)))
    read = Progress.from_json(progress.to_json()).preflight
    assert read is not None
    assert read.findings[0].message == "no file \\ud83d.safetensors"


def test_an_unknown_key_is_refused_with_its_name() -> None:
    with pytest.raises(ContractError, match="unknown keys colour"):
        StopRequest.from_json(b'{"attempt":1,"mode":"AfterStep","colour":"red"}')


@pytest.mark.parametrize(
    ("phase", "seen"),
    [
        ("a-" * 32_000, f"'{'a-' * 49}a… is not one of Idle, "),
        ("Dancing", "'Dancing' is not one of Idle, "),
        (["a"] * 9_000, "list is not one of Idle, "),
        (10**18, "1000000000000000000 is not one of Idle, "),
    ],
)
def test_a_foreign_value_is_quoted_up_to_a_bound(phase: object, seen: str) -> None:
    with pytest.raises(ContractError) as caught:
        Progress.from_json(json.dumps({"podUid": "p", "phase": phase}))
    assert str(caught.value).startswith(f"Progress.phase: {seen}")
    assert len(str(caught.value)) < 300


def test_foreign_keys_are_named_up_to_a_bound() -> None:
    order = {"attempt": 1, "mode": "AfterStep"} | {f"{number:02}" + "x" * 5_000: 1 for number in range(20)}
    with pytest.raises(ContractError, match="and 12 more; operator and image have different versions") as caught:
        StopRequest.from_json(json.dumps(order))
    assert len(str(caught.value)) < 1_000


def test_an_answer_of_a_newer_image_is_read_for_what_is_known() -> None:
    outcome = Outcome(67, "Stalled", "no step", last_step=4)
    progress = Progress(pod_uid="p", phase=Phase.ENDED, attempt=2, checkpoint_step=4, outcome=outcome)
    newer = json.loads(progress.to_json())
    newer |= {"colour": "red", "outcome": newer["outcome"] | {"shade": {"of": ["red"]}}}
    assert Progress.from_json(json.dumps(newer)) == progress


def test_an_answer_of_an_older_image_is_read_too() -> None:
    older = b'{"attempt":1,"outcome":{"exitCode":1,"message":"m","reason":"r"},"phase":"Ended","podUid":"p"}'
    assert Progress.from_json(older).outcome == Outcome(1, "r", "m")
    with pytest.raises(ContractError, match=r"Progress\.phase: missing"):
        Progress.from_json(b'{"podUid":"p"}')


def test_a_later_field_that_a_job_does_not_use_changes_no_digest() -> None:
    plain = JobConfig.from_json(json.dumps(_plain_job()))
    assert b"logRules" not in plain.to_json()
    assert b"stopRules" in plain.to_json()
    ruled = dataclasses.replace(plain, log_rules=(LogRule("nccl", "HCCL.*timeout"),))
    assert ruled.digest() != plain.digest()


def test_a_job_of_another_contract_version_is_refused() -> None:
    with pytest.raises(ContractError, match="this image supports"):
        JobConfig.from_json(json.dumps({**_plain_job(), "version": CONTRACT_VERSION + 1}))


def test_a_wrong_type_is_refused_with_its_path() -> None:
    with pytest.raises(ContractError, match=r"JobConfig\.devices: expected int, got str"):
        JobConfig.from_json(json.dumps({**_plain_job(), "devices": "2"}))


def _plain_job() -> dict[str, object]:
    return {
        "version": CONTRACT_VERSION,
        "namespace": "ns",
        "name": "job",
        "uid": "u",
        "clusterName": "c",
        "clusterGeneration": 1,
        "platform": "cpu",
        "nodes": 1,
        "devices": 2,
        "diesPerCard": 2,
        "totalSteps": 4,
        "overrides": {},
    }


def test_the_exporters_ports_are_its_own_or_those_of_the_jobs_block() -> None:
    assert (exporter_port({}, Port.METRICS), exporter_port({}, Port.API)) == (8090, 8091)
    block = {"RLJOB_METRICS_PORT": "20009", "RLJOB_API_PORT": "20010"}
    assert (exporter_port(block, Port.METRICS), exporter_port(block, Port.API)) == (20009, 20010)


@pytest.mark.parametrize("text", ["many", "-1", "0", "65536"])
def test_a_port_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|RLJOB_API_PORT"):
        exporter_port({"RLJOB_API_PORT": text}, Port.API)


@pytest.mark.parametrize(
    ("value", "shown"), [(2**64, "int"), (2**64 - 1, str(2**64 - 1)), (10**5000, "int")], ids=range(3)
)
def test_an_integer_that_python_may_not_write_is_not_quoted(value: int, shown: str) -> None:
    assert quoted(value) == shown
