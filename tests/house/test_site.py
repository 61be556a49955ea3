"""The pages of the site: links lead to pages of it, and Chinese pages are as new as their English ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.site import translations
from scripts.site.check import foreign_resources
from scripts.site.pages import collect, with_english_anchors
from scripts.site.translations import Translation

CHINESE = translations.translations()


def write(root: Path, **files: str) -> Path:
    """Create a repository with these files; `__` separates folders."""
    subprocess.run(["git", "init", "--quiet", root], check=True, timeout=20)
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_zh", ".zh")
        path = path.with_name(f"{path.name}.md") if "." not in path.name or ".zh" in path.name else path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize("page", CHINESE, ids=lambda page: str(page.page))
def test_a_chinese_page_is_up_to_date(page: Translation) -> None:
    assert page.problem == ""


def test_every_promised_page_has_a_chinese_one() -> None:
    assert translations.missing() == []


def test_a_change_of_the_english_page_makes_the_chinese_one_stale(tmp_path: Path) -> None:
    root = write(tmp_path, docs__a="# A\n", docs__a_zh="# 甲\n")
    (page,) = translations.translations(root)
    assert "no stamp" in page.problem
    translations.accept(root / "docs/a.zh.md")
    assert [each.problem for each in translations.translations(root)] == [""]
    (root / "docs/a.md").write_text("# A, changed\n")
    (page,) = translations.translations(root)
    assert "docs/a.md has changed" in page.problem
    assert "# 甲" in (root / "docs/a.zh.md").read_text()


def test_links_out_of_the_documentation_become_pages(tmp_path: Path) -> None:
    home = "[a](a.md#b) [job](../examples/job.yaml) [web](https://example.com)\n\n```sh\n[a](../docs/a.md)\n```\n"
    root = write(tmp_path, docs__home=home, docs__a="# A\n\n[folder](../examples) [self](#a)\n")
    (root / "examples").mkdir()
    (root / "examples/job.yaml").write_text("a: ```\n")
    pages = {str(page.path): page.text for page in collect(root)}
    assert set(pages) == {"index.md", "a.md", "source/examples/job-yaml.md", "source/examples.md"}
    home, _, code = pages["index.md"].partition("```sh")
    assert home.strip() == "[a](a.md#b) [job](source/examples/job-yaml.md) [web](https://example.com)"
    assert "[a](../docs/a.md)" in code, "code is not changed"
    assert "[folder](source/examples.md)" in pages["a.md"]
    assert "examples/job.yaml" in pages["source/examples.md"]


def test_a_chinese_page_links_to_pages_and_the_language_is_chosen_later(tmp_path: Path) -> None:
    root = write(tmp_path, docs__a="# A\n", docs__a_zh="# 甲\n", docs__b="[A](a.md)\n", docs__b_zh="[甲](a.zh.md)\n")
    pages = {str(page.path): page.text for page in collect(root)}
    assert pages["b.zh.md"] == "[甲](a.md)\n"


def test_links_to_english_headings_work_on_a_chinese_page() -> None:
    text = with_english_anchors("# 甲\n\n```sh\n# x\n```\n\n## 乙 `b`\n", "# A\n\n## The `b`\n", "a.zh.md")
    assert text == '# 甲\n\n```sh\n# x\n```\n\n<a id="the-b"></a>\n\n## 乙 `b`\n'


def test_a_heading_that_is_the_same_in_both_languages_has_its_anchor_once() -> None:
    assert with_english_anchors("# 甲\n\n## RLJob\n", "# A\n\n## RLJob\n", "a.zh.md") == "# 甲\n\n## RLJob\n"


def test_a_chinese_page_with_other_headings_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a.zh.md: its headings"):
        with_english_anchors("# 甲\n", "# A\n\n## B\n", "a.zh.md")


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ('<script src="https://unpkg.com/x.js"></script>', 1),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', 1),
        ('<img alt="x" src=http://example.com/x.png>', 1),
        ('<a href="https://example.com">x</a><img src="images/x.png"><link rel="canonical" href="https://x">', 0),
    ],
)
def test_what_a_page_loads_from_elsewhere_is_found(tmp_path: Path, html: str, found: int) -> None:
    (tmp_path / "index.html").write_text(html)
    assert len(foreign_resources(tmp_path)) == found
