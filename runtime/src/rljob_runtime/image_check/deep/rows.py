"""Judges what the imports of the deep check showed. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rljob_runtime.image_check.deep.plan import TORCH_NPU, Import
from rljob_runtime.image_check.deep.run import Failure, Outcome
from rljob_runtime.image_check.facts import ImageFacts, Judgement, Launcher, Row, SeamFacts, Verdict
from rljob_runtime.image_check.judge import ABSENT, RAY, REPLACED, judge, untried
from rljob_runtime.image_check.requirements import TABLE, VERL
from rljob_runtime.image_check.seams import TABLE as SEAMS

SUBJECT = "import"
MISSING = "ModuleNotFoundError"
DRIVER = re.compile("libascend_hal|libdrvdsmi|libdcmi")
"""The node's driver, which a pod without a device need not have."""
LIBRARY = re.compile(r"(?<![\w.+-])(lib[\w.+-]++): cannot open shared object file")
"""Of the dynamic loader (glibc, elf/dl-load.c)."""
BROKEN_NAMES = frozenset({MISSING, "ImportError"})
"""What an absent torch_npu does not explain."""
DISTRIBUTIONS: Mapping[str, str] = {
    "antlr4": "antlr4-python3-runtime",
    "cv2": "opencv-python-headless",
    "google": "protobuf",
    "mbridge": "mbridge",
    "megatron": "megatron-core",
    "quart": "quart",
    "sklearn": "scikit-learn",
}
"""Distributions of top packages, beside those of the requirements. Another module may belong to no distribution of its
name: an index may have something else there."""
_CANN = "it is part of CANN's toolkit: add $ASCEND_TOOLKIT_HOME/python/site-packages to PYTHONPATH in the image"
UNPUBLISHED = {
    "mindspeed": "install MindSpeed from its sources at the commit of docs/reference/ascend-image.md",
    **dict.fromkeys(("acl", "tbe", "te"), _CANN),
}
"""Top packages that no index has. CANN's images set PYTHONPATH (Ascend/cann-container-image c5a67b3a, Dockerfiles)."""


def judge_deep(facts: ImageFacts, plan: Sequence[Import], outcomes: Sequence[Outcome]) -> Judgement:
    """Return the judgement of the sources and the metadata, corrected and completed by the imports."""
    judged = judge(replace(facts, seams={**facts.seams, **_loaded(facts, outcomes)}))
    imported = {outcome.module for outcome in outcomes if outcome.failure is None}
    rows = tuple(_with_evidence(row, imported) for row in judged.rows)
    refused = {row.subject for row in rows if Verdict.REFUSED in row.verdicts.values()}
    return replace(judged, rows=(*rows, *_rows(facts, plan, outcomes, refused)))


def _loaded(facts: ImageFacts, outcomes: Sequence[Outcome]) -> dict[str, SeamFacts]:
    """Return the seams that differ from the sources, such as those that vllm-ascend replaces in vLLM.

    verl's are left out: its own plug-ins replace them, and its sources are the release's.
    """
    expected = {seam.name: seam.parameters for seam in SEAMS if seam.package not in REPLACED}
    return {
        name: seen
        for outcome in outcomes
        for name, seen in outcome.seams.items()
        if name in expected and name in facts.seams and (not seen.found or seen.parameters != expected[name])
    }


def _with_evidence(row: Row, imported: set[str]) -> Row:
    """Return a row without its refusal, if a package that has no metadata can be imported."""
    for wanted in TABLE:
        if row.subject == wanted.names[0] and row.seen == ABSENT and wanted.module in imported:
            known = f"{wanted.names[0]} {wanted.range} ({wanted.source})"
            return Row(row.subject, "no metadata", dict.fromkeys(row.verdicts, Verdict.UNTRIED), untried(known))
    return row


