"""Exceptions are mapped to the exit code and the root cause."""

from __future__ import annotations

import copy
import errno
import os
import pickle
from pathlib import Path

import pytest

from rljob_runtime.contract import ExitCode, Outcome
from rljob_runtime.outcomes import (
    MESSAGE_LIMIT,
    NODE_LOST,
    FencedError,
    LossError,
    RefusedError,
    StartGoneError,
    Verdict,
    bounded,
    from_error,
)


class RayTaskError(Exception):
    """Like Ray's class: has the worker's exception in `cause`."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(f"traceback of {cause}")
        self.cause = cause


def named(name: str, text: str, module: str = "ray.exceptions", base: type[Exception] = Exception) -> Exception:
    error: Exception = type(name, (base,), {"__module__": module})(text)
    return error


def test_the_innermost_exception_is_the_cause() -> None:
    outcome = from_error(RayTaskError(RayTaskError(KeyError("reward"))), last_step=7)
    assert (outcome.exit_code, outcome.reason, outcome.last_step) == (ExitCode.FAILED, "RunFailed", 7)
    assert outcome.message == "KeyError: 'reward'"


def test_a_refusal_of_the_trainers_process_keeps_its_code_and_reason() -> None:
    refusal = RefusedError(ExitCode.BAD_CONFIG, "PromptsTooLong", "lower it", ("node-a",))
    outcome = from_error(RayTaskError(pickle.loads(pickle.dumps(refusal))))  # noqa: S301 - as Ray does
    assert (outcome.exit_code, outcome.reason) == (ExitCode.BAD_CONFIG, "PromptsTooLong")
    assert (outcome.message, outcome.nodes) == ("lower it", ("node-a",))


def test_a_refusal_with_a_cause_is_the_refusal() -> None:
    refusal = RefusedError(ExitCode.BAD_CONFIG, "InvalidConfig", "verl rejects it")
    refusal.__cause__ = ValueError("batch")
    assert from_error(refusal).message == "verl rejects it"


def test_an_explicit_chain_is_followed() -> None:
    error = ValueError("outer")
    error.__cause__ = OSError("disk full")
    assert from_error(error).message == "OSError: disk full"


def test_a_cycle_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert from_error(first).message == "ValueError: b"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (FencedError("attempt 3 owns it"), "Fenced"),
        (StartGoneError("global_step_4 went"), "CheckpointChanged"),
        (named("NodeDiedError", "gone"), "NodeLost"),
        (named("ActorDiedError", "The actor died because its node has died."), "NodeLost"),
        (named("OutOfMemoryError", "killed"), "OutOfMemory"),
        (named("RaySystemError", "no GCS"), "RayUnavailable"),
        (named("ActorUnavailableError", "RPC error: Socket closed"), "RayUnavailable"),
    ],
)
def test_a_fault_of_the_place_is_retried(error: Exception, reason: str) -> None:
    outcome = from_error(RayTaskError(error))
    assert (outcome.exit_code, outcome.reason) == (ExitCode.ENVIRONMENT, reason)


NPU = "NPU out of memory. Tried to allocate 72.00 MiB (NPU 0; 61.27 GiB total capacity; 56.05 GiB already allocated)"


@pytest.mark.parametrize(
    "error",
    [
        named("OutOfMemoryError", NPU, "torch", RuntimeError),
        named("OutOfMemoryError", "Allocation on device", "torch.cuda", RuntimeError),
        RuntimeError(NPU),
        RuntimeError("Worker failed with error 'CUDA out of memory. Tried to allocate 2.00 GiB', please check the log"),
    ],
)
def test_a_device_short_of_memory_is_the_runs_own_fault_and_not_the_nodes(error: Exception) -> None:
    outcome = from_error(RayTaskError(error))
    assert (outcome.exit_code, outcome.reason) == (ExitCode.FAILED, "DeviceOutOfMemory")
    assert outcome.message == f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(
    "error", [named("RpcError", "no answer", "grpc"), ValueError("the answer says: CUDA out of memory")]
)
def test_a_name_or_a_text_alone_is_not_an_environment_failure(error: Exception) -> None:
    assert from_error(error).reason == "RunFailed"


def test_a_node_that_is_gone_explains_what_the_rest_of_the_run_raised() -> None:
    error = LossError(NODE_LOST, "the worker at 10.0.0.7 is gone", "node-7")
    error.__cause__ = RuntimeError("Connection closed by peer")
    outcome = from_error(error)
    assert (outcome.exit_code, outcome.reason) == (ExitCode.ENVIRONMENT, "NodeLost")
    assert outcome.message == "the worker at 10.0.0.7 is gone"
    assert (outcome.suspect, outcome.nodes) == ("node-7", ()), "once says little: it is not avoided at once"


def test_an_actor_that_died_of_itself_is_a_failure_of_the_run() -> None:
    error = named("ActorDiedError", "The actor died unexpectedly: segmentation fault")
    assert from_error(error).exit_code == ExitCode.FAILED


def test_a_refusal_keeps_its_code_and_reason() -> None:
    outcome = from_error(RefusedError(ExitCode.BAD_CONFIG, "PathMissing", "reward.path: /x"))
    assert (outcome.exit_code, outcome.reason, outcome.message) == (64, "PathMissing", "reward.path: /x")


def test_a_long_message_keeps_both_ends_on_one_line() -> None:
    text = bounded("begin " + "x\n" * 5000 + " end")
    assert len(text) <= MESSAGE_LIMIT
    assert text.startswith("begin")
    assert text.endswith("end")
    assert "\n" not in text


def test_half_of_a_pair_in_a_text_is_written_out() -> None:
    outcome = from_error(ValueError("the answer was cut: \ud83d"))
    assert outcome.message == "ValueError: the answer was cut: \\ud83d"
    assert Outcome.from_json(outcome.to_json()) == outcome
    assert len(bounded("\ud83d" * MESSAGE_LIMIT)) <= MESSAGE_LIMIT


@pytest.mark.parametrize(
    ("number", "file", "reason"),
    [
        (errno.ENOSPC, "/spool/attempt-1/steps.jsonl", "DiskFull"),
        (errno.ENOSPC, "/volume/checkpoints/global_step_4/data.pt", "RunFailed"),
        (errno.EIO, "/spool/attempt-1/steps.jsonl", "RunFailed"),
        (errno.ENOSPC, None, "RunFailed"),
    ],
)
def test_a_full_disk_below_the_spool_is_the_places_fault_and_a_full_volume_the_users(
    number: int, file: str | None, reason: str
) -> None:
    error = OSError(number, os.strerror(number))
    error.filename = file
    # pickle transfers it from the trainer's process.
    outcome = from_error(RayTaskError(copy.copy(error)), disk=Path("/spool"))
    code = ExitCode.ENVIRONMENT if reason == "DiskFull" else ExitCode.FAILED
    assert (outcome.reason, outcome.exit_code) == (reason, code)
    assert from_error(error).reason == "RunFailed"


def test_the_first_outcome_stands() -> None:
    verdict, first, second = Verdict(), Outcome(0, "Completed", "m"), Outcome(65, "NodeLost", "m")
    assert verdict.settle(first) is verdict.settle(second) is verdict.outcome is first
