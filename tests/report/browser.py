"""Headless Chromium for tests: a page's DOM, its console messages, the size of drawn elements, a screenshot.

The Debian package is installed if it is missing, like those of the cluster. All names fail to resolve, so that a page
that makes requests fails and reports it on the console.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

from tests.cluster.packages import Package, ensure_packages

SECONDS = 300
PACKAGES = (
    Package("chromium-headless-shell", "chromium-headless-shell"),
    Package("fonts-liberation", "/usr/share/fonts/truetype/liberation"),
)
OFFLINE = (
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--disable-background-networking",
    "--disable-component-update",
)
CONSOLE = re.compile(r":CONSOLE(?::|\()\d+\)?\] (.*)")
MEASURE = """<script>
const boxes = {};
for (const figure of document.querySelectorAll("[data-plot]")) {
  const marks = [...figure.querySelectorAll("svg .line, svg .bar")].map(mark => mark.getBoundingClientRect());
  boxes[figure.dataset.plot] = [marks.length,
    Math.max(0, ...marks.map(box => box.right)) - Math.min(1e6, ...marks.map(box => box.left)),
    Math.max(0, ...marks.map(box => box.bottom)) - Math.min(1e6, ...marks.map(box => box.top))];
}
const output = document.createElement("pre");
output.id = "boxes";
output.textContent = JSON.stringify(boxes);
document.body.append(output);
</script>"""


@dataclass(frozen=True)
class Seen:
    """A page after it was loaded."""

    dom: str
    console: list[str]

    @property
    def plots(self) -> dict[str, int]:
        """Return the figures of the DOM with the number of values that each claims to draw."""
        return _Plots(self.dom).found


class _Plots(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, int] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "figure" and attributes.get("data-plot"):
            self.found[str(attributes["data-plot"])] = int(attributes.get("data-points") or 0)


def load(page: Path | str) -> Seen:
    """Load a file, or an address of the loopback."""
    done = _run("--dump-dom", page)
    return Seen(done.stdout, [found[1] for line in done.stderr.splitlines() if (found := CONSOLE.search(line))])


def measure(page: Path) -> dict[str, tuple[int, float, float]]:
    """Return for each plot the number of drawn marks, and their width and height in pixels.

    A script measures them, in a copy of the page without the policy that forbids scripts.
    """
    text, removed = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    assert removed == 1, "the page has no policy"
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "measured.html"
        copy.write_text(text.replace("</body>", f"{MEASURE}</body>"))
        dom = _run("--dump-dom", copy).stdout
    found = re.search(r'<pre id="boxes">(.*?)</pre>', dom)
    assert found, dom[-500:]
    return {name: (int(count), width, height) for name, (count, width, height) in json.loads(found[1]).items()}


def picture(page: Path, to: Path, size: tuple[int, int], *, dark: bool = False) -> None:
    """Write a screenshot as PNG."""
    to.parent.mkdir(parents=True, exist_ok=True)
    scheme = ("--blink-settings=preferredColorScheme=0",) if dark else ()
    _run(f"--screenshot={to}", page, "--hide-scrollbars", f"--window-size={size[0]},{size[1]}", *scheme)


@cache
def _program() -> str:
    ensure_packages(PACKAGES)
    found = shutil.which("chromium-headless-shell")
    assert found, "chromium-headless-shell is installed but not on the PATH"
    return found


def _run(what: str, page: Path | str, *more: str) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as profile:
        # Root does not need a sandbox, and containers do not allow one.
        words = [_program(), "--no-sandbox", "--disable-gpu", *OFFLINE, f"--user-data-dir={profile}", *more]
        words += ["--enable-logging=stderr", "--v=0", what, page if isinstance(page, str) else page.absolute().as_uri()]
        done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done
