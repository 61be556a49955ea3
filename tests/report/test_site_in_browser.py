"""The built site in headless Chromium: its search finds what people ask for, and no page is wider than the window.

`python -m scripts.site` builds it. A page of the test's own loads the others, so that one browser looks at all.
"""

from __future__ import annotations

import json
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from tests.report import browser

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

HTML = Path(__file__).resolve().parents[2] / "build" / "site" / "html"
QUESTIONS = {
    "wandb": "training.html",
    "head node dies": "faq.html#what-happens-when-the-head-or-a-node-dies",
    "reward always 0": "guides/reward.html",
    "what the model answers": "guides/reward.html",
    "suspend": "guides/suspend-and-resume.html",
    "resume from checkpoint": "training.html",
    "queueName": "reference/rljob.html#specschedulingqueuename",
    "spec.runtime.injection": "reference/rljob.html#specruntimeinjection",
    "everySteps": "reference/rljob.html",
    "quota of a team": "guides/queues.html",
    "Grafana": "guides/monitoring.html",
    "upgrade helm": "install.html#upgrade-and-uninstall",
    "air-gapped": "guides/air-gapped.html",
    "throughput": "guides/tuning-throughput.html",
    "DP idle": "reference/definitions.html",
    "HCCL": "reference/rljob.html#specnetworkhcclconnecttimeoutseconds",
    "private git repository": "reference/rljob.html#speccodegitsecretref",
    "export to Hugging Face": "guides/export.html",
    "pandas": "guides/python-client.html",
    "tool calls": "guides/agents.html",
}
CHINESE = {
    "挂起": "guides/suspend-and-resume.html",
    "奖励函数": "guides/reward.html",
    "queueName": "reference/rljob.html",
}
FIRST = 5
"""Results that are seen without scrolling."""
SEARCH = """
const index = await (await fetch("search/search_index.json")).json();
const worker = new Worker("/assets/javascripts/workers/WORKER");
const answer = message => new Promise(done => {
  worker.onmessage = event => done(event.data);
  worker.postMessage(message);
});
await answer({type: 0, data: {...index, options: {suggest: false}}});
for (const question of QUESTIONS) {
  const {data} = await answer({type: 2, data: question});
  found[question] = data.items.slice(0, 5).map(items => items.map(item => item.location));
}
"""
MEASURE = """
const frame = document.createElement("iframe");
frame.style.cssText = "border:0;height:800px";
document.body.append(frame);
for (const width of [1280, 390]) {
  frame.style.width = width + "px";
  for (const page of PAGES) {
    await new Promise(done => { frame.onload = done; frame.src = page; });
    const root = frame.contentDocument.documentElement;
    const wide = root.scrollWidth > width + 1 ? [root.scrollWidth] : [];
    const scrolls = box => box.scrollWidth > box.clientWidth + 1;
    const boxes = width < 1280 ? [] : [...root.querySelectorAll("pre code")];
    const code = boxes.filter(scrolls).map(box => box.textContent.slice(0, 60));
    if (wide.length || code.length) found[page + " at " + width] = [...wide, ...code];
  }
}
"""


def run(script: str, folder: str = "") -> Any:  # noqa: ANN401 - JSON
    """Return what a script finds that runs in a page of a folder of the site, which is served on the loopback.

    The page is complete, and the browser ends, when an image arrives that is sent after the findings.
    """
    assert (HTML / "index.html").exists(), "the site is not built; run `make site`"
    own, sent = f"/{folder}own.html", Event()
    page = f"""<!doctype html><script type="module">
let found = {{}};
try {{ {script} }} catch (error) {{ found = String(error); }}
await fetch("/found", {{method: "POST", body: JSON.stringify(found)}});
</script><img src="/end">"""
    findings: list[Any] = []

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/end":
                sent.wait(browser.SECONDS - 10)
            if self.path not in (own, "/end"):
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.encode())

        def do_POST(self) -> None:
            findings.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            sent.set()

        def log_message(self, format: str, *rest: object) -> None:  # noqa: A002 - of the base class
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(HTML))) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            browser.load(f"http://127.0.0.1:{server.server_port}{own}")
        finally:
            server.shutdown()
            thread.join()
    assert findings, "the page has found nothing in time"
    assert isinstance(findings[0], dict), findings[0]
    return findings[0]


@pytest.mark.parametrize(("folder", "questions"), [("", QUESTIONS), ("zh/", CHINESE)], ids=["English", "Chinese"])
def test_the_search_finds_what_people_ask_for_and_no_source_files(folder: str, questions: dict[str, str]) -> None:
    (worker,) = (HTML / "assets/javascripts/workers").glob("search.*.js")
    script = SEARCH.replace("WORKER", worker.name).replace("QUESTIONS", json.dumps(list(questions)))
    found = run(script, folder)
    missed = {}
    for question, page in questions.items():
        first = [place for items in found[question][:FIRST] for place in items]
        if not any(place == page or place.startswith(f"{page}#") for place in first):
            missed[question] = [items[0] for items in found[question]]
        assert not any(place.startswith(("source/", "zh/")) for place in first), question
    assert missed == {}


def test_no_page_is_wider_than_the_window_and_no_code_scrolls_on_a_desk() -> None:
    pages = sorted(
        f"/{path.relative_to(HTML)}"
        for path in HTML.rglob("*.html")
        if path.relative_to(HTML).parts[0] not in ("source", "zh", "design") and path.name != "404.html"
    )
    assert len(pages) > 60
    assert run(MEASURE.replace("PAGES", json.dumps(pages))) == {}
