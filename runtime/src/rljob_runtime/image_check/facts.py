"""What `gather` reads in an image, and what `judge` decides about it: plain data."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SeamFacts:
    """A function or class of a package, as its source defines it."""

    found: bool
    parameters: tuple[str, ...] | None = None
    """Names in order, without stars. None for a class or a variable."""
    problem: str = ""
    """If it was not found: what was missing."""


@dataclass(frozen=True)
class ImageFacts:
    """One image."""

    python: tuple[int, int]
    bash: str | None
    """Path of bash; None if it is not on PATH."""
    wget: str | None
    """The same of wget."""
    distributions: Mapping[str, str] = field(default_factory=dict)
    """Normalised name of an installed distribution -> version. Only those of `requirements`."""
    cann: str | None = None
    """Release of the CANN toolkit."""
    seams: Mapping[str, SeamFacts] = field(default_factory=dict)
    """`Seam.name` -> what was found. Has no entry for a package that is not installed."""
    devlib: str | None = None
    """Folder with the toolkit's substitutes for the driver; empty without one, None if nobody looked."""

    @property
    def on_npu(self) -> bool:
        """Report whether the image is made for NPUs."""
        return self.cann is not None or bool({"torch-npu", "vllm-ascend"} & set(self.distributions))


class Launcher(enum.StrEnum):
    """What runs the job: `spec.launcher.type`."""

    VERL = "Verl"
    COMMAND = "Command"


class Verdict(enum.StrEnum):
    """What a launcher can do with the image, from best to worst."""

    FITS = "fits"
    UNTRIED = "untried"
    """A release outside the range that is declared to work. Nothing shows that it fails."""
    DEGRADED = "degraded"
    REFUSED = "refused"


@dataclass(frozen=True)
class Row:
    """One fact, with its verdict."""

    subject: str
    """What was examined, such as `ray` or `verl.trainer.main_ppo:run_ppo`."""
    seen: str
    verdicts: Mapping[Launcher, Verdict]
    """Only the launchers that need it."""
    message: str = ""
    """What is lost, untried or why it is refused, and what to do."""
    install: str = ""
    """If a package is what it lacks: the requirement for pip."""


@dataclass(frozen=True)
class Judgement:
    """The answer for one image."""

    rows: tuple[Row, ...]
    injects_verl: bool
    """The image's verl is replaced by the pinned one, if the verdict for Verl is not `refused`."""

    def verdict(self, launcher: Launcher) -> Verdict:
        """Return the worst verdict of the rows that this launcher needs."""
        order = list(Verdict)
        return max((row.verdicts[launcher] for row in self.rows if launcher in row.verdicts), key=order.index)

    def install(self, launcher: Launcher) -> tuple[str, ...]:
        """Return the requirements for pip of what this launcher is refused for."""
        rows = (row for row in self.rows if row.verdicts.get(launcher) is Verdict.REFUSED and row.install)
        return tuple(dict.fromkeys(row.install for row in rows))

    def reasons(self, launcher: Launcher) -> tuple[str, ...]:
        """Return what this launcher cannot do without, loses, or meets untried: the worst first."""
        return tuple(
            f"{row.subject}: {row.message}"
            for verdict in (Verdict.REFUSED, Verdict.DEGRADED, Verdict.UNTRIED)
            for row in self.rows
            if row.verdicts.get(launcher) is verdict
        )
