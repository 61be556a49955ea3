"""Documents can be followed: links lead somewhere, and the README's manifest is valid."""

import re
import subprocess
from pathlib import Path

import pytest

from rljob.cli.main import main
from scripts.site.pages import headings

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def documents() -> list[Path]:
    """Return the tracked Markdown files."""
    listed = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in sorted(listed.stdout.split("\0")) if name and (ROOT / name).exists()]


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    return {anchor for _, anchor in headings(text)}


def broken_links(page: Path) -> list[str]:
    """Return the relative links of a page whose file or heading does not exist."""
    broken = []
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target.read_text())):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in documents()])
def test_links_lead_somewhere(page: str) -> None:
    assert broken_links(ROOT / page) == []


def test_the_code_map_names_what_exists() -> None:
    roots = (ROOT / "operator/src/rljob", ROOT / "runtime/src/rljob_runtime")
    named = set(re.findall(r"`([\w./-]+(?:\.py|/))`", (ROOT / "docs/architecture.md").read_text()))
    assert {"core/steps/", "handlers.py"} <= named
    missing = {
        name
        for name in named
        if not (ROOT / name).exists() and not any(next(root.glob(f"**/{name.rstrip('/')}"), None) for root in roots)
    }
    assert missing == set()


def test_a_missing_heading_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# What `x` is\n\n[yes](#what-x-is) [no](#what-y-is) [gone](other.md) [web](https://example.com/#a)\n"
    )
    assert broken_links(page) == ["#what-y-is", "other.md"]


def test_the_manifest_of_the_readme_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "job.yaml").write_text(block)
    assert main(["validate", "-f", str(tmp_path / "job.yaml")]) == 0
    assert "sums is valid" in capsys.readouterr().out
