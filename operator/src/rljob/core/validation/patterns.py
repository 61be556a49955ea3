"""Patterns of restart rules: RE2 syntax that the launcher runs with Python's `re`, so only what both support.

RE2 omits what requires backtracking. Python backtracks, so a repeated repetition, which is harmless in RE2, is refused
as well: one long line of a log could take forever. https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import re
import warnings

REPEATS_MAX = 1000
"""RE2's bound on {n,m}."""
_NOT_IN_RE2 = (
    ("(?=", "is a lookahead"),
    ("(?!", "is a lookahead"),
    ("(?<=", "is a lookbehind"),
    ("(?<!", "is a lookbehind"),
    ("(?>", "is an atomic group"),
    ("(?(", "is a condition"),
    ("(?P=", "refers to an earlier group"),
    ("(?#", "is a comment"),
)
_REPEAT = re.compile(r"\{([0-9]{0,9})(?:(,)([0-9]{0,9}))?\}")


def problem_of(pattern: str) -> str | None:
    """Return why a pattern cannot be used, or None if it can."""
    return _foreign(pattern) or _uncompilable(pattern) or _repeated_repetition(pattern)


def _uncompilable(pattern: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # FutureWarning: a later Python may read the set differently.
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"cannot be compiled: {error}"
    return None


def _foreign(pattern: str) -> str | None:
    """Return a construct that RE2 does not support, or None."""
    for index, char in _outside_sets(pattern):
        rest = pattern[index:]
        if char == "\\" and rest[1:2].isdigit() and rest[1] != "0":
            return f"{rest[:2]} refers to an earlier group, which RE2 does not support"
        if char == "\\" and rest[1:2] == "Z":
            return r"\Z is written \z in RE2, which Python does not support; use $"
        for start, what in _NOT_IN_RE2:
            if rest.startswith(start):
                return f"{start} {what}, which RE2 does not support"
        if (found := _REPEAT.match(rest)) and any(int(n) > REPEATS_MAX for n in found.group(1, 3) if n):
            return f"{found[0]} repeats more than {REPEATS_MAX} times"
    return None


def _repeated_repetition(pattern: str) -> str | None:
    """Return a group that contains an unbounded repetition and is itself repeated without bound, such as (a+)+."""
    stack, closed, last = [False], False, ""
    for index, char in _outside_sets(pattern):
        repeats = char in "*+" or (char == "{" and _is_open(pattern[index:]))
        if char == "(":
            stack.append(False)
        elif char == ")" and len(stack) > 1:
            closed = stack.pop()
            stack[-1] = stack[-1] or closed
        elif repeats:
            if last == ")" and closed:
                return "a repetition is repeated, as in (a+)+, which can take forever on a long line; do not nest them"
            if last in ("*", "+", "?", "}") and char == "+":
                return f"{last}+ is a possessive repetition, which RE2 does not support"
            stack[-1] = True
        last = char
    return None


def _is_open(rest: str) -> bool:
    found = _REPEAT.match(rest)
    return found is not None and found[2] is not None and not found[3]


def _outside_sets(pattern: str) -> list[tuple[int, str]]:
    """Return the characters that are neither escaped nor inside [...]; a backslash stands for its escape."""
    found: list[tuple[int, str]] = []
    index, in_set = 0, False
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            if not in_set:
                found.append((index, char))
            index += 2
            continue
        if in_set:
            in_set = char != "]"
        elif char == "[":
            found.append((index, char))
            # A bracket at the very beginning belongs to the set.
            index += 1 + (pattern[index + 1 : index + 2] == "^")
            index += pattern[index : index + 1] == "]"
            in_set = True
            continue
        else:
            found.append((index, char))
        index += 1
    return found
