"""Agents: what their settings need, and what a rollout of several turns cannot have.

The load balancer is judged beside its decision (launchers/verl/optimizations). Lines are those of verl 0.9.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.agent import AGENT, CONFIGURATION, FUNCTIONS, TURNS, settings
from rljob.launchers.verl.effective import effective
from rljob.launchers.verl.rows import ROLLOUT
from rljob.launchers.verl.values import OFF

FIELD = "spec.rollout.agent"
LOOP, LOOPS = f"{ROLLOUT}.agent.default_agent_loop", f"{ROLLOUT}.agent.agent_loop_config_path"
SINGLE_TURN = "single_turn_agent"
"""verl's default (trainer/config/rollout/rollout.yaml)."""


def _the_file_has_a_known_form(spec: RLJobSpec) -> Iterator[Violation]:
    """Verl reads functions and configured classes from two keys (tools/tool_registry.py)."""
    if AGENT.holds(spec) and PurePosixPath(settings(spec).tools).suffix not in (*FUNCTIONS, *CONFIGURATION):
        yield Violation(
            f"{FIELD}.tools",
            f"{settings(spec).tools} is neither a Python file nor a YAML file; name a file that ends in .py, with "
            "functions decorated by verl's function_tool, or in .yaml, in the form of verl's tool_config_path",
        )


def _tools_are_called(spec: RLJobSpec) -> Iterator[Violation]:
    """The loop ends after the last turn of the model without executing its calls (tool_agent_loop.py)."""
    if AGENT.holds(spec) and settings(spec).max_turns == 1:
        yield Violation(
            f"{FIELD}.maxTurns",
            "1 ends a response before its first call is executed; use at least 2, or remove rollout.agent",
        )


def _drafts_have_no_history(spec: RLJobSpec) -> Iterator[Violation]:
    """The next turn is another request, whose prompt holds the turns before it (tool_agent_loop.py)."""
    if AGENT.holds(spec) and spec.rollout.speculative.history == "Enabled":
        yield Violation(
            "spec.rollout.speculative.history",
            "Enabled, but with rollout.agent each turn continues a longer prompt, of which the history knows nothing; "
            "remove history or rollout.agent",
        )


def _some_loop_calls_the_tools(spec: RLJobSpec) -> Iterator[Violation]:
    """The default loop calls none, whatever the files are (experimental/agent_loop/single_turn_agent_loop.py)."""
    seen = effective(spec)
    if seen.value(LOOP) not in (None, SINGLE_TURN) or seen.value(LOOPS) is not None:
        return
    for key in (f"{TURNS}.function_tool_path", f"{TURNS}.tool_config_path"):
        setting = seen.setting(key)
        if setting is not None and setting.value not in OFF:
            yield Violation(
                setting.field,
                f"names tools, but {LOOP} is {SINGLE_TURN}, which calls none unless the column agent_name of a row "
                "says otherwise; use rollout.agent",
            )


CHECKS: tuple[Check, ...] = (_the_file_has_a_known_form, _tools_are_called, _drafts_have_no_history)
WARNINGS: tuple[Check, ...] = (_some_loop_calls_the_tools,)
