"""verl's dataloader with another order: torchdata's StatefulDataLoader around the order of `prompt_order`.

The loader is verl's own in everything but its sampler. Its state is a superset of verl's, so that checkpoints of runs
with and without the order continue in each other: an epoch that has begun keeps its order to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset, Sampler
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import RandomSampler

from rljob_runtime.contract import ExitCode
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.verl_plugin.trainer.prompt_order import PromptOrder

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from tensordict import TensorDict

STATE = "rljob_prompt_order"
"""Our part of the loader's state."""
YIELDED, GENERATOR, ORDER = "yielded", "generator", "order"
"""Keys of the state of an epoch. The first two are those of torchdata's sampler (sampler.py:20-21, 0.11.0)."""
ROW = "rljob_row"
"""Column with the row of the dataset. It leaves the batch before verl sees it."""


class NumberedDataset(Dataset[dict[str, Any]]):  # type: ignore[misc] # torch is not installed with the linters
    """A dataset whose items carry their row."""

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401 - of verl or of the job
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {**self.dataset[row], ROW: torch.tensor(row)}


class StatefulNumberedDataset(NumberedDataset):
    """The same for a dataset with a state, which torchdata then keeps in checkpoints."""

    def state_dict(self) -> Any:  # noqa: ANN401 - the dataset's
        """Return the dataset's state."""
        return self.dataset.state_dict()

    def load_state_dict(self, state: Any) -> None:  # noqa: ANN401 - the dataset's
        """Continue with a state of the dataset."""
        self.dataset.load_state_dict(state)


class OrderedSampler(Sampler[int]):  # type: ignore[misc] # as above
    """Yields the rows of an epoch: verl's permutation, in the order of `order`."""

    def __init__(self, order: PromptOrder, generator: torch.Generator) -> None:
        self.order = order
        self.generator = generator

    def __len__(self) -> int:
        return self.order.rows

    def __iter__(self) -> Iterator[int]:
        return OrderedEpoch(self)


class OrderedEpoch(Iterator[int]):
    """One epoch. Its order is fixed when it begins, whatever is measured meanwhile."""

    def __init__(self, sampler: OrderedSampler) -> None:
        self._generator, self._count = sampler.generator, len(sampler)
        self._yielded = 0
        self._before = self._generator.get_state()
        self._rows = self._drawn()
        ordered = sampler.order.epoch(self._rows, self._shuffled)
        self._order = None if ordered is None else torch.tensor(ordered, dtype=torch.int32)
        self._rows = self._rows if ordered is None else ordered

    def _drawn(self) -> list[int]:
        """Draw the epoch's permutation, as torchdata's sampler does."""
        return permutation(self._count, self._generator)

    def _shuffled(self, batches: int) -> list[int]:
        # From a copy, so that every epoch has the permutation that it has without the order.
        generator = torch.Generator()
        generator.set_state(self._generator.get_state())
        return permutation(batches, generator)

    def __iter__(self) -> OrderedEpoch:
        return self

    def __next__(self) -> int:
        if self._yielded == len(self._rows):
            raise StopIteration
        self._yielded += 1
        return self._rows[self._yielded - 1]

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the epoch, and its order if it is not verl's."""
        state = {YIELDED: self._yielded, GENERATOR: self._before}
        return state if self._order is None else {**state, ORDER: self._order}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue an epoch, of ours or of verl's sampler."""
        self._before, self._yielded = state[GENERATOR], state[YIELDED]
        # Also an epoch whose order is known draws its permutation, so that the next one draws its own.
        self._generator.set_state(self._before)
        self._rows, self._order = self._drawn(), state.get(ORDER)
        if self._order is not None:
            self._rows = self._order.tolist()


def permutation(length: int, generator: torch.Generator) -> list[int]:
    """Draw a permutation of range(length)."""
    drawn: list[int] = torch.randperm(length, generator=generator).tolist()
    return drawn


class OrderedLoader(StatefulDataLoader):  # type: ignore[misc] # as above
    """Like a loader of verl's, except for the order of its prompts."""

    def __init__(self, loader: StatefulDataLoader, order: PromptOrder, note: Callable[[str], None]) -> None:
        if not isinstance(loader.sampler, RandomSampler):
            raise RefusedError(
                ExitCode.BAD_CONFIG,
                "InvalidConfig",
                "spec.optimizations.promptOrder is LengthAware, but verl.overrides sets data.shuffle to false, which "
                "asks for the order of the files; remove one of them",
            )
        self.order = order
        self._note = note
        is_stateful = hasattr(loader.dataset, "state_dict") and hasattr(loader.dataset, "load_state_dict")
        super().__init__(
            dataset=(StatefulNumberedDataset if is_stateful else NumberedDataset)(loader.dataset),
            batch_size=loader.batch_size,
            num_workers=loader.num_workers,
            drop_last=loader.drop_last,
            collate_fn=loader.collate_fn,
            sampler=OrderedSampler(order, loader.sampler.generator),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return torchdata's state and the estimates of now: torchdata's may be older, as it loads ahead."""
        return {**super().state_dict(), STATE: self.order.state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with a state of ours or of verl's loader."""
        ours = state_dict.get(STATE)
        if ours is not None and ours["rows"] != self.order.rows:
            self._note(
                f"the checkpoint orders {ours['rows']} prompts by the lengths of their responses, and data.train has "
                f"{self.order.rows} now: a new epoch begins, and lengths are measured again"
            )
            super().load_state_dict({})
            return
        if ours is not None:
            self.order.load(ours)
        # torchdata reads its own keys only, here as in a run without the order.
        super().load_state_dict(state_dict)

    def take_rows(self, batch: TensorDict) -> None:
        """Remove the column of rows from a batch, and note which prompts were drawn."""
        self.order.draw(batch["uid"], batch.pop(ROW).tolist())


def ordered(loader: StatefulDataLoader, config: DictConfig, note: Callable[[str], None]) -> OrderedLoader:
    """Return a loader like verl's that orders prompts by the lengths of their responses."""
    return OrderedLoader(loader, _order(loader, config, learns=True), note)


def continued(loader: StatefulDataLoader, config: DictConfig, note: Callable[[str], None]) -> StatefulDataLoader:
    """Return a loader that ends an epoch of a run with the order, if verl's loader was given one in a checkpoint."""
    state = loader.next_iter_state
    if isinstance(loader, OrderedLoader) or not state or STATE not in state:
        return loader
    ours = OrderedLoader(loader, _order(loader, config, learns=False), note)
    ours.load_state_dict(state)
    return ours


def _order(loader: StatefulDataLoader, config: DictConfig, *, learns: bool) -> PromptOrder:
    data = config.data
    return PromptOrder(len(loader.dataset), data.train_batch_size, data.max_response_length, learns=learns)
