"""Counts the steps of a backtracking matcher, as Python's `re` is one, on texts made to be hard for a pattern.

A pattern that is linear in a text does about twice the steps on twice the text; counts do not depend on the machine.
The matcher follows the parsed pattern (`re._parser`), so that the texts and not the engine decide. It has none of the
engine's shortcuts: it may count more than `re` does, never less in order of growth.
"""

from __future__ import annotations

import re
import re._constants as op  # type: ignore[import-not-found] # typeshed has no private modules
import re._parser as parser  # type: ignore[import-not-found]
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

CHARACTERS = (*(chr(code) for code in range(32, 127)), "\t", "\n", "\r", "\x1b", "§")
"""The characters of texts: every kind of character that a pattern distinguishes is among them."""
SIZE = 24
STEPS_MAX = 30_000
RATIO_MAX = 2.7
"""Steps on twice the text: 2 for linear work with a constant, 4 for quadratic work."""
REPEATS_KEPT = 4
"""A bounded repetition is a constant factor; with this bound in its place, it is one for short texts as well."""
SEARCHING = frozenset({"search", "sub", "subn", "split", "findall", "finditer"})


class TooManyStepsError(Exception):
    """More steps than any linear pattern needs on a short text."""


class Cost:
    """One pattern, and the steps of matching it."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.tree = parser.parse(pattern, flags)
        self.flags = self.tree.state.flags
        self.steps = 0
        self.text = ""
        self._taken: dict[tuple[Any, ...], bool] = {}

    def search(self, text: str, *, anchored: bool = False) -> int:
        """Return the steps of trying every start in a text, or only the first, until one matches."""
        self.text, self.steps = text, 0
        for start in range(1 if anchored else len(text) + 1):
            if self._sequence(tuple(self.tree), 0, start, {}, lambda end, _: end >= 0):
                break
        return self.steps

    def _step(self) -> None:
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise TooManyStepsError

    def _sequence(self, items: tuple[Any, ...], at: int, pos: int, groups: dict[int, str], then: Any) -> bool:  # noqa: ANN401
        if at == len(items):
            return bool(then(pos, groups))
        code, arg = items[at]

        def rest(end: int, found: dict[int, str]) -> bool:
            return self._sequence(items, at + 1, end, found, then)

        return self._item(code, arg, pos, groups, rest)

    def _item(self, code: Any, arg: Any, pos: int, groups: dict[int, str], rest: Any) -> bool:  # noqa: ANN401
        self._step()
        match code:
            case op.MAX_REPEAT | op.MIN_REPEAT | op.POSSESSIVE_REPEAT:
                return self._repeat(code, arg, pos, groups, rest)
            case op.SUBPATTERN:
                number, _, _, inner = arg
                return self._sequence(
                    tuple(inner), 0, pos, groups, lambda end, g: rest(end, {**g, number: self.text[pos:end]})
                )
            case op.BRANCH:
                return any(self._sequence(tuple(branch), 0, pos, groups, rest) for branch in arg[1])
            case op.ATOMIC_GROUP:
                end = self._first_end(arg, pos, groups)
                return end is not None and rest(end, groups)
            case op.ASSERT | op.ASSERT_NOT:
                return self._look(arg, pos, groups) == (code is op.ASSERT) and rest(pos, groups)
            case op.AT:
                return self._at(arg, pos) and rest(pos, groups)
            case op.GROUPREF:
                same = groups.get(arg, "")
                return self.text.startswith(same, pos) and rest(pos + len(same), groups)
        return pos < len(self.text) and self.takes(code, arg, self.text[pos]) and rest(pos + 1, groups)

    def _repeat(self, code: Any, arg: Any, pos: int, groups: dict[int, str], rest: Any) -> bool:  # noqa: ANN401
        least, most, inner = arg
        least, most = min(least, REPEATS_KEPT), most if most is op.MAXREPEAT else min(most, REPEATS_KEPT)
        items = tuple(inner)

        def once(count: int, at: int, found: dict[int, str]) -> bool:
            self._step()

            def more(end: int, g: dict[int, str]) -> bool:
                return (end > at or count < least) and once(count + 1, end, g)

            can_stop, can_go = count >= least, most is op.MAXREPEAT or count < most
            if code is op.MIN_REPEAT:
                return (can_stop and rest(at, found)) or (can_go and self._sequence(items, 0, at, found, more))
            return (can_go and self._sequence(items, 0, at, found, more)) or (can_stop and rest(at, found))

        if code is not op.POSSESSIVE_REPEAT:
            return once(0, pos, groups)
        count, at = 0, pos
        while most is op.MAXREPEAT or count < most:
            end = self._first_end(inner, at, groups)
            if end is None or end == at:
                break
            count, at = count + 1, end
        return count >= least and bool(rest(at, groups))

    def _first_end(self, inner: Any, pos: int, groups: dict[int, str]) -> int | None:  # noqa: ANN401
        ends: list[int] = []

        def take(end: int, _: dict[int, str]) -> bool:
            ends.append(end)
            return True

        self._sequence(tuple(inner), 0, pos, groups, take)
        return ends[0] if ends else None

    def _look(self, arg: Any, pos: int, groups: dict[int, str]) -> bool:  # noqa: ANN401
        direction, inner = arg
        if direction > 0:
            return self._first_end(inner, pos, groups) is not None
        start = pos - inner.getwidth()[0]
        return start >= 0 and self._sequence(tuple(inner), 0, start, groups, lambda end, _: end == pos)

    def _at(self, where: Any, pos: int) -> bool:  # noqa: ANN401
        text, lines = self.text, bool(self.flags & re.MULTILINE)
        match where:
            case op.AT_BEGINNING | op.AT_BEGINNING_STRING:
                return pos == 0 or (lines and where is op.AT_BEGINNING and text[pos - 1] == "\n")
            case op.AT_END | op.AT_END_STRING:
                return pos == len(text) or (where is op.AT_END and text[pos:] == "\n") or (lines and text[pos] == "\n")
        word = [0 <= at < len(text) and (text[at].isalnum() or text[at] == "_") for at in (pos - 1, pos)]
        return (word[0] != word[1]) == (where is op.AT_BOUNDARY)

    def takes(self, code: Any, arg: Any, char: str) -> bool:  # noqa: ANN401
        """Report whether an item that matches one character matches this one."""
        key = (code, id(arg) if isinstance(arg, list) else arg, char)
        if key not in self._taken:
            self._taken[key] = self._takes(code, arg, char)
        return self._taken[key]

    def _takes(self, code: Any, arg: Any, char: str) -> bool:  # noqa: ANN401
        if code is op.ANY:
            return char != "\n" or bool(self.flags & re.DOTALL)
        if code is op.IN:
            negated = arg[0][0] is op.NEGATE
            return any(self.takes(kind, what, char) for kind, what in arg[negated:]) != negated
        cases = {char.lower(), char.upper()} if self.flags & re.IGNORECASE else {char}
        match code:
            case op.LITERAL:
                return any(ord(each) == arg for each in cases)
            case op.NOT_LITERAL:
                return all(ord(each) != arg for each in cases)
            case op.RANGE:
                return any(arg[0] <= ord(each) <= arg[1] for each in cases)
            case op.CATEGORY:
                return bool(CATEGORIES[arg](char))
        raise AssertionError(f"unknown part of a pattern: {code}")

    # Texts.

    def texts(self, size: int) -> Iterator[str]:
        """Yield texts on which the parts that repeat have a lot of work, and that match late or not at all."""
        whole, seen = self._sample(tuple(self.tree)), set()
        for start, loop in [("", []), *self._loops(tuple(self.tree), "")]:
            for unit in (*loop, *self._shared(loop), whole, start):
                if not unit or (start, unit) in seen:
                    continue
                seen.add((start, unit))
                for piece, before in ((unit, start), (start + unit, "")):
                    count = max(size // 4, size * 8 // (8 + len(piece)))
                    yield from (before + piece * count + end for end in ("", "\0", "!"))

    def _loops(self, items: tuple[Any, ...], before: str) -> Iterator[tuple[str, list[str]]]:
        """Yield what leads to each unbounded repetition, and texts that it matches."""
        for at, (code, arg) in enumerate(items):
            start = before + self._sample(items[:at])
            for inner in inner_parts(code, arg):
                yield from self._loops(tuple(inner), start)
            if code in REPEATS and arg[1] is op.MAXREPEAT:
                body = tuple(arg[2])
                yield start, [self._sample(body, number) for number in range(3)]

    def _shared(self, loop: list[str]) -> list[str]:
        """Return characters of a repetition that other repetitions match too."""
        first = {unit[:1] for unit in loop if unit}
        others = [self._chars(arg[2]) for code, arg in walk(self.tree) if code in REPEATS]
        best = max(CHARACTERS, key=lambda char: sum(char in chars for chars in others))
        return [best, *(char for char in first if sum(char in chars for chars in others) > 1)]

    def _chars(self, inner: Any) -> set[str]:  # noqa: ANN401
        return {c for code, arg in walk(inner) if code in SINGLE for c in CHARACTERS if self.takes(code, arg, c)}

    def _sample(self, items: tuple[Any, ...], number: int = 0) -> str:
        """Return a short text that the items match, if they can be matched without looking around."""
        return "".join(self._sample_of(code, arg, number) for code, arg in items)

    def _sample_of(self, code: Any, arg: Any, number: int) -> str:  # noqa: ANN401
        if code in SINGLE:
            fitting = [char for char in CHARACTERS if self.takes(code, arg, char)] or [chr(arg)] * (code is op.LITERAL)
            return str(fitting[number * 7 % len(fitting)]) if fitting else ""
        if code in REPEATS:
            return self._sample(tuple(arg[2]), number) * max(1, min(int(arg[0]), REPEATS_KEPT))
        if code is op.BRANCH:
            return self._sample(tuple(arg[1][number % len(arg[1])]), number)
        if code in (op.SUBPATTERN, op.ATOMIC_GROUP):
            return self._sample(tuple(arg[-1] if code is op.SUBPATTERN else arg), number)
        return ""


REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
SINGLE = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN, op.RANGE, op.CATEGORY)
CATEGORIES: dict[Any, Callable[[str], bool]] = {
    op.CATEGORY_DIGIT: str.isdigit,
    op.CATEGORY_NOT_DIGIT: lambda char: not char.isdigit(),
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_NOT_SPACE: lambda char: not char.isspace(),
    op.CATEGORY_WORD: lambda char: char.isalnum() or char == "_",
    op.CATEGORY_NOT_WORD: lambda char: not (char.isalnum() or char == "_"),
}


def inner_parts(code: Any, arg: Any) -> list[Any]:  # noqa: ANN401
    """Return the patterns inside an item."""
    if code in REPEATS:
        return [arg[2]]
    if code is op.BRANCH:
        return list(arg[1])
    if code is op.SUBPATTERN:
        return [arg[3]]
    if code is op.ATOMIC_GROUP:
        return [arg]
    return [arg[1]] if code in (op.ASSERT, op.ASSERT_NOT) else []


def walk(items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield every item of a pattern, and those inside it."""
    for code, arg in items:
        yield code, arg
        for inner in inner_parts(code, arg):
            yield from walk(inner)


def superlinear(pattern: str, flags: int = 0, *, anchored: bool = False) -> str | None:
    """Return a text on which the work grows faster than the text; None if none was found."""
    cost = Cost(pattern, flags)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        for text, twice in dict.fromkeys(zip(cost.texts(SIZE), cost.texts(2 * SIZE), strict=True)):
            try:
                many = cost.search(twice, anchored=anchored)
                if many > 10 * len(twice) and many > RATIO_MAX * cost.search(text, anchored=anchored):
                    return twice
            except TooManyStepsError:
                return twice
    finally:
        sys.setrecursionlimit(limit)
    return None
