"""The tools of the agent example: functions that the model may call.

verl describes each function to the model by its docstring and type hints, and calls it with the model's arguments.
"""

from __future__ import annotations

from verl.tools.function_tool import function_tool


@function_tool
def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return str(a + b)
