"""Decides what an image can run. Pure: it reads facts and tables only."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rljob_runtime.image_check.facts import ImageFacts, Judgement, Launcher, Row, SeamFacts, Verdict
from rljob_runtime.image_check.requirements import (
    PYTHON_BELOW,
    PYTHON_MINIMUM,
    RAY_MINIMUM,
    SUFFIX_TREES,
    TABLE,
    VERL,
    VERL_PYTHON_BELOW,
    Requirement,
)
from rljob_runtime.image_check.seams import TABLE as SEAMS
from rljob_runtime.image_check.seams import Platform, Seam
from rljob_runtime.node_checks.versions import minimums, older

BOTH = (Launcher.VERL, Launcher.COMMAND)
ONLY_VERL = (Launcher.VERL,)
ABSENT = "absent"
SEAMS_NAMED = 3
"""Changed seams that the message about a replaced verl names."""
REPLACED = frozenset({"verl", "transfer_queue"})
"""Packages of the injected verl."""


def judge(facts: ImageFacts) -> Judgement:
    """Return the verdicts for an image, one row for each thing that was examined."""
    rows = (*_base(facts), *_verl(facts), *_requirements(facts), _suffix_trees(facts), *_ascend(facts), *_seams(facts))
    return Judgement(rows, injects_verl(facts))


def injects_verl(facts: ImageFacts) -> bool:
    """Return whether the pinned verl has to stand before the image's: it has another release, or changed seams."""
    return facts.distributions.get("verl", "").partition("+")[0] != VERL or bool(changed_seams(facts))


def changed_seams(facts: ImageFacts) -> list[Row]:
    """Return the seams of the image's verl and TransferQueue that are not as expected."""
    rows = (_seam(seam, found) for seam, found in _used_seams(facts) if seam.package in REPLACED)
    return [row for row in rows if row.verdicts[Launcher.VERL] is not Verdict.FITS]


def _row(subject: str, seen: str | None, problem: str, launchers: tuple[Launcher, ...]) -> Row:
    verdict = Verdict.REFUSED if problem else Verdict.FITS
    return Row(subject, seen or ABSENT, dict.fromkeys(launchers, verdict), problem)


def _base(facts: ImageFacts) -> Iterator[Row]:
    """What every job needs."""
    problem = "" if facts.bash else "pods start Ray through bash; install it in the image"
    yield _row("bash", facts.bash, problem, BOTH)
    yield _python(facts.python)
    ray = facts.distributions.get("ray")
    problem = ""
    if ray is None:
        problem = f"jobs run as Ray jobs; install Ray {RAY_MINIMUM} or later"
    elif older(ray, RAY_MINIMUM):
        problem = f"it cannot check the cluster's token; install Ray {RAY_MINIMUM} or later"
    yield _row("ray", ray, problem, BOTH)


def _python(version: tuple[int, int]) -> Row:
    seen = _dotted(version)
    if not PYTHON_MINIMUM <= version < PYTHON_BELOW:
        newest = _dotted((PYTHON_BELOW[0], PYTHON_BELOW[1] - 1))
        wanted = f"the runtime needs Python {_dotted(PYTHON_MINIMUM)} to {newest}; use an image with one of them"
        return _row("python", seen, wanted, BOTH)
    if version < VERL_PYTHON_BELOW:
        return _row("python", seen, "", BOTH)
    message = f"verl {VERL} needs a Python before {_dotted(VERL_PYTHON_BELOW)}; use such an image, or launcher Command"
    return Row("python", seen, {Launcher.VERL: Verdict.REFUSED, Launcher.COMMAND: Verdict.FITS}, message)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _verl(facts: ImageFacts) -> Iterator[Row]:
    seen = facts.distributions.get("verl", ABSENT)
    message = ""
    if injects_verl(facts):
        message = f"replaced by the injected verl {VERL}"
        if changed := changed_seams(facts) if seen.partition("+")[0] == VERL else []:
            names = ", ".join(row.subject for row in changed[:SEAMS_NAMED])
            more = f" and {len(changed) - SEAMS_NAMED} more" if len(changed) > SEAMS_NAMED else ""
            message = f"{message}, because its files are not those of the release: {names}{more}"
    yield Row("verl", seen, {Launcher.VERL: Verdict.FITS}, message)