def _rows(facts: ImageFacts, plan: Sequence[Import], outcomes: Sequence[Outcome], refused: set[str]) -> Iterator[Row]:
    failures = {outcome.module: outcome.failure for outcome in outcomes if outcome.failure is not None}
    launchers = dict.fromkeys(Launcher, Verdict.FITS)
    yield Row("imports", f"{len(outcomes) - len(failures)} of {len(outcomes)} modules", launchers)
    groups: dict[str, list[Import]] = {}
    first: dict[str, Failure] = {}
    for wanted in plan:
        if (failure := failures.get(wanted.module)) is not None:
            cause = _cause(failure, failures)
            groups.setdefault(cause, []).append(wanted)
            first.setdefault(cause, failure)
    for cause, members in groups.items():
        # Its row in the metadata says what to install.
        if first[cause].kind != MISSING or _distribution(cause) not in refused:
            yield _row(cause, first[cause], members, facts)


def _cause(failure: Failure, failures: Mapping[str, Failure]) -> str:
    """Return the package that a failure comes from: one that is missing or fails by itself, or else the text."""
    for name in (failure.lacks, failure.place):
        top = name.partition(".")[0]
        if top in failures:
            return top
        if name and failure.kind == MISSING:
            return name
    # Without torch_npu, what uses it fails in many ways.
    return TORCH_NPU if TORCH_NPU in failures and failure.kind not in BROKEN_NAMES else failure.text


def _row(cause: str, failure: Failure, members: Sequence[Import], facts: ImageFacts) -> Row:
    top = (failure.lacks or failure.place or members[0].module).partition(".")[0]
    verdicts: dict[Launcher, Verdict] = {}
    for each in members:
        for launcher in each.launchers:
            verdicts[launcher] = max(verdicts.get(launcher, Verdict.FITS), each.verdict, key=list(Verdict).index)
    worst = max(members, key=lambda each: list(Verdict).index(each.verdict))
    more = f" and {len(members) - 1} more" if len(members) > 1 else ""
    subject = f"{SUBJECT} {cause if cause in (top, failure.lacks) else worst.module}"
    seen = f"{failure.kind}: {failure.text}"
    if DRIVER.search(failure.text):
        message = "not shown: it needs the driver of a node, which this container does not have"
        return Row(subject, seen, dict.fromkeys(verdicts, Verdict.UNTRIED), message)
    place = f", at {failure.place}:{failure.line}" if failure.place else ""
    install = _install(top, failure, facts)
    fix = f"install {install}" if install else _remedy(top, failure)
    return Row(subject, seen, verdicts, f"{seen}; {worst.consequence} ({worst.module}{more}{place}); {fix}", install)


def _distribution(top: str) -> str:
    return next((row.names[0] for row in TABLE if row.module == top), top)


def _install(top: str, failure: Failure, facts: ImageFacts) -> str:
    """Return the requirement for pip that ends a failure of a package; empty if none is known to."""
    if top in REPLACED or top in UNPUBLISHED:
        return ""
    missing = _is_missing(top, failure)
    if top == "ray":
        return RAY if missing else ""
    for row in TABLE:
        if row.module == top:
            installed = (facts.distributions[name] for name in row.names if name in facts.distributions)
            accepted = any(row.verdict(version) is Verdict.FITS for version in installed)
            return "" if accepted else f"{row.names[0]}{row.range}"
    return DISTRIBUTIONS.get(top, "") if missing else ""


def _is_missing(top: str, failure: Failure) -> bool:
    """Return whether the whole package is missing. One that lacks a module of its own is there."""
    return failure.kind == MISSING and failure.lacks == top


def _remedy(top: str, failure: Failure) -> str:
    if library := LIBRARY.search(failure.text):
        return f"install what has {library[1]}, or add its folder to LD_LIBRARY_PATH in the image"
    if top in REPLACED:
        return f"install verl {VERL} with TransferQueue, or run the check with the operator's runtime, which has both"
    if top in UNPUBLISHED:
        return UNPUBLISHED[top]
    if _is_missing(top, failure):
        return f"install the package that provides {top}, whose name may be another one"
    other = f"install another release of {_distribution(top)} or of what the error names"
    return f"{other} (docs/reference/ascend-image.md)"
