"""Chooses the verl of a run: the image's, or the pinned one that came with an injected runtime.

The operator's image carries `code`, the runtime, and beside it `verl`, the release whose seams the runtime knows
(docs/design/0017). verl's trainer asks once, before anything imports verl. An image without an injected runtime brings
both itself and is not examined.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime.contract import ExitCode
from rljob_runtime.image_check.facts import Judgement, Launcher, Verdict
from rljob_runtime.image_check.gather import gather
from rljob_runtime.image_check.judge import judge
from rljob_runtime.image_check.requirements import VERL
from rljob_runtime.outcomes import RefusedError

CODE, FOLDER = "code", "verl"
"""Folders of an injected runtime."""
VARIABLE = "PYTHONPATH"
UNSUITABLE = "ImageUnsuitable"
"""Reason of a run whose image can run no verl."""
REASONS_MAX = 5
"""Reasons that the message of a refusal has."""


@dataclass(frozen=True)
class VerlChoice:
    """The verl of a run."""

    version: str = ""
    """What is reported: `0.9.1`, or `0.9.1 (injected)`; empty if it is not known."""
    code: Path | None = None
    """Folder with the injected runtime's code; None if the image contains the runtime."""
    folder: Path | None = None
    """Folder with the injected verl; None if the run uses the image's."""
    warnings: tuple[str, ...] = ()
    """What the run loses in this image, and what of it is untried."""

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables with which every process of the run finds this verl."""
        return {} if self.folder is None else {VARIABLE: self.path_before(environ.get(VARIABLE, ""))}

    def path_before(self, rest: str) -> str:
        """Return a module path that begins with the injected folders."""
        return os.pathsep.join(str(part) for part in (self.code, self.folder, rest) if part)

    def activate(self) -> None:
        """Let this process import the injected verl. Raises RefusedError if another one would still be imported."""
        if self.folder is None:
            return
        if (loaded := sys.modules.get("verl")) is not None:
            place = getattr(loaded, "__file__", None)
            raise unsuitable(f"{place} is imported before the launcher starts; remove what imports it (a .pth file)")
        place = str(self.folder)
        after = sys.path.index(str(self.code)) + 1 if str(self.code) in sys.path else 0
        sys.path[:] = [*sys.path[:after], place, *(entry for entry in sys.path[after:] if entry != place)]
        importlib.invalidate_caches()
        spec = importlib.util.find_spec("verl")
        if spec is None or spec.origin is None or not Path(spec.origin).is_relative_to(self.folder):
            found = spec.origin if spec is not None else "nothing"
            raise unsuitable(
                f"{found} precedes the injected verl {VERL} on the module path; set workingDir of the Ray containers "
                "to a folder without verl, or remove the import hook"
            )


def choose(package: Path = Path(__file__).parents[1]) -> VerlChoice:
    """Return the verl of this run. `package` is the folder of rljob_runtime.

    Raises RefusedError (exit 64) if the image can use neither its own verl nor the injected one.
    """
    code, folder = injected(package)
    if folder is None:
        return VerlChoice(_installed(), code)
    judgement = judge(gather())
    if judgement.verdict(Launcher.VERL) is Verdict.REFUSED:
        raise refusal(judgement)
    return choice_for(judgement, package)


def injected(package: Path) -> tuple[Path | None, Path | None]:
    """Return the folders of an injected runtime's code and of its verl; None if it has none."""
    code = package.parent
    if code.name != CODE:
        return None, None
    folder = code.parent / FOLDER
    return code, folder if (folder / "verl" / "__init__.py").is_file() else None


def choice_for(judgement: Judgement, package: Path = Path(__file__).parents[1]) -> VerlChoice:
    """Return the verl that runs in an image with this judgement."""
    code, folder = injected(package)
    warnings = judgement.reasons(Launcher.VERL)
    if judgement.injects_verl and folder is not None:
        return VerlChoice(f"{VERL} (injected)", code, folder, warnings)
    return VerlChoice(_installed(), code, None, warnings)


def _installed() -> str:
    """Return the version of the verl on the module path."""
    try:
        return importlib.metadata.version("verl")
    except importlib.metadata.PackageNotFoundError:
        return ""


def refusal(judgement: Judgement) -> RefusedError:
    """Return the error for an image in which no verl can run."""
    reasons = [
        f"{row.subject} {row.seen}: {row.message}"
        for row in judgement.rows
        if row.verdicts.get(Launcher.VERL) is Verdict.REFUSED
    ]
    named = "; ".join(reasons[:REASONS_MAX])
    more = f"; and {len(reasons) - REASONS_MAX} more" if len(reasons) > REASONS_MAX else ""
    return unsuitable(f"{named}{more}", commands=judgement.verdict(Launcher.COMMAND) is not Verdict.REFUSED)


def unsuitable(problem: str, *, commands: bool = False) -> RefusedError:
    """Return the error for an image in which verl cannot run. `commands`: it takes jobs with a command."""
    fix = "use an image that fits; `python -m rljob_runtime check-image` in it lists everything"
    if commands:
        fix = f"{fix}. This image takes jobs with launcher.type Command only"
    return RefusedError(ExitCode.BAD_CONFIG, UNSUITABLE, f"verl {VERL} cannot run in this image: {problem}; {fix}")
