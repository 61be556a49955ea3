"""Figures of a run as people read them: one form for each, with its unit, for every command, page and client. Pure.

Their values come from a status, as texts, or from step records, as numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

ABSENT = "-"
TRAINING = "Training"
WHOLE_FROM = 100
"""Rates from this value on are shown without decimals."""


def reward(value: object) -> str:
    """Return a mean score with four significant digits."""
    return _shown(value, "{:.4g}")


def rate(value: object) -> str:
    """Return tokens per second with three significant digits."""
    number = _number(value)
    return _shown(value, "{:.0f}" if number is not None and abs(number) >= WHOLE_FROM else "{:.3g}")


def share(value: object) -> str:
    """Return a ratio, such as an idle time, in percent: 12.3%."""
    return _shown(value, "{:.1%}")


def seconds(value: object) -> str:
    """Return a duration of steps: 4.21 s."""
    return _shown(value, "{:.3g} s" if (_number(value) or 0) < WHOLE_FROM else "{:.0f} s")


def steps(progress: Mapping[str, Any]) -> str:
    """Return the steps of a status, such as 12/40; an evaluation has none."""
    step, total = int(progress.get("step") or 0), int(progress.get("totalSteps") or 0)
    if not total:
        return str(step) if step else ABSENT
    return str(step) if step > total else f"{step}/{total}"


def device_time(usage: Mapping[str, Any]) -> str:
    """Return the shares of ended attempts' device time: goodput 84.9%, Start 12.0%, End 3.1%. Empty without a division.

    The rest of attempts that an operator without this division has seen end is unknown.
    """
    held, productive = float(usage.get("deviceSeconds") or 0), float(usage.get("productiveDeviceSeconds") or 0)
    parts = {str(part["use"]): float(part["deviceSeconds"]) for part in usage.get("unproductive") or ()}
    if not parts or held <= 0:
        return ""
    parts = {"goodput": productive, **parts, "unknown": held - productive - sum(parts.values())}
    return ", ".join(f"{use} {share(part / held)}" for use, part in parts.items() if part > 0 or use == "goodput")


def ends(status: Mapping[str, Any]) -> str:
    """Return when a run is expected to end; empty unless it trains at a known pace."""
    progress = status.get("progress") or {}
    return str(progress.get("eta") or "") if status.get("state") == TRAINING else ""


def left(status: Mapping[str, Any], now: datetime) -> str:
    """Return the time until then: 12min or 3h05."""
    end = ends(status)
    if not end:
        return ABSENT
    minutes = max(0, round((datetime.fromisoformat(end) - now).total_seconds() / 60))
    return f"{minutes // 60}h{minutes % 60:02d}" if minutes >= 60 else f"{minutes}min"


def count(number: float, noun: str) -> str:
    """Return a number with its noun: 1 card, 2 cards."""
    return f"{number:g} {noun}{'' if number == 1 else 's'}"


def _number(value: object) -> float | None:
    try:
        return None if value is None else float(str(value))
    except ValueError:
        return None


def _shown(value: object, form: str) -> str:
    number = _number(value)
    if number is None:
        return ABSENT
    return form.format(number) if math.isfinite(number) else str(number).replace("nan", "NaN").replace("inf", "Inf")
