"""Values of a decision about a switch."""

from __future__ import annotations

from rljob.core.spec.decisions import Answer

ENABLED, DISABLED = "Enabled", "Disabled"


def is_enabled(answer: Answer) -> bool:
    """Report whether a switch is on."""
    return answer.value == ENABLED
