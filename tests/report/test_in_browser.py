"""The report of a recorded run in headless Chromium: complete, without console messages, drawn, and without network.

The screenshots are left in build/report; `python -m tests.report` creates the one of the README.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import recorded

from rljob.cli.report.run import ReportRun
from rljob.cli.report.write_report import write_report
from tests.report import browser
from tests.report.__main__ import PICTURE, digest, drawn_from

pytestmark = pytest.mark.browser

PICTURES = Path(__file__).resolve().parents[2] / "build" / "report"
PNG = b"\x89PNG\r\n"
RUNS = {"finished": recorded.run, "restarted": recorded.restarted}


@pytest.fixture(scope="module", params=RUNS)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the report's file, which has the name of the run."""
    path = tmp_path_factory.mktemp("report") / f"{request.param}.html"
    run: ReportRun = RUNS[request.param]()
    write_report(run, path)
    return path


def test_it_says_nothing_on_the_console(page: Path) -> None:
    assert browser.load(page).console == []


def test_what_a_page_says_on_the_console_would_be_seen(tmp_path: Path) -> None:
    """Without this, the test above could not fail."""
    noisy = tmp_path / "noisy.html"
    noisy.write_text(
        "<!doctype html><script>console.error('broken')</script><script>nothing.at.all</script>"
        "<img src='https://example.com/x.png'>"
    )
    console = "\n".join(browser.load(noisy).console)
    assert "broken" in console
    assert "ReferenceError" in console


def test_each_plot_of_the_dom_has_data(page: Path) -> None:
    plots = browser.load(page).plots
    assert tuple(plots) == recorded.DRAWN
    assert all(points >= 2 for points in plots.values()), plots
    assert plots["reward"] == 40


def test_each_plot_is_drawn_in_its_place(page: Path) -> None:
    boxes = browser.measure(page)
    assert tuple(boxes) == recorded.DRAWN
    for name, (marks, width, height) in boxes.items():
        assert marks >= 1, name
        assert width > 100, (name, width)
        assert height > (10 if name == "usage" else 20), (name, height)


def test_it_asks_the_network_for_nothing_even_if_it_wanted_to(page: Path, tmp_path: Path) -> None:
    tempted = tmp_path / "tempted.html"
    image = '<img id="tempting" src="https://example.com/x.png" onerror="document.title=1"><script>x()</script>'
    tempted.write_text(page.read_text().replace("</body>", f"{image}</body>"))
    console = browser.load(tempted).console
    assert len(console) >= 2
    assert all("Content Security Policy" in line for line in console), console


def test_pictures_are_left_in_light_and_dark(page: Path) -> None:
    for name, dark in (("light", False), ("dark", True)):
        picture = PICTURES / f"{page.stem}-{name}.png"
        browser.picture(page, picture, (1280, 1500), dark=dark)
        content = picture.read_bytes()
        assert content.startswith(PNG)
        assert len(content) > 50_000
    light, dark_bytes = ((PICTURES / f"{page.stem}-{name}.png").read_bytes() for name in ("light", "dark"))
    assert light != dark_bytes


def test_the_picture_of_the_readme_is_of_this_report() -> None:
    assert drawn_from(PICTURE) == digest(), "run `make pictures`"
