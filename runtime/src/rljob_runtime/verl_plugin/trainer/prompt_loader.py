"""verl's dataloader, which also says which rows of the dataset it gives and how many it has given.

The ledger of prompts needs both (checkpoints/prompt_ledger.py). Order and state are verl's: the sampler is the same
object, and the count is one more entry of the state in `data.pt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from torchdata.stateful_dataloader import StatefulDataLoader

from rljob_runtime.verl_plugin.trainer.ordered_loader import ROW, NumberedDataset, StatefulNumberedDataset

if TYPE_CHECKING:
    from tensordict import TensorDict

STATE = "rljob_prompts"
"""Our part of the loader's state."""
BEGINS_AGAIN = "the step was saved in another trainer.mode: the run begins with the first prompts of data.train"


class PromptLoader(StatefulDataLoader):  # type: ignore[misc] # torchdata is not installed with the linters
    """Gives prompts one by one, as verl's loader does in asynchronous modes."""

    def __init__(self, loader: StatefulDataLoader, note: Callable[[str], None]) -> None:
        data = loader.dataset
        is_stateful = hasattr(data, "state_dict") and hasattr(data, "load_state_dict")
        super().__init__(
            dataset=(StatefulNumberedDataset if is_stateful else NumberedDataset)(data),
            batch_size=loader.batch_size,
            num_workers=loader.num_workers,
            drop_last=loader.drop_last,
            collate_fn=loader.collate_fn,
            sampler=loader.sampler,
        )
        self._note = note
        self.epoch = 0
        self.drawn = 0
        """Prompts given in all epochs, over all attempts."""

    def __iter__(self) -> Iterator[Any]:
        return _Epoch(self, super().__iter__())

    def state_dict(self) -> dict[str, Any]:
        """Return torchdata's state and the count."""
        return {**super().state_dict(), STATE: {"epoch": self.epoch, "drawn": self.drawn}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with a state of ours. A loader of another mode counts batches of another size: begin again."""
        if STATE not in state_dict:
            self._note(BEGINS_AGAIN)
            return
        self.epoch, self.drawn = (int(state_dict[STATE][key]) for key in ("epoch", "drawn"))
        super().load_state_dict(state_dict)  # it reads its own keys only

    def take_rows(self, batch: TensorDict) -> list[int]:
        """Remove the column of rows from a batch, and return it."""
        rows: list[int] = batch.pop(ROW).tolist()
        return rows


class _Epoch(Iterator[Any]):
    """Counts what torchdata's iterator gives."""

    def __init__(self, loader: PromptLoader, batches: Iterator[Any]) -> None:
        self._loader = loader
        self._batches = batches

    def __next__(self) -> Any:  # noqa: ANN401 - a batch of torchdata's
        try:
            batch = next(self._batches)
        except StopIteration:
            # verl then begins the next epoch (trainer_base.py, _fetch_one_gen_batch, 0.9.1).
            self._loader.epoch += 1
            raise
        self._loader.drawn += int(self._loader.batch_size)
        return batch
