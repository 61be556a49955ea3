"""The reward function: loaded and bound in a process of its own, as verl's reward workers load it minutes later.

verl loads it in each RewardLoopWorker, after the models (trainer/ppo/reward.py, get_custom_reward_fn; 0.9.1). A failure
there ends as "no materializable trajectories". The user's file runs at this import: it may exit, hang, print without
end, start threads or change the process, so it does not run in the driver. The child (reward_probe.py) writes one JSON
object to a pipe; what it prints is bounded and shown only if it failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import IO, TYPE_CHECKING, Any

from rljob_runtime.contract import ExitCode
from rljob_runtime.contract.rewards import PACKAGE
from rljob_runtime.outcomes import RefusedError

if TYPE_CHECKING:
    from omegaconf import DictConfig

PROBE = "rljob_runtime.input_checks.reward_probe"
IMPORT_SECONDS = 300.0
"""A reward function that imports verl and torch from a slow volume takes a minute."""
OUTPUT_BYTES = 16 * 1024
"""The end of the child's output that is kept."""
ANSWER_BYTES = 64 * 1024
KEYWORDS = ("data_source", "solution_str", "ground_truth", "extra_info")
"""How verl's reward managers call it (0.9.1, experimental/reward_loop/reward_manager/naive.py:60-80 and the others)."""
MODEL_KEYWORDS = ("reward_router_address", "reward_model_tokenizer")
"""The keywords that they add if a reward model is served (naive.py:52-59)."""
CALLED_BY = frozenset({"naive", "dapo", "gdpo", "rate_limited", "remote"})
"""verl's own reward managers. One of the user's may call the function in another way."""


@dataclass(frozen=True)
class RewardSettings:
    """The keys of verl's configuration that decide which function is called, and how."""

    path: str
    name: str
    keywords: tuple[str, ...]
    """Empty if a reward manager of the user's own calls the function."""

    @classmethod
    def of(cls, config: DictConfig) -> RewardSettings | None:
        """Return the settings of a run; None without a function of the user's, where the runtime brings one too."""
        reward = config.reward
        chosen: Mapping[str, Any] = reward.get("custom_reward_function") or {}
        if not chosen.get("path") or str(chosen["path"]).startswith(PACKAGE):
            return None
        manager = reward.reward_manager
        keywords: tuple[str, ...] = ()
        if manager.source == "register" and manager.name in CALLED_BY:
            served = MODEL_KEYWORDS if reward.reward_model.enable else ()
            keywords = (*KEYWORDS, *served, *(chosen.get("reward_kwargs") or {}))
        return cls(str(chosen["path"]), str(chosen["name"]), tuple(dict.fromkeys(map(str, keywords))))


@dataclass
class RewardCheck:
    """A check that is under way, so that the launcher can do something else meanwhile."""

    settings: RewardSettings
    seconds: float = IMPORT_SECONDS
    _process: subprocess.Popen[bytes] = field(init=False)
    _answer: bytearray = field(default_factory=bytearray, init=False)
    _output: bytearray = field(default_factory=bytearray, init=False)
    _threads: list[threading.Thread] = field(default_factory=list, init=False)
    _ends: float = field(init=False)
    _stopped: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        """Start the child, in a process group of its own."""
        self._ends = time.monotonic() + self.seconds
        reading, writing = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", PROBE, json.dumps(asdict(self.settings)), str(writing)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(writing,),
                start_new_session=True,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        if self._process.stdout is None:
            raise AssertionError("the child's output is a pipe")
        self._follow(os.fdopen(reading, "rb", buffering=0), self._answer, ANSWER_BYTES)
        self._follow(self._process.stdout, self._output, OUTPUT_BYTES)

    def _follow(self, stream: IO[bytes], kept: bytearray, limit: int) -> None:
        """Read a stream to its end and keep the last bytes."""

        def read() -> None:
            with stream, contextlib.suppress(OSError, ValueError):
                while part := os.read(stream.fileno(), 64 * 1024):
                    kept.extend(part)
                    del kept[:-limit]

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        self._threads.append(thread)

    def require(self) -> None:
        """Wait for the child. Raises RefusedError: exit 64 for a function that verl cannot call, 65 for a volume."""
        try:
            self._process.wait(max(0.0, self._ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            problem = (
                f"its import has not ended after {self.seconds:g} s; look at the volume, and at what the file does at "
                "its import"
            )
            raise _refused(self.settings, "RewardUnreadable", problem) from None
        finally:
            self.stop()
        self._judge(self._said())

    def stop(self) -> None:
        """End the child with everything that it has started. Only once, because its pid may be used again."""
        if self._stopped:
            return
        self._stopped = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for thread in self._threads:
            thread.join(1.0)

    def _said(self) -> Mapping[str, Any] | None:
        try:
            said = json.loads(bytes(self._answer))
        except ValueError:
            return None
        return said if isinstance(said, dict) else None

    def _judge(self, said: Mapping[str, Any] | None) -> None:
        if said is not None and not said.get("problem"):
            return
        self._show_output()
        if said is not None:
            if said.get("volume"):
                raise _refused(self.settings, "RewardUnreadable", str(said["problem"]))
            raise _refused(self.settings, "RewardInvalid", str(said["problem"]))
        code = self._process.returncode
        if code == -signal.SIGKILL:
            killed = "its import was killed; look at the memory of the head pod"
            raise _refused(self.settings, "RewardUnreadable", killed)
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        exits = f"its import ends the process ({ended}); a file that is imported must not exit"
        raise _refused(self.settings, "RewardInvalid", exits)

    def _show_output(self) -> None:
        if self._output:
            text = bytes(self._output).decode(errors="replace")
            print(f"rljob: output of the import of {self.settings.path}:\n{text}", file=sys.stderr, flush=True)  # noqa: T201


def _refused(settings: RewardSettings, reason: str, problem: str) -> RefusedError:
    """Return the error; another attempt may find a volume in a better state."""
    code = ExitCode.ENVIRONMENT if reason == "RewardUnreadable" else ExitCode.BAD_CONFIG
    return RefusedError(code, reason, f"reward.path {settings.path}: {problem}")
