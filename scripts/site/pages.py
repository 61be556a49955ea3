"""Collect the pages of the site from the repository. `python -m scripts.site` calls it before MkDocs.

The pages of docs/ keep their paths, and docs/home.md is the home page. Other files that a page links to, such as an
example or a module, become pages under `source/`, so that every link works without a network. Markdown links are
rewritten accordingly; nothing else of a page is changed.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
DOCS = PurePosixPath("docs")
CODE = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1[ \t]*$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
"""Fenced blocks and code spans, which contain no links."""
FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
"""Fenced blocks, which contain no headings."""
LINK = re.compile(r"(?<=\]\()([^)\s#]*)(#[^)\s]*)?(?=\))")
TRANSLATED = ".zh.md"
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml", ".sh": "sh"}


@dataclass(frozen=True)
class Page:
    """A page of the site."""

    path: PurePosixPath
    """Below the folder of pages."""
    text: str


def place(source: PurePosixPath) -> PurePosixPath:
    """Return where a file of the repository is among the pages."""
    if source.is_relative_to(DOCS):
        inside = source.relative_to(DOCS)
        return inside.with_name(inside.name.replace("home", "index", 1)) if str(inside).startswith("home.") else inside
    if source.suffix == ".md":
        # A README would become the index of its folder, beside pages of the files in it.
        return PurePosixPath("source") / str(source).replace("README.", "readme.")
    # The plug-in for languages takes two letters after a dot, such as `py`, for a language.
    return PurePosixPath("source") / source.with_name(source.name.replace(".", "-") + ".md")


def without_code(text: str, change: Callable[[str], str]) -> str:
    """Return a page whose text outside of code is changed."""
    parts, end = [], 0
    for code in CODE.finditer(text):
        parts += [change(text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, change(text[end:])])


def headings(text: str) -> list[tuple[int, str]]:
    """Return the level of each heading of a page, and the anchor that GitHub gives to it."""
    found = []
    for marks, heading in re.findall(r"^(#+) (.+)$", FENCED.sub("", text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        found.append((len(marks), re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")))
    return found


def with_english_anchors(text: str, english: str, page: str) -> str:
    """Return a translated page on which links to headings of the English page work too.

    Pages without a translation link to them in both languages. Raise ValueError if the headings do not correspond.
    """
    anchors = headings(english)
    if [level for level, _ in headings(text)] != [level for level, _ in anchors]:
        raise ValueError(f"{page}: its headings do not have the levels of those of the English page, one by one")
    rest = iter(anchors)

    def mark(match: re.Match[str]) -> str:
        level, anchor = next(rest)
        # The page has a translated heading's anchor anyway if it is the same.
        same = level == 1 or headings(match[0])[0][1] == anchor
        return match[0] if same else f'<a id="{anchor}"></a>\n\n{match[0]}'

    parts = FENCED.split(text)
    codes = [code[0] for code in FENCED.finditer(text)]
    marked = [re.sub(r"^#+ .+$", mark, part, flags=re.MULTILINE) for part in parts]
    return "".join(itertools.chain(*itertools.zip_longest(marked, codes, fillvalue="")))


def tracked(root: Path = ROOT) -> frozenset[PurePosixPath]:
    """Return the files of the repository, and those that are about to be added."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, timeout=60).stdout
    return frozenset(PurePosixPath(name) for name in listed.split("\0") if name and (root / name).is_file())


@dataclass
class Collection:
    """The pages so far, and the files that they link to."""

    root: Path
    files: frozenset[PurePosixPath]
    pages: dict[PurePosixPath, Page] = field(default_factory=dict)
    wanted: list[PurePosixPath] = field(default_factory=list)

    def add(self, source: PurePosixPath) -> None:
        """Add the page of a file or folder, and note the files that it links to."""
        path = place(source)
        if source.suffix == ".md":
            # MkDocs takes the title of a page from a heading at its beginning, with no comment before it.
            text = re.sub(r"\A<!--.*?-->\n", "", (self.root / source).read_text())
            if source.name.endswith(TRANSLATED):
                english = self.root / source.with_name(source.name.removesuffix(TRANSLATED) + ".md")
                text = with_english_anchors(text, english.read_text(), str(source))
            text = without_code(text, lambda part: self._links(part, source))
        else:
            text = self._source(source)
        self.pages[source] = Page(path, text)

    def _source(self, source: PurePosixPath) -> str:
        if source in self.files:
            content, language = (self.root / source).read_text(), LANGUAGES.get(source.suffix, "text")
        else:
            inside = sorted(str(file) for file in self.files if file.is_relative_to(source))
            content, language = "\n".join(inside) + "\n", "text"
        longest = max((len(ticks) for ticks in re.findall(r"^\s*(`+)", content, re.MULTILINE)), default=0)
        fence = "`" * max(3, longest + 1)
        return f"# {source}\n\n{fence}{language}\n{content.rstrip()}\n{fence}\n"

    def _links(self, text: str, source: PurePosixPath) -> str:
        return LINK.sub(lambda match: self._link(match, source), text)

    def _link(self, match: re.Match[str], source: PurePosixPath) -> str:
        path, anchor = match[1], match[2] or ""
        if not path or "://" in path or path.startswith("mailto:"):
            return match[0]
        target = PurePosixPath(os.path.normpath(source.parent / path))
        folder = target not in self.files
        if folder and target / "README.md" in self.files:
            target, folder = target / "README.md", False
        elif folder and not any(file.is_relative_to(target) for file in self.files):
            return match[0]  # MkDocs reports it
        if not target.is_relative_to(DOCS):
            self.wanted.append(target)
            anchor = anchor if target.suffix == ".md" else ""
        # The other language's page of the same name is chosen by the plug-in.
        untranslated = str(place(target)).replace(TRANSLATED, ".md")
        return os.path.relpath(untranslated, place(source).parent) + anchor


def collect(root: Path = ROOT) -> list[Page]:
    """Return every Markdown page of the site."""
    collection = Collection(root, tracked(root))
    docs = [file for file in collection.files if file.is_relative_to(DOCS) and file.suffix == ".md"]
    collection.wanted = sorted(docs)
    while collection.wanted:
        source = collection.wanted.pop()
        if source not in collection.pages:
            collection.add(source)
    return list(collection.pages.values())


def stage(folder: Path, root: Path = ROOT) -> int:
    """Write the pages, pictures and styles of docs/ to an empty folder, and return the number of pages."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = collect(root)
    for page in pages:
        target = folder / page.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page.text)
    for beside in ("images", "stylesheets"):
        shutil.copytree(root / "docs" / beside, folder / beside)
    return len(pages)
