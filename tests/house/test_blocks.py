"""Every command and manifest block of the user documentation has a verdict, and passes what can be checked here.

Blocks that need a cluster are run by tests/e2e/test_documents.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from rljob.cli.main import main
from scripts.site.blocks import Block, BlockError, Reason, Verdict, all_blocks, blocks
from scripts.site.manifests import SHARED_RECIPES, manifests
from scripts.site.pages import ROOT, TRANSLATED
from scripts.site.shell import commands, problems, without_comments
from tests.reader import carry_out, checkout

BLOCKS = all_blocks()
RUN_SECONDS = 540
"""Only for a command that does not end; on a busy machine a planner takes minutes."""


ENGLISH = [block for block in BLOCKS if not block.page.endswith(TRANSLATED)]
"""Chinese pages have the same blocks."""


def chosen(verdict: Verdict | None = None, language: str | None = None) -> list[object]:
    return [
        pytest.param(block, id=block.place)
        for block in ENGLISH
        if verdict in (None, block.verdict) and language in (None, block.language)
    ]


@pytest.mark.parametrize("block", chosen(language="sh"))
def test_commands_exist_with_these_arguments(block: Block) -> None:
    assert problems(block.text) == []


@pytest.mark.parametrize("block", chosen(Verdict.DRY_RUN))
def test_a_manifest_is_valid(block: Block, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [manifest for manifest in manifests(block) if manifest.get("kind") == "RLJob"]
    for job in jobs:
        (tmp_path / "job.yaml").write_text(json.dumps(job))
        code = main(["validate", "-f", str(tmp_path / "job.yaml"), "-f", str(SHARED_RECIPES)])
        assert code == 0, capsys.readouterr().err


@pytest.mark.parametrize("block", chosen(Verdict.TESTED))
def test_the_test_of_a_block_reads_its_page(block: Block) -> None:
    assert Path(block.page).name in (ROOT / block.value).read_text()


@pytest.mark.parametrize("block", chosen(Verdict.RUN_HERE))
def test_commands_run(block: Block, tmp_path: Path) -> None:
    folder = checkout(tmp_path)
    for other in BLOCKS:
        if other.save and other.page == block.page:
            (folder / other.save).write_text(other.text)
    code, output = carry_out(block.text, folder, tmp_path / "none", RUN_SECONDS)
    assert code == 0, output


@pytest.mark.parametrize("page", sorted({block.page for block in BLOCKS if block.page.endswith(TRANSLATED)}))
def test_a_chinese_page_has_the_blocks_of_the_english_one(page: str) -> None:
    english = page.removesuffix(TRANSLATED) + ".md"
    ours = [content(block) for block in BLOCKS if block.page == page]
    assert ours == [content(block) for block in BLOCKS if block.page == english]


def content(block: Block) -> tuple[object, ...]:
    """Return what a block must have in both languages: everything but its comments."""
    if block.language == "yaml":
        return block.verdict, block.value, block.save, list(yaml.safe_load_all(block.text))
    lines = [line.rstrip() for line in without_comments(block.text).splitlines() if line.strip()]
    return block.verdict, block.value, block.save, lines


def test_every_reason_is_used() -> None:
    assert {block.value for block in BLOCKS if block.verdict is Verdict.SKIP} == set(Reason)


def test_blocks_are_found_in_lists_and_with_a_file_to_save() -> None:
    text = "1.  Do\n\n    <!-- save: a.yaml -->\n    <!-- check: dry-run -->\n    ```yaml\n    a: 1\n      b\n    ```\n"
    (block,) = blocks("page.md", text)
    assert (block.line, block.text, block.verdict, block.save) == (5, "a: 1\n  b\n", Verdict.DRY_RUN, "a.yaml")


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ("", "0 verdicts"),
        ("<!-- run: here -->\n<!-- skip: npu -->\n", "2 verdicts"),
        ("<!-- skip: tedious -->\n", "no reason"),
        ("<!-- run: tomorrow -->\n", "no verdict"),
    ],
)
def test_a_block_without_a_verdict_is_refused(marks: str, message: str) -> None:
    with pytest.raises(BlockError, match=message):
        blocks("page.md", f"{marks}```sh\nmake\n```\n")


def test_all_blocks_without_a_verdict_are_named_at_once() -> None:
    with pytest.raises(BlockError, match=r"(?s)page.md:1: .*page.md:5: "):
        blocks("page.md", "```sh\nmake\n```\n\n```yaml\na: 1\n```\n")


def test_a_block_by_indentation_is_refused() -> None:
    with pytest.raises(BlockError, match=r"page.md:3: a block by indentation"):
        blocks("page.md", "Run\n\n    make\n")
    assert blocks("page.md", "1.  Run\n\n    this as well\n\n```text\nout\n\n    more\n```\n") == []


def test_other_languages_need_no_verdict() -> None:
    assert blocks("page.md", "```text\nout\n```\n") == []


def test_commands_are_found_in_pipes_substitutions_and_continuations() -> None:
    text = "A=1 make demo | tee x && rljob top \\\n  -A > out\nkubectl exec POD -- cat $(helm list -q)"
    assert list(commands(text)) == [
        ["helm", "list", "-q"],
        ["make", "demo"],
        ["tee", "x"],
        ["rljob", "top", "-A"],
        ["kubectl", "exec", "POD", "--", "cat", "SUBSTITUTED"],
    ]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("make tests", "no such target"),
        ("rljob valdate -f x", "valdate"),
        ("kubectl rljob top --every", "--every"),
        ("helm upgrade rljob-operator charts/rljob-operator --set image.tagg=x", "image.tagg"),
        ("helm install a charts/other", "no chart"),
        ("scripts/nothing", "does not exist"),
        ("if true; then", "unexpected end"),
    ],
)
def test_wrong_commands_are_found(text: str, word: str) -> None:
    assert any(word in problem for problem in problems(text)), problems(text)
