"""Agents: what their settings need, and what a rollout of several turns cannot have.

The load balancer is judged beside its decision (launchers/verl/optimizations). Lines are those of verl 0.9.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.agent import AGENT, CONFIGURATION, FUNCTIONS, settings

FIELD = "spec.rollout.agent"


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


CHECKS: tuple[Check, ...] = (_the_file_has_a_known_form, _tools_are_called, _drafts_have_no_history)
