"""Prose is plain technical English: some words that give an archaic or riddling style away are not used.

`CHECKED` lists what is checked so far. A word that is needed in its ordinary sense does not belong on the list.
"""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECKED = (
    *("*.md", "benchmarks", "charts", "examples", "images", "operator", "runtime", "scripts", "tests", "upstream"),
    *("Makefile", ".importlinter"),
)
"""Pathspecs of git."""
GENERATED = (
    *(f"docs/reference/{name}.md" for name in ("accelerators", "ascend-image", "cann-recipes", "memory", "metrics")),
    *(f"docs/reference/{name}.md" for name in ("recipe-flags", "rljob", "upstream-conditions", "verl-keys")),
    "docs/reference/verl-scripts.md",
)
"""Generated pages get their text from the code."""
WORDS = {
    r"befall(s|en|ing)?|befell": "happen to",
    r"mend(s|ed|ing)?": "fix, repair",
    r"reckon(s|ed|ing)?": "estimate, compute",
    r"(go|goes|going|gone|went) on": "continue, resume",
    r"who(so)?ever": "anyone who, the user who",
    r"in two hands": "processed concurrently",
    r"anew": "again",
    r"in vain": "without an answer, without effect",
    r"as it were": "leave it out",
    r"where to read on": "documentation",
    r"(stand|stands|stood|standing) still": "stop, do not change",
    r"(told|tells?) of": "report, announce",
    r"lest|hitherto|thereof|wherein|whence|thence|naught": "a modern word",
    r"(is|are|was|were) struck": "hit by a fault",
    r"(is|are|was|were|be|been) told": "reported, given, informed",
    r"(tells?|telling|told) \w+ apart": "distinguish",
    r"leave out it": "name both options",
    r"for want of": "because there is no",
}
"""Patterns between word boundaries, with plain words to use instead."""
PATTERN = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)


def prose_files() -> list[Path]:
    """Return the tracked files that are checked."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *CHECKED], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    names = {name for name in listed.split("\0") if name} - set(GENERATED)
    paths = [ROOT / name for name in sorted(names) if Path(name).suffix in {"", ".md", ".py", ".yaml"}]
    return [path for path in paths if path.exists() and path != Path(__file__).resolve()]


def found(text: str) -> list[str]:
    """Return each match with its line number. Line breaks count as spaces."""
    flat = re.sub(r"\s", " ", text)
    return [f"{text.count(chr(10), 0, match.start()) + 1}: {match[0]}" for match in PATTERN.finditer(flat)]


def test_prose_avoids_the_words_of_the_list() -> None:
    offending = {str(path.relative_to(ROOT)): lines for path in prose_files() if (lines := found(path.read_text()))}
    assert offending == {}, f"plainer words: {WORDS}"


@pytest.mark.parametrize("sentence", ["It goes\non.", "Whoever deletes a pod", "MENDED in the next commit"])
def test_a_match_may_span_lines_and_ignores_case(sentence: str) -> None:
    assert len(found(sentence)) == 1


@pytest.mark.parametrize("sentence", ["recommended", "the ongoing run", "RLJobStandsStill", "an amendment"])
def test_parts_of_other_words_do_not_match(sentence: str) -> None:
    assert found(sentence) == []


def test_something_is_checked() -> None:
    checked = {str(path.relative_to(ROOT)) for path in prose_files()}
    assert {"README.md", "docs/operations.md", "examples/quickstart.yaml"} <= checked
