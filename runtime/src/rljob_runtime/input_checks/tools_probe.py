"""`python -m rljob_runtime.input_checks.tools_probe SETTINGS FD`: load a file of tools as verl does.

The answer is that of reward_probe.py.
"""

from __future__ import annotations

from typing import Any

from rljob_runtime.input_checks.reward_probe import ProblemError, answer, cut, load


def check(settings: dict[str, Any]) -> None:
    """Load the tools. Raises ProblemError, or OSError if the file itself cannot be read."""
    try:
        from verl.tools.function_tool import FUNCTION_TOOL_REGISTRY
    except ImportError as error:
        raise ProblemError(
            f"verl's tools do not import in this image: {cut(str(error))}; see `rljob check-image`"
        ) from None
    # The decorator infers each schema from type hints and docstring, and raises where they are missing.
    load(settings["path"], listed=True)
    if not FUNCTION_TOOL_REGISTRY:
        raise ProblemError(
            "has no tool; decorate its functions with `@function_tool` of verl.tools.function_tool, or name a YAML file"
        )


if __name__ == "__main__":
    answer(check)
