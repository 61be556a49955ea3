"""Parse the value of a Hydra flag: the part of Hydra's override grammar that verl's scripts use.

Source: hydra/core/override_parser and its grammar, 1.3. Quoted strings, lists, dictionaries and primitives; a value
that is none of these is a string. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Value = None | bool | int | float | str | list["Value"] | dict[str, "Value"]
PRIMITIVES: dict[str, Value] = {"null": None, "true": True, "false": False}
NUMBER = re.compile(r"[-+]?([0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)")
ENDS = ",]}"


class FlagError(ValueError):
    """A value that Hydra would refuse."""


def parse_value(text: str) -> Value:
    """Return the value of a flag; raises FlagError where brackets or quotes are not closed."""
    reader = _Reader(text)
    value = reader.value(top=True)
    if reader.rest().strip():
        raise FlagError(f"{text}: {reader.rest()!r} follows the value")
    return value


@dataclass
class _Reader:
    text: str
    at: int = 0

    def rest(self) -> str:
        return self.text[self.at :]

    def value(self, *, top: bool = False) -> Value:
        self._skip()
        match self.rest()[:1]:
            case "[":
                return [member for _, member in self._members("]", keys=False)]
            case "{":
                return dict(self._members("}", keys=True))
            case "'" | '"' as quote:
                return self._quoted(quote)
            case _:
                return self._primitive(ends="" if top else ENDS)

    def _members(self, end: str, *, keys: bool) -> list[tuple[str, Value]]:
        self.at += 1
        members: list[tuple[str, Value]] = []
        while True:
            self._skip()
            if self.rest().startswith(end):
                self.at += 1
                return members
            if not self.rest():
                raise FlagError(f"{self.text}: {end!r} is missing")
            name = self._key() if keys else ""
            members.append((name, self.value()))
            self._skip()
            if self.rest().startswith(","):
                self.at += 1
            elif not self.rest().startswith(end):
                raise FlagError(f"{self.text}: ',' or {end!r} is missing before {self.rest()!r}")

    def _key(self) -> str:
        name, colon, _ = self.rest().partition(":")
        if not colon:
            raise FlagError(f"{self.text}: ':' is missing after {name!r}")
        self.at += len(name) + 1
        return name.strip().strip("'\"")

    def _quoted(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        if end < 0:
            raise FlagError(f"{self.text}: {quote} is missing")
        found = self.text[self.at + 1 : end]
        self.at = end + 1
        return found

    def _primitive(self, ends: str) -> Value:
        end = next((i for i in range(self.at, len(self.text)) if self.text[i] in ends), len(self.text))
        word, self.at = self.text[self.at : end].strip(), end
        if word.lower() in PRIMITIVES:
            return PRIMITIVES[word.lower()]
        if NUMBER.fullmatch(word):
            return int(word) if word.lstrip("-+").isdigit() else float(word)
        return word

    def _skip(self) -> None:
        self.at += len(self.rest()) - len(self.rest().lstrip())
