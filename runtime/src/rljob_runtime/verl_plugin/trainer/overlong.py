"""Prompts that are longer than data.maxPromptTokens: counted with verl's own filter before a model is loaded.

verl 0.9.1 filters them if data.filter_overlong_prompts is true (utils/dataset/rl_dataset.py:199-275), and prints only
how many are left. Otherwise its agent loop cuts them on the left (experimental/agent_loop/agent_loop.py:437-446), also
with data.truncation `error`, which its YAML documents as an error. The trainer creates its datasets before any worker
(trainer/ppo/v1/trainer_base.py:226-228), so the count costs no second pass over the files, and `error` can be one.
"""

from __future__ import annotations

import contextlib
import enum
import io
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rljob_runtime.contract import ExitCode
from rljob_runtime.input_checks.data_files import too_small
from rljob_runtime.outcomes import RefusedError

if TYPE_CHECKING:
    from omegaconf import DictConfig

COUNT_SECONDS = 60.0
"""How long prompts are counted that verl does not filter; the message says how many were counted."""
CHUNK, CHUNK_MAX = 256, 4096
OR_BROKEN = "or cannot be rendered (the driver's log has the error)"
"""verl's filter also drops a prompt on which the chat template raises."""


class Overlong(enum.StrEnum):
    """What happens to longer prompts: data.overlong of the manifest."""

    FILTER = "Filter"
    TRUNCATE = "Truncate"
    FAIL = "Fail"


def take_over(config: DictConfig) -> Overlong:
    """Return what the configuration asks for. In order to fail, verl filters and `Counter` refuses."""
    if config.data.get("filter_overlong_prompts", False):
        return Overlong.FILTER
    if config.data.get("truncation", "error") != "error":
        return Overlong.TRUNCATE
    config.data.filter_overlong_prompts = True
    return Overlong.FAIL


class Counter:
    """Counts the long prompts of the datasets that verl creates meanwhile, and reports them."""

    def __init__(self, mode: Overlong, config: DictConfig, tell: Callable[[str], None]) -> None:
        self._mode = mode
        self._tell = tell
        self._limit = int(config.data.max_prompt_length)
        self._train = _paths(config.data.train_files)
        self._batch = None if config.trainer.get("val_only", False) else int(config.data.train_batch_size)
        self._told: set[tuple[str, ...]] = set()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Count in verl's dataset class. A class of the user's own that does not inherit from it is not counted."""
        from verl.utils.dataset.rl_dataset import RLHFDataset

        original = RLHFDataset.maybe_filter_out_long_prompts

        def filtered(dataset: Any, dataframe: Any = None) -> Any:  # noqa: ANN401 - verl's signature
            kept = original(dataset, dataframe)
            self._judge(dataset, dataframe, kept, original)
            return kept

        RLHFDataset.maybe_filter_out_long_prompts = filtered
        try:
            yield
        finally:
            RLHFDataset.maybe_filter_out_long_prompts = original

    def _judge(self, dataset: Any, dataframe: Any, kept: Any, original: Callable[..., Any]) -> None:  # noqa: ANN401
        files = _paths(dataset.original_data_files)
        name = "data.train" if files == self._train else "data.validation"
        total, left = len(dataframe), len(kept)
        known, self._told = files in self._told, self._told | {files}
        if self._mode is Overlong.TRUNCATE:
            if not known:
                self._tell_of_cuts(name, total, *count(dataset, dataframe, original, COUNT_SECONDS))
            return
        gone = total - left
        seen = f"{gone} of {total} prompts of {name} are longer than data.maxPromptTokens {self._limit}, {OR_BROKEN}"
        if gone and self._mode is Overlong.FAIL:
            advice = "raise data.maxPromptTokens, shorten them, or set data.overlong to Filter or Truncate"
            raise RefusedError(ExitCode.BAD_CONFIG, "PromptsTooLong", f"{seen}; data.overlong is Fail: {advice}")
        if not left:
            advice = "raise data.maxPromptTokens, or correct the prompts"
            raise RefusedError(ExitCode.BAD_CONFIG, "PromptsTooLong", f"{seen}; none is left: {advice}")
        if gone and name == "data.train" and self._batch is not None and left < self._batch:
            raise too_small(f"{seen}, which leaves {left}", self._batch)
        if gone and not known:
            self._tell(f"{seen}; they were left out (data.overlong: Filter)")

    def _tell_of_cuts(self, name: str, total: int, looked: int, long: int) -> None:
        if long:
            among = f"{total}" if looked == total else f"the first {looked} of {total}"
            self._tell(
                f"{long} of {among} prompts of {name} are longer than data.maxPromptTokens {self._limit}, {OR_BROKEN}; "
                "their beginning is cut off (data.overlong: Truncate)"
            )
        elif looked < total:
            self._tell(
                f"only the first {looked} of {total} prompts of {name} were counted in {COUNT_SECONDS:g} s; none is "
                f"longer than data.maxPromptTokens {self._limit}"
            )


def count(dataset: Any, dataframe: Any, original: Callable[..., Any], seconds: float) -> tuple[int, int]:  # noqa: ANN401
    """Return how many prompts were looked at within `seconds`, and how many of them verl's filter would drop."""
    deadline, looked, long, chunk = time.monotonic() + seconds, 0, 0, CHUNK
    dataset.filter_overlong_prompts = True
    try:
        while looked < len(dataframe) and (time.monotonic() < deadline or not looked):
            part = dataframe.select(range(looked, min(looked + chunk, len(dataframe))))
            with contextlib.redirect_stdout(io.StringIO()):  # one line for each part
                long += len(part) - len(original(dataset, part))
            looked, chunk = looked + len(part), min(2 * chunk, CHUNK_MAX)
    finally:
        dataset.filter_overlong_prompts = False
    return looked, long


def _paths(files: Any) -> tuple[str, ...]:  # noqa: ANN401 - a text, a list, or a node of verl's configuration
    return (files,) if isinstance(files, str) else tuple(str(file) for file in files)
