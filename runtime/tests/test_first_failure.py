"""What is kept of a worker's exception: type, message and place, with the same verdict as if it had ended the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rljob_runtime.contract import ExitCode, codec
from rljob_runtime.first_failure import Failure, place_of
from rljob_runtime.outcomes import MESSAGE_LIMIT, WorkerFailedError, from_error

REWARD = """
import json
def compute_score(text):
    return json.loads(text)
"""


class RayTaskError(Exception):
    """Like Ray's class: the traceback of the worker is text, and the exception comes without one."""

    def __init__(self, traceback: str, cause: Exception) -> None:
        super().__init__(traceback)
        self.cause = cause


RayTaskError.__module__ = "ray.exceptions"
REMOTE = """ray::RewardLoopWorker.compute_score()
  File "/usr/lib/python3.11/site-packages/verl/experimental/reward_loop/reward_manager/naive.py", line 71, in run_single
    result = await self.loop.run_in_executor(
  File "/code/reward.py", line 12, in compute_score
    return float(parse(solution_str))
  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode
    raise JSONDecodeError("Expecting value", s, err.value) from None
ValueError: no number
"""


def raised(tmp_path: Path) -> Exception:
    path = tmp_path / "reward.py"
    path.write_text(REWARD)
    names: dict[str, object] = {}
    exec(compile(REWARD, str(path), "exec"), names)  # noqa: S102 - a user's file
    try:
        names["compute_score"]("x")  # type: ignore[operator]
    except ValueError as error:
        return error
    raise AssertionError("nothing was raised")


def test_the_place_is_in_the_users_code_even_if_a_library_raises(tmp_path: Path) -> None:
    error = raised(tmp_path)
    assert place_of(error) == f"{tmp_path}/reward.py:4"
    assert Failure.of(error).text == (
        f"JSONDecodeError: Expecting value: line 1 column 1 (char 0) ({tmp_path}/reward.py:4)"
    )


def test_the_place_of_a_remote_exception_is_read_from_its_traceback() -> None:
    error = RayTaskError(REMOTE, ValueError("no number"))
    assert Failure.of(error) == Failure(1, "RunFailed", "ValueError: no number (/code/reward.py:12)")


def test_an_exception_of_a_library_alone_has_its_last_place() -> None:
    last = REMOTE.replace("/code/", "/x/site-packages/")
    assert place_of(RayTaskError(last, ValueError())) == "/usr/lib/python3.11/json/decoder.py:355"
    assert place_of(ValueError("never raised")) is None


def test_an_actor_that_was_not_created_has_the_exception_of_its_constructor() -> None:
    created = type("ActorDiedError", (Exception,), {"__module__": "ray.exceptions"})(
        "The actor died because of an error raised in its creation task, ray::RewardLoopWorker.__init__() (pid=1)\n"
        '  File "/code/reward.py", line 7, in load\n    json.loads("x")\n    ^^^^^^^\n'
        '  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode\n    raise JSONDecodeError("Ex")\n'
        "json.decoder.JSONDecodeError: Expecting value: line 1\nof two lines"
    )
    told = "json.decoder.JSONDecodeError: Expecting value: line 1 of two lines"
    assert Failure.of(created) == Failure(1, "RunFailed", f"{told} (/code/reward.py:7)")
    assert from_error(created).message == told


def test_the_verdict_is_that_of_the_exception() -> None:
    lost = type("NodeDiedError", (Exception,), {"__module__": "ray.exceptions"})("gone")
    assert (Failure.of(lost).exit_code, Failure.of(lost).reason) == (ExitCode.ENVIRONMENT, "NodeLost")
    memory = RuntimeError("NPU out of memory. Tried to allocate 2 GiB")
    assert Failure.of(RayTaskError(REMOTE, memory)).reason == "DeviceOutOfMemory"


def test_a_failure_is_bounded_and_survives_its_way() -> None:
    failure = Failure.of(ValueError("\ud800" + "x" * 100_000))
    assert len(failure.text) <= MESSAGE_LIMIT
    assert codec.loads(Failure, codec.dumps(failure)) == failure
    assert json.loads(codec.dumps(failure))["exitCode"] == 1


@pytest.mark.parametrize("on_the_way", [lambda error: error, lambda error: RayTaskError("trainer", error)])
def test_the_outcome_is_the_workers_exception(on_the_way: type[Exception]) -> None:
    error = on_the_way(WorkerFailedError("ValueError: no number (/code/reward.py:12)", "RunFailed", 1))
    error.__context__ = RuntimeError("no materializable trajectories")
    outcome = from_error(error, last_step=3)
    assert (outcome.exit_code, outcome.reason, outcome.last_step) == (1, "RunFailed", 3)
    assert outcome.message == "ValueError: no number (/code/reward.py:12)"
