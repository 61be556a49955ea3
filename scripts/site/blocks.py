"""The command and manifest blocks of the user documentation, each with its verdict: what a test does with it.

Every fenced block in `sh` or `yaml` has a comment right above it:

    <!-- run: here -->               the commands run in a copy of the checkout, without a cluster
    <!-- run: cluster -->            they run on the local cluster, page by page (tests/e2e/test_documents.py)
    <!-- check: dry-run -->          the manifest, or the fields of a job, pass `rljob validate` and the API server
    <!-- skip: REASON -->            neither; REASON is one of `Reason`. Its commands are checked nevertheless
    <!-- tested: PATH -->            that test reads the block from the page

`save: NAME` in a comment of its own above the verdict says that the reader saves the block as that file, which later
commands of the page use. Blocks of other languages (text, json, python) show output and are not checked.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from pathlib import Path

from scripts.site.pages import ROOT, tracked

FENCE = re.compile(
    r"(?P<marks>(?:^[ ]*<!--[^>]*-->\n)*)^(?P<indent>[ ]*)(?P<ticks>`{3,})(?P<language>\w*)[ \t]*\n"
    r"(?P<text>.*?)^(?P=indent)(?P=ticks)[ \t]*$",
    re.DOTALL | re.MULTILINE,
)
INDENTED = re.compile(r"^(?P<before>\S.*)\n\n {4}(?P<text>\S.*)$", re.MULTILINE)
"""The beginning of a block by indentation, which has no language."""
LIST_ITEM = re.compile(r"(?:[-*]|\d+\.) ")
MARK = re.compile(r"<!-- (?P<kind>[a-z]+): (?P<value>\S+) -->")
CHECKED = ("sh", "yaml")
NOT_FOR_USERS = ("docs/design", "docs/reference")


class Verdict(enum.StrEnum):
    """What a test does with a block."""

    RUN_HERE = "run: here"
    RUN_ON_CLUSTER = "run: cluster"
    DRY_RUN = "check: dry-run"
    SKIP = "skip"
    TESTED = "tested"


class Reason(enum.StrEnum):
    """Why a block is not run."""

    BUILD = "build"
    """It builds or starts what the tests of the documentation run on."""
    DISRUPTS = "disrupts"
    """It changes what other jobs of the cluster, or other tests, use at the same time."""
    NPU = "npu"
    """It needs Ascend hardware or its drivers."""
    OUTSIDE = "outside"
    """It needs a service, package or file outside of the repository, or another program's configuration."""
    POD = "pod"
    """It runs in a pod or image."""
    SITE = "site"
    """It names things of the reader's site: nodes, registries, namespaces, jobs."""
    SKETCH = "sketch"
    """A part of a file that is left incomplete on purpose."""


class BlockError(ValueError):
    """A block without a usable verdict; the message says where and what to write."""


@dataclass(frozen=True)
class Block:
    """A block of a page."""

    page: str
    line: int
    language: str
    text: str
    verdict: Verdict
    value: str = ""
    """Reason of a skip, or path of a test."""
    save: str = ""
    """File that the reader saves the block as."""

    @property
    def place(self) -> str:
        """Page and line."""
        return f"{self.page}:{self.line}"


def user_pages(root: Path = ROOT) -> list[str]:
    """Return the pages whose blocks are checked, translations included."""
    names = [str(file) for file in sorted(tracked(root)) if file.suffix == ".md"]
    return [
        name
        for name in names
        if name.startswith(("README.", "docs/")) and not name.startswith(tuple(f"{each}/" for each in NOT_FOR_USERS))
    ]


def blocks(page: str, text: str) -> list[Block]:
    """Return the blocks of a page that have to be checked. Raise BlockError with all that have no usable verdict."""
    found: list[Block] = []
    wrong: list[str] = []
    for match in FENCE.finditer(text):
        if match["language"] not in CHECKED:
            continue
        try:
            found.append(_block(page, text.count("\n", 0, match.start("ticks")) + 1, match))
        except BlockError as error:
            wrong.append(str(error))
    plain = FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    for match in INDENTED.finditer(plain):
        if not LIST_ITEM.match(match["before"]):
            line = plain.count("\n", 0, match.start("text")) + 1
            wrong.append(
                f"{page}:{line}: a block by indentation has no language; fence it as sh, yaml, text or another"
            )
    if wrong:
        raise BlockError("\n".join(wrong))
    return found


def _block(page: str, line: int, match: re.Match[str]) -> Block:
    place, indent = f"{page}:{line}", len(match["indent"])
    marks = [(mark["kind"], mark["value"]) for mark in MARK.finditer(match["marks"])]
    verdicts = [mark for mark in marks if mark[0] != "save"]
    if len(verdicts) != 1:
        raise BlockError(f"{place}: {len(verdicts)} verdicts above the block; write one of {_choices()}")
    verdict, value = _verdict(*verdicts[0], place)
    lines = "".join(f"{each[indent:]}\n" for each in match["text"].splitlines())
    saved = "".join(value for kind, value in marks if kind == "save")
    return Block(page, line, match["language"], lines, verdict, value, saved)


def _verdict(kind: str, value: str, place: str) -> tuple[Verdict, str]:
    if kind == "skip":
        if value not in list(Reason):
            raise BlockError(f"{place}: skip: {value} is no reason; choose from {', '.join(Reason)}")
        return Verdict.SKIP, value
    if kind == "tested":
        return Verdict.TESTED, value
    try:
        return Verdict(f"{kind}: {value}"), ""
    except ValueError:
        raise BlockError(f"{place}: {kind}: {value} is no verdict; write one of {_choices()}") from None


def _choices() -> str:
    plain = [each.value for each in Verdict if ":" in each.value]
    return ", ".join(f"<!-- {each} -->" for each in [*plain, "skip: REASON", "tested: PATH"])


def all_blocks(root: Path = ROOT) -> list[Block]:
    """Return the checked blocks of all user pages. Raise BlockError with all that have no usable verdict."""
    found: list[Block] = []
    wrong: list[str] = []
    for page in user_pages(root):
        try:
            found += blocks(page, (root / page).read_text())
        except BlockError as error:
            wrong.append(str(error))
    if wrong:
        raise BlockError("\n".join(wrong))
    return found
