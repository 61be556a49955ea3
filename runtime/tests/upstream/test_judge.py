"""A judge on devices of its own: a reward function asks it, and its requests are counted.

The run with a real judge takes a minute: `make acceptance`.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from rljob_runtime.verl_plugin.trainer.judge import StepCounts

FLAKY = b'{"flaky": 1}'
STEPS, BATCH, SAMPLES = 2, 8, 4
FAILING = 3
"""Rows modulo 8 whose request is none of the API's: one in each step."""
REWARD = """
import aiohttp
async def compute_score(ground_truth, extra_info, reward_router_address, reward_model_tokenizer, **_):
    text = reward_model_tokenizer.decode(reward_model_tokenizer.encode(ground_truth))
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 2, "temperature": 0}
    if extra_info["row"] % 8 == FAILING:
        body["messages"] = "none"
    async with aiohttp.ClientSession() as session:
        async with session.post(f"http://{reward_router_address}/v1/chat/completions", json=body) as answer:
            if answer.status != 200:
                return 0.5
            usage = (await answer.json())["usage"]
    return float(usage["completion_tokens"])
"""


class Engine(BaseHTTPRequestHandler):
    """Answers what is JSON, and one request only when it is asked again."""

    refused: ClassVar[set[bytes]] = set()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if body == b"slow":
            time.sleep(5)
        if body == FLAKY and body not in self.refused:
            self.refused.add(body)
            self.close_connection = True
            return
        answer = b'{"said": 1}' if body.startswith(b"{") else b'{"error": "longer than maxTokens"}'
        self.send_response(200 if body.startswith(b"{") else 400)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def router() -> Iterator[str]:
    """Return the address of a router of verl's with our counts, before an engine that answers."""
    import uvicorn
    from verl.experimental.reward_loop.router import naive_router

    from rljob_runtime.verl_plugin.router.judge_router import counting

    engine = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    threading.Thread(target=engine.serve_forever, daemon=True).start()
    with counting():
        made = naive_router.NaiveRouter([f"http://127.0.0.1:{engine.server_port}"])
    assert type(naive_router.NaiveRouter([])) is not type(made)
    server = uvicorn.Server(uvicorn.Config(made.app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(10)
    engine.shutdown()


def ask(address: str, body: bytes, seconds: float = 10) -> int:
    """Return the status of the answer to a request."""
    request = urllib.request.Request(f"http://{address}/v1/chat/completions", body)
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:  # noqa: S310
            assert json.load(answer) == {"said": 1}
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_router_counts_what_the_judge_answered_since_the_step_before(router: str) -> None:
    notes: list[str] = []
    counts = StepCounts(router, notes.append)
    assert [ask(router, body) for body in (b"{}", b"none", FLAKY)] == [200, 400, 200]
    found = counts.take()
    assert (found["rljob/judge_requests/succeeded"], found["rljob/judge_requests/failed"]) == (2, 1)
    assert 0 < found["rljob/judge_request_seconds"] < 10
    assert counts.take() == {"rljob/judge_requests/succeeded": 0, "rljob/judge_requests/failed": 0}
    assert notes == ['the judge failed for the first time: 400 {"error": "longer than maxTokens"}']


def test_a_request_that_nobody_waits_for_has_failed(router: str) -> None:
    counts, failed = StepCounts(router, lambda _: None), 0.0
    with pytest.raises(TimeoutError):
        ask(router, b"slow", seconds=0.5)
    deadline = time.monotonic() + 30
    while not failed and time.monotonic() < deadline:
        time.sleep(0.2)
        failed = counts.take()["rljob/judge_requests/failed"]
    assert failed == 1


def test_a_router_that_is_gone_is_noted_and_ends_nothing() -> None:
    notes: list[str] = []
    assert StepCounts("127.0.0.1:9", notes.append).take() == {}
    assert notes[0].startswith("the judge's router did not answer, so the counts of its requests are missing: ")
    assert StepCounts(None, notes.append).take() == {}
    assert len(notes) == 1


@pytest.fixture(scope="module")
def judged(real_training: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("judge")
    reward = folder / "judged_reward.py"
    reward.write_text(f"MODEL, FAILING = {str(folder / 'model')!r}, {FAILING}\n{REWARD}")
    keys = {"reward.custom_reward_function.path": str(reward)}
    found: dict[str, Any] = real_training(folder, "judged", steps=STEPS, devices=1, judge_devices=1, overrides=keys)
    return found


@pytest.mark.long
def test_the_reward_is_what_the_judge_answers(judged: dict[str, Any]) -> None:
    assert judged["last"] == STEPS
    for step in judged["steps"]:
        # Two tokens, or one if the judge ends at once; 0.5 where it did not answer.
        assert 1.0 <= (step["metrics"]["critic/score/mean"] * BATCH - 0.5) / (BATCH - 1) <= 2.0


@pytest.mark.long
def test_requests_to_the_judge_are_counted(judged: dict[str, Any]) -> None:
    for step in judged["steps"]:
        metrics = step["metrics"]
        assert metrics["rljob/judge_requests/succeeded"] == (BATCH - 1) * SAMPLES
        assert metrics["rljob/judge_requests/failed"] == SAMPLES
        assert metrics["rljob/judge_request_seconds"] > 0


@pytest.mark.long
def test_the_judge_is_no_replica_of_the_rollout(judged: dict[str, Any]) -> None:
    for step in judged["steps"]:
        assert {key for key in step["metrics"] if key.startswith("rljob/replica/")} == {
            "rljob/replica/0/finish_seconds",
            "rljob/replica/0/requests",
        }
        assert step["metrics"]["rljob/replica/0/requests"] == BATCH * SAMPLES
