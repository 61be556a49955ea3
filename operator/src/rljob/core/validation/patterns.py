"""Patterns of restart rules: written in RE2's syntax, run by the launcher with Python's `re`, so in what both know.

RE2 leaves out what needs backtracking. Python backtracks, so a repeated repetition, harmless in RE2, is refused too:
on one long line of a log it could take for ever. https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import re
import warnings

REPEATS_MAX = 1000
"""RE2's bound on {n,m}."""
_NOT_IN_RE2 = (
    ("(?=", "looks ahead"),
    ("(?!", "looks ahead"),
    ("(?<=", "looks back"),
    ("(?<!", "looks back"),
    ("(?>", "is an atomic group"),
    ("(?(", "is a condition"),
    ("(?P=", "refers to an earlier group"),
    ("(?#", "is a comment"),
)
_REPEAT = re.compile(r"\{([0-9]{0,9})(?:(,)([0-9]{0,9}))?\}")


def problem_of(pattern: str) -> str | None:
    """Say why a pattern cannot be used; None if it can."""
    return _foreign(pattern) or _uncompilable(pattern) or _repeated_repetition(pattern)


def _uncompilable(pattern: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a set that a later Python may read otherwise
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"cannot be compiled: {error}"
    return None


def _foreign(pattern: str) -> str | None:
    """Find what RE2 does not know."""
    for index, char in _outside_sets(pattern):
        rest = pattern[index:]
        if char == "\\" and rest[1:2].isdigit() and rest[1] != "0":
            return f"{rest[:2]} refers to an earlier group, which RE2 does not know"
        if char == "\\" and rest[1:2] == "Z":
            return r"\Z is written \z in RE2 and not known to Python; use $"
        for start, what in _NOT_IN_RE2:
            if rest.startswith(start):
                return f"{start} {what}, which RE2 does not know"
        if (found := _REPEAT.match(rest)) and any(int(n) > REPEATS_MAX for n in found.group(1, 3) if n):
            return f"{found[0]} repeats more than {REPEATS_MAX} times"
    return None


def _repeated_repetition(pattern: str) -> str | None:
    """Find a group that holds an open repetition and is itself repeated without bound, such as (a+)+."""
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
                return "a repetition is repeated, as in (a+)+, which can take for ever on a long line; write it flat"
            if last in ("*", "+", "?", "}") and char == "+":
                return f"{last}+ is a possessive repetition, which RE2 does not know"
            stack[-1] = True
        last = char
    return None


def _is_open(rest: str) -> bool:
    found = _REPEAT.match(rest)
    return found is not None and found[2] is not None and not found[3]


def _outside_sets(pattern: str) -> list[tuple[int, str]]:
    """Give the characters that are neither escaped nor inside [...]; a backslash stands for its escape."""
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
            # A bracket right at the beginning is one of the set.
            index += 1 + (pattern[index + 1 : index + 2] == "^")
            index += pattern[index : index + 1] == "]"
            in_set = True
            continue
        else:
            found.append((index, char))
        index += 1
    return found
