"""Agents: verl's keys for tools, what Auto decides beside them, and the file that a run needs."""

from __future__ import annotations

from builders import IDENTITY, Json, merged, small_spec, typed, validate

from rljob.core.spec import decisions
from rljob.launchers import LAUNCHER
from rljob_runtime.contract import JobConfig, RequiredPath

TURNS = "actor_rollout_ref.rollout.multi_turn"
LOOP = "actor_rollout_ref.rollout.agent.default_agent_loop"


def with_tools(path: str, **settings: object) -> Json:
    return small_spec({"rollout": {"agent": {"tools": path, **settings}}})


def job(spec: Json) -> JobConfig:
    parsed = typed(spec)
    return LAUNCHER(parsed).job_config(IDENTITY, parsed, 1)


def turns(made: JobConfig) -> dict[str, object]:
    return {key.rpartition(".")[2]: value for key, value in made.overrides.items() if key.startswith(TURNS)}


def test_a_response_is_one_turn_without_tools() -> None:
    made = job(small_spec())
    assert LOOP not in made.overrides
    assert turns(made) == {}


def test_functions_and_configured_classes_are_different_keys_of_verl() -> None:
    bounds = {"max_parallel_calls": 1, "max_tool_response_length": 256, "tool_response_truncate_side": "middle"}
    functions = job(with_tools("/code/tools.py"))
    assert functions.overrides[LOOP] == "tool_agent"
    assert turns(functions) == {"function_tool_path": "/code/tools.py", "format": "hermes", **bounds}
    configured = turns(job(with_tools("/code/tools.yml", format="GPTOSS", maxTurns=3, truncate="Left")))
    assert configured == {
        "tool_config_path": "/code/tools.yml",
        "format": "gpt-oss",
        "max_assistant_turns": 3,
        **bounds,
        "tool_response_truncate_side": "left",
    }


def test_a_run_requires_the_file() -> None:
    assert RequiredPath("rollout.agent.tools", "/code/tools.py") in job(with_tools("/code/tools.py")).required_paths


def test_tools_that_no_loop_calls_are_a_warning() -> None:
    keys = {f"{TURNS}.function_tool_path": "/code/tools.py"}
    (warning,) = validate("job", small_spec({"verl": {"overrides": keys}})).warnings
    assert warning.field == f"spec.verl.overrides[{TURNS}.function_tool_path]"
    assert "default_agent_loop is single_turn_agent, which calls none" in warning.message
    for more in ({LOOP: "tool_agent"}, {LOOP.replace("default_agent_loop", "agent_loop_config_path"): "/code/l.yaml"}):
        assert not validate("job", small_spec({"verl": {"overrides": keys | more}})).warnings
    assert not validate("job", with_tools("/code/tools.py")).warnings


def test_requests_of_several_turns_are_not_held_back() -> None:
    many = {"trainer": {"globalBatchSize": 1024, "samplesPerPrompt": 16}}
    for spec, expected in ((small_spec(), "LateBinding"), (with_tools("/code/tools.py"), "RequestCount")):
        parsed = typed(merged(spec, many))
        answers = {row.name: row.value for row in decisions.decide(parsed, LAUNCHER(parsed).questions)}
        assert answers["optimizations.loadBalancer"] == expected
