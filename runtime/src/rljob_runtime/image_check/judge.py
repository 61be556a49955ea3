"""Decides what an image can run. Pure: it reads facts and tables only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from rljob_runtime.contract import UNAUTHENTICATED_RAY_MINIMUM
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
from rljob_runtime.image_check.seam import Platform, Seam
from rljob_runtime.image_check.seams import TABLE as SEAMS
from rljob_runtime.node_checks.versions import minimums, older

BOTH = (Launcher.VERL, Launcher.COMMAND)
ONLY_VERL = (Launcher.VERL,)
ABSENT = "absent"
RAY = f"ray[default]>={RAY_MINIMUM}"
RAY_PROBED_BY_HTTP = "2.53.0"
"""KubeRay's probes of earlier releases run wget: v1.6.2, ray-operator/controllers/ray/common/pod.go:467-508."""
RAY_REMEDY = f"install {RAY}, and name its release in runtime.rayVersion"
TORCH_NPU = "torch_npu X.Y is compiled against torch X.Y, and that of 2.10.0 needs a symbol that torch 2.11.0 lacks"
"""`nm -D` of libtorch_npu.so in the wheel 2.10.0.post4 and of torch 2.11.0's libraries:
c10::MessageLogger::MessageLogger(char const*, int, int, bool)."""
VLLM_ASCEND = "vllm-ascend, docs/source/community/versioning_policy.md: X.Y.Z is for vLLM X.Y.Z"
NO_DEVLIB = (
    "the toolkit has no libascend_hal.so there, and verl imports torch_npu on the head, whose pod has no driver; use "
    "an image with the whole toolkit, or mount the driver of the node in the head"
)
EXTENDED = frozenset({"torch", "vllm"})
"""On NPUs, another release of them needs another release of what is compiled against them."""
COMPILED = frozenset({"torch-npu"})
"""Extensions that fail to load beside another release."""
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


def _row(
    subject: str, seen: str | None, problem: str, launchers: tuple[Launcher, ...], verdict: Verdict = Verdict.REFUSED
) -> Row:
    """Return a row with the verdict if there is a problem."""
    return Row(subject, seen or ABSENT, dict.fromkeys(launchers, verdict if problem else Verdict.FITS), problem)


def _base(facts: ImageFacts) -> Iterator[Row]:
    """What every job needs."""
    problem = "" if facts.bash else "pods start Ray through bash; install it in the image"
    yield _row("bash", facts.bash, problem, BOTH)
    yield _python(facts.python)
    ray = facts.distributions.get("ray")
    if ray is not None and older(ray, RAY_PROBED_BY_HTTP):
        problem = "" if facts.wget else f"KubeRay's probes run it with Ray before {RAY_PROBED_BY_HTTP}; install it"
        yield _row("wget", facts.wget, problem, BOTH)
    problem = ""
    if ray is None:
        problem = f"jobs run as Ray jobs; {RAY_REMEDY}"
    elif older(ray, RAY_MINIMUM):
        problem = f"it cannot check the token that keeps others out of the cluster; {RAY_REMEDY}"
        if not older(ray, UNAUTHENTICATED_RAY_MINIMUM):
            allowed = "or set runtime.unauthenticatedRay where the limit unauthenticated-ray of the namespace allows it"
            yield Row("ray", ray, dict.fromkeys(BOTH, Verdict.DEGRADED), f"{problem}, {allowed}", install=RAY)
            return
    yield replace(_row("ray", ray, problem, BOTH), install=RAY if problem else "")


def _python(version: tuple[int, int]) -> Row:
    seen = _dotted(version)
    if version < PYTHON_MINIMUM:
        problem = f"the runtime needs Python {_dotted(PYTHON_MINIMUM)} or later; use an image with it"
        return _row("python", seen, problem, BOTH)
    runtime = f"{_dotted(PYTHON_MINIMUM)} to {_before(PYTHON_BELOW)}"
    if version >= PYTHON_BELOW:
        return _row("python", seen, untried(f"Python {runtime} (docs/compatibility.md)"), BOTH, Verdict.UNTRIED)
    problem = untried(f"Python to {_before(VERL_PYTHON_BELOW)} (verl {VERL}, METADATA: Requires-Python)")
    row = _row("python", seen, problem if version >= VERL_PYTHON_BELOW else "", ONLY_VERL, Verdict.UNTRIED)
    return replace(row, verdicts={**row.verdicts, Launcher.COMMAND: Verdict.FITS})


def untried(known: str) -> str:
    """Return the message about a release outside those that upstream, or this project for its own code, declares."""
    return f"not tried by this project; declared to work: {known}. Use that if jobs fail"


def _before(version: tuple[int, int]) -> str:
    return _dotted((version[0], version[1] - 1))


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
        known = f"{name} {wanted.range}".strip()
        verdict = Verdict.REFUSED if version is None else wanted.verdict(version)
        compiled = facts.on_npu and name in EXTENDED
        fix = "use an image with" if compiled else "install"
        if version is None:
            problem = f"verl {VERL} needs {known} ({wanted.source}); {fix} it"
        elif wanted.broken is not None and verdict is Verdict.REFUSED:
            problem = f"verl {VERL} does not work with it: {wanted.broken.shown}; {fix} {known}"
        else:
            problem = "" if verdict is Verdict.FITS else untried(f"{known} ({wanted.source})")
        row = _row(name, version, problem, ONLY_VERL, verdict)
        yield replace(row, install=f"{name}{wanted.range}" if verdict is Verdict.REFUSED and not compiled else "")


def _suffix_trees(facts: ImageFacts) -> Row:
    """Return the row about suffix trees, which few jobs need. The launcher refuses such a job without them."""
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
    if facts.cann is not None and facts.devlib is not None:
        yield _row("devlib", facts.devlib, "" if facts.devlib else NO_DEVLIB, ONLY_VERL, Verdict.DEGRADED)
    yield _pair(facts, "torch-npu", "torch", TORCH_NPU)
    yield _pair(facts, "vllm-ascend", "vllm", VLLM_ASCEND)


def _pair(facts: ImageFacts, extension: str, base: str, rule: str) -> Row:
    version, other = facts.distributions.get(extension), facts.distributions.get(base)
    if version is None or other is None:
        problem = f"verl needs {extension} and {base} on NPUs; install matching releases ({rule})"
        return _row(extension, version, problem, ONLY_VERL)
    own, its = _release(version), _release(other)
    if own == its:
        return _row(extension, version, "", ONLY_VERL)
    if extension in COMPILED and own[:2] != its[:2]:
        problem = f"it cannot be loaded beside {base} {other}: {rule}; install matching releases"
        return _row(extension, version, problem, ONLY_VERL)
    return _row(
        extension, version, untried(f"the release of {base}, here {other} ({rule})"), ONLY_VERL, Verdict.UNTRIED
    )


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