def _requirements(facts: ImageFacts) -> Iterator[Row]:
    for wanted in TABLE:
        if wanted.injected and injects_verl(facts):
            continue
        name, version = _installed(facts, wanted)
        problem = ""
        if version is None or not wanted.accepts(version):
            problem = f"verl {VERL} needs {f'{name} {wanted.range}'.strip()} ({wanted.source}); install it"
        yield _row(name, version, problem, ONLY_VERL)


def _suffix_trees(facts: ImageFacts) -> Row:
    """Return what jobs without it do not miss. The launcher refuses one that needs it."""
    version = facts.distributions.get(SUFFIX_TREES)
    message = "" if version else "needed only by jobs with rollout.speculative.method Suffix"
    return Row(SUFFIX_TREES, version or ABSENT, {Launcher.VERL: Verdict.FITS}, message)


def _installed(facts: ImageFacts, wanted: Requirement) -> tuple[str, str | None]:
    for name in wanted.names:
        if name in facts.distributions:
            return name, facts.distributions[name]
    return wanted.names[0], None


def _ascend(facts: ImageFacts) -> Iterator[Row]:
    """Components of an image for NPUs, against the table of the node checks."""
    if not facts.on_npu:
        return
    torch_npu = facts.distributions.get("torch-npu")
    seen = {part: version for part, version in (("torch_npu", torch_npu), ("cann", facts.cann)) if version}
    problem = ""
    # CANN also sets a minimum for the driver, which is not in the image. The node checks compare it.
    if "cann" in (wanted := minimums(seen)):
        minimum, why = wanted["cann"]
        if facts.cann is None:
            problem = f"its release cannot be read, and {why} needs {minimum}; set ASCEND_TOOLKIT_HOME to its folder"
        elif older(facts.cann, minimum):
            problem = f"{why} needs {minimum}; use an image with matching versions"
    # The node checks refuse an older one, and warn about one that cannot be read.
    verdict = Verdict.FITS if not problem else Verdict.REFUSED if facts.cann else Verdict.DEGRADED
    yield Row("cann", facts.cann or ABSENT, dict.fromkeys(BOTH, verdict), problem)
    yield _pair(facts, "torch-npu", "torch", "torch_npu X.Y.Z is built for torch X.Y.Z")
    source = "vllm-ascend, docs/source/community/versioning_policy.md: X.Y.Z is for vLLM X.Y.Z"
    yield _pair(facts, "vllm-ascend", "vllm", source)


def _pair(facts: ImageFacts, extension: str, base: str, source: str) -> Row:
    version, other = facts.distributions.get(extension), facts.distributions.get(base)
    problem = ""
    if version is None:
        problem = f"verl needs it on NPUs; install the one for {base} {other or ABSENT}"
    elif other is None or _release(version) != _release(other):
        problem = f"it does not match {base} {other or ABSENT} ({source}); install matching releases"
    return _row(extension, version, problem, ONLY_VERL)


def _release(version: str) -> tuple[str, ...]:
    """Return the first three numbers of a version, without candidates, post releases and local parts."""
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return (version,) if numbers is None else numbers.groups()


def _seams(facts: ImageFacts) -> Iterator[Row]:
    replaced = REPLACED if injects_verl(facts) else frozenset()
    for seam, found in _used_seams(facts):
        if seam.package not in replaced:
            yield _seam(seam, found)


def _used_seams(facts: ImageFacts) -> Iterator[tuple[Seam, SeamFacts]]:
    """Return the seams of this platform. A package that is not installed already has a row."""
    unused = Platform.CPU if facts.on_npu else Platform.NPU
    for seam in SEAMS:
        found = facts.seams.get(seam.name)
        if found is not None and seam.platform is not unused:
            yield seam, found


def _seam(seam: Seam, found: SeamFacts) -> Row:
    seen = "found" if found.parameters is None else f"({', '.join(found.parameters)})"
    problem, verdict = "", seam.changed
    if not found.found:
        seen, problem, verdict = ABSENT, found.problem, seam.absent
    elif seam.parameters is not None and found.parameters != seam.parameters:
        problem = f"expected ({', '.join(seam.parameters)})"
    if not problem:
        return Row(seam.name, seen, dict.fromkeys(seam.launchers, Verdict.FITS))
    message = f"{problem}; {seam.consequence} ({seam.used_by}); use the package as released"
    return Row(seam.name, seen, dict.fromkeys(seam.launchers, verdict), message)
