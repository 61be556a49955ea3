"""Loading and binding a reward function in a process of its own, before any model is loaded."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from rljob_runtime.contract import ExitCode
from rljob_runtime.input_checks.reward import KEYWORDS, MODEL_KEYWORDS, RewardSettings
from rljob_runtime.input_checks.user_file import OUTPUT_BYTES, ImportCheck
from rljob_runtime.outcomes import RefusedError

CALLABLE = {
    "by name": "def f(data_source, solution_str, ground_truth, extra_info=None): return 1.0",
    "in another order, with more": "def f(extra_info, ground_truth, solution_str, data_source, scale=2): return 1.0",
    "any keyword": "def f(**kwargs): return 1.0",
    "a coroutine": "async def f(data_source, solution_str, ground_truth, extra_info): return 1.0",
    "an object": "class F:\n  def __call__(self, data_source, solution_str, **more): return 1\nf = F()",
    "partly given": "import functools\ndef g(a, **kw): return a\nf = functools.partial(g, 1)",
    "without a signature": "f = dict",
    "a file that starts a thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n"
    "def f(**kwargs): return 1.0",
    "a file that prints a lot": "print('x' * 10_000_000)\ndef f(**kwargs): return 1.0",
    "code beside the guard": "def f(**kwargs): return 1\nif __name__ == '__main__': raise SystemExit(3)",
}
REFUSED = {
    "no such function": (
        "def score(x): return x\ndef _help(): ...\n",
        r"has no function f \(reward\.function\); its functions: score$",
    ),
    "a number": ("f = 3", r"f \(reward\.function\) is of type int, not a function"),
    "a typing error": ("def f(:\n  pass", r"does not compile: line 1: invalid syntax: `def f\(:`; correct the file"),
    "a wrong indentation": (
        "def f(**k):\nreturn 1\n",
        r"does not compile: line 2: expected an indented block .*line 1",
    ),
    "null bytes": ("def f(**k): return 1\n\0", "does not compile: source code string cannot contain null bytes"),
    "an exception": ("x = 1\ny = x / 0\n", r"its import raises ZeroDivisionError: division by zero \(.*reward.py:2\)"),
    "a package that is missing": (
        "import os\nimport no_such_package_at_all\n",
        r"raises ModuleNotFoundError: No module named 'no_such_package_at_all' \(.*reward\.py:2\); install the package",
    ),
    "a file of its own that is missing": ("open('/nowhere/a.json')", r"raises FileNotFoundError: .*/nowhere/a\.json"),
    "an exit": ("import sys\nsys.exit(2)", r"its import calls exit \(.*reward\.py:2\); guard it"),
    "a hard exit": ("import os\nos._exit(3)", r"its import ends the process \(exit code 3\)"),
    "a crash": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", r"ends the process \(signal 11\)"),
    "other parameters": (
        "def f(response, answer): return 1",
        r"f\(response, answer\) cannot be called as verl calls it, by the keywords data_source, solution_str, ground_t",
    ),
    "one parameter too many": (
        "def f(data_source, solution_str, ground_truth, extra_info, tokenizer): return 1",
        "missing a required argument: 'tokenizer'; give it these parameters",
    ),
    "positions only": ("def f(a, b, c, d, /): return 1", "cannot be called as verl calls it"),
    "a generator": ("def f(**kwargs): yield 1", "f yields; verl expects that it returns a number"),
    "an asynchronous object": (
        "class F:\n  async def __call__(self, **kwargs): return 1\nf = F()",
        "f is an object with an async __call__",
    ),
}


def check(path: Path, source: str, keywords: tuple[str, ...] = KEYWORDS, seconds: float = 60.0) -> None:
    path.write_text(source)
    ImportCheck(RewardSettings(str(path), "f", keywords), seconds).require()


def refused(path: Path, source: str, **options: float) -> RefusedError:
    with pytest.raises(RefusedError) as error:
        check(path, source, **options)  # type: ignore[arg-type]
    return error.value


@pytest.mark.parametrize("source", CALLABLE.values(), ids=CALLABLE)
def test_a_function_that_verl_can_call_passes(tmp_path: Path, source: str, capfd: pytest.CaptureFixture[str]) -> None:
    check(tmp_path / "reward.py", source)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("source", "told"), REFUSED.values(), ids=REFUSED)
def test_a_function_that_cannot_work_is_refused_with_file_and_cause(tmp_path: Path, source: str, told: str) -> None:
    path = tmp_path / "reward.py"
    error = refused(path, source)
    assert (error.code, error.reason) == (ExitCode.BAD_CONFIG, "RewardInvalid")
    assert str(error).startswith(f"reward.path {path}: ")
    assert re.search(told, str(error)), str(error)


def test_a_file_without_the_suffix_of_python_is_refused(tmp_path: Path) -> None:
    error = refused(tmp_path / "reward.txt", "def f(**kwargs): return 1")
    assert "its name does not end with .py" in str(error)
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(RefusedError, match="is a folder"):
        ImportCheck(RewardSettings(str(tmp_path / "folder.py"), "f", KEYWORDS)).require()


def test_keywords_of_a_served_reward_model_are_part_of_the_call(tmp_path: Path) -> None:
    source = "def f(data_source, solution_str, ground_truth, extra_info): return 1"
    with pytest.raises(RefusedError, match="unexpected keyword argument 'reward_router_address'"):
        check(tmp_path / "reward.py", source, (*KEYWORDS, *MODEL_KEYWORDS))


def test_how_a_reward_manager_of_the_users_calls_the_function_is_not_judged(tmp_path: Path) -> None:
    check(tmp_path / "reward.py", "def f(anything): return 1", ())


def test_an_import_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    error = refused(tmp_path / "reward.py", "import time\ntime.sleep(600)", seconds=0.5)
    assert (error.code, error.reason) == (ExitCode.ENVIRONMENT, "RewardUnreadable")
    assert "has not ended after 0.5 s" in str(error)


def test_what_an_import_has_started_ends_with_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    source = (
        "import pathlib, subprocess\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(subprocess.Popen(['sleep', '600']).pid))\n"
        "def f(**kwargs): return 1\n"
    )
    check(tmp_path / "reward.py", source)
    state = Path(f"/proc/{pid.read_text()}/stat")
    while state.exists() and state.read_text().split()[2] != "Z":
        time.sleep(0.01)


def test_a_volume_that_fails_is_an_environment_that_another_attempt_may_find_better(tmp_path: Path) -> None:
    failing = "import errno, os\nraise OSError(errno.ESTALE, os.strerror(errno.ESTALE), '/code')"
    error = refused(tmp_path / "reward.py", failing)
    assert (error.code, error.reason) == (ExitCode.ENVIRONMENT, "RewardUnreadable")
    with pytest.raises(RefusedError, match="No such file") as gone:
        ImportCheck(RewardSettings(str(tmp_path / "gone.py"), "f", KEYWORDS)).require()
    assert gone.value.code is ExitCode.ENVIRONMENT


def test_an_import_that_is_killed_for_memory_counts_for_the_environment(tmp_path: Path) -> None:
    error = refused(tmp_path / "reward.py", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    assert (error.code, error.reason) == (ExitCode.ENVIRONMENT, "RewardUnreadable")


def test_the_output_of_a_failed_import_is_shown_and_bounded(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    refused(tmp_path / "reward.py", "print('first' + 'x' * 1_000_000 + 'last')\nraise ValueError")
    shown = capfd.readouterr().err
    assert "last" in shown
    assert "first" not in shown
    assert len(shown) < 2 * OUTPUT_BYTES


def test_the_text_of_an_exception_is_bounded(tmp_path: Path) -> None:
    assert len(str(refused(tmp_path / "reward.py", "raise ValueError('x' * 100_000)"))) < 1500
