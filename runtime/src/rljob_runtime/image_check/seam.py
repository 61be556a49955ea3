"""A row of the table of seams (seams.py): what the runtime uses of an image, and what happens without it."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from rljob_runtime.image_check.facts import Launcher, Verdict


class Platform(enum.Enum):
    """Images in which a seam is used."""

    ALL = enum.auto()
    CPU = enum.auto()
    NPU = enum.auto()


@dataclass(frozen=True)
class Seam:
    """One function, class or attribute."""

    module: str
    attribute: str
    parameters: tuple[str, ...] | None
    """Names in order; None if only existence matters."""
    used_by: str
    """Module of `rljob_runtime`, or of verl where verl needs it of vLLM."""
    consequence: str
    """What happens without it."""
    absent: Verdict = Verdict.REFUSED
    changed: Verdict = Verdict.REFUSED
    """The verdict for other parameters."""
    platform: Platform = Platform.ALL
    launchers: tuple[Launcher, ...] = (Launcher.VERL,)
    """Those whose jobs use it."""

    @property
    def name(self) -> str:
        """Return `module:attribute`."""
        return f"{self.module}:{self.attribute}"

    @property
    def package(self) -> str:
        """Return the top package."""
        return self.module.partition(".")[0]


@dataclass(frozen=True)
class Use:
    """Who needs the rows that it makes, and what happens without them."""

    used_by: str
    consequence: str
    absent: Verdict = Verdict.REFUSED
    changed: Verdict = Verdict.REFUSED
    platform: Platform = Platform.ALL
    launchers: tuple[Launcher, ...] = (Launcher.VERL,)

    def of(self, module: str, *attributes: str) -> Iterator[Seam]:
        """Return a row per attribute, of which only existence matters, or with parameters: `name: first second`."""
        for text in attributes:
            attribute, separator, words = text.partition(":")
            parameters = tuple(words.split()) if separator else None
            yield Seam(
                module,
                attribute,
                parameters,
                self.used_by,
                self.consequence,
                self.absent,
                self.changed,
                self.platform,
                self.launchers,
            )
