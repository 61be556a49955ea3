"""Speculative decoding: job.json, and the warning about graphs."""

from __future__ import annotations

import pytest
from builders import IDENTITY, Json, merged, small_spec, typed

from rljob.launchers.verl.checks.drafts import WARNINGS
from rljob.launchers.verl.job import job_config
from rljob_runtime.contract import Drafts

MODE = "+actor_rollout_ref.rollout.engine_kwargs.vllm.compilation_config.cudagraph_mode"


def speculative(**settings: object) -> Json:
    return {"rollout": {"speculative": settings}}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({"maxSequences": 8, "historyMemory": "2Gi"}, None),
        ({"method": "NGram"}, Drafts(32)),
        ({"method": "Suffix", "maxSequences": 8}, Drafts(8, needs_suffix_trees=True)),
        ({"method": "Suffix", "historyMemory": "2Gi"}, Drafts(32, needs_suffix_trees=True)),
        ({"method": "Suffix", "history": "Enabled"}, Drafts(32, 1 << 30, needs_suffix_trees=True)),
        (
            {"method": "Suffix", "history": "Enabled", "historyMemory": "2Gi"},
            Drafts(32, 2 << 30, needs_suffix_trees=True),
        ),
    ],
)
def test_job_json_contains_the_drafts(settings: Json, expected: Drafts | None) -> None:
    config = job_config(IDENTITY, typed(small_spec(speculative(**settings))), 1)
    assert config.drafts == expected


@pytest.mark.parametrize(
    ("method", "mode", "warned"),
    [
        ("Suffix", "FULL_DECODE_ONLY", True),
        ("NGram", "full_decode_only", True),
        ("None", "FULL_DECODE_ONLY", False),
        ("Suffix", "FULL_AND_PIECEWISE", False),
    ],
)
def test_graphs_for_full_drafts_only_are_a_warning(method: str, mode: str, *, warned: bool) -> None:
    overrides: Json = {"verl": {"overrides": {MODE: mode}}}
    spec = typed(merged(small_spec(speculative(method=method)), overrides))
    told = [violation for check in WARNINGS for violation in check(spec)]
    assert [violation.field for violation in told] == ([f"spec.verl.overrides[{MODE}]"] if warned else [])
    assert all("run without a graph; use FULL_AND_PIECEWISE" in violation.message for violation in told)


def test_a_job_without_a_mode_is_not_warned() -> None:
    assert [found for check in WARNINGS for found in check(typed(small_spec(speculative(method="Suffix"))))] == []
