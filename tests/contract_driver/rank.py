"""One rank: a Ray actor with one device, as verl's WorkerDict and vLLM's engine are."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import ray

from rljob_runtime.checkpoints.saved_steps import MODEL_FOLDER
from tests.contract_driver.collective import Group
from tests.contract_driver.settings import Settings
from tests.contract_driver.state import State, part

KINDS = ("model", "optim")
"""Kinds of files that FSDP saves per rank (rljob_runtime/checkpoints/saved_steps.py, SHARD)."""


class PlannedError(Exception):
    """The failure that the job requests with `fail_at_step`."""


class ContractRank:
    """Generates, trains and saves on request of the trainer; `abort` can be called in the meantime."""

    def __init__(self, rank: int, ranks: int, settings: Settings) -> None:
        self._rank, self._ranks, self._settings = rank, ranks, settings
        self._state = State(rank, ranks)
        self._group = Group(rank, ranks)
        self._aborted = threading.Event()

    def listen(self) -> tuple[str, int]:
        """Return the address and port on which rank 0 waits for the others."""
        return str(ray.util.get_node_ip_address()), self._group.port

    def join(self, address: str, port: int) -> None:
        """Join the group of all ranks."""
        self._group.join(address, port)

    def load(self, made: Path | None) -> int:
        """Load the state from the folder of a step and return the step; 0 without a folder."""
        if made is not None:
            states = {kind: State.load(self._file(made, kind), self._rank, self._ranks) for kind in KINDS}
            self._state = states["model"]
            if states["optim"] != self._state:
                raise RuntimeError(f"rank {self._rank}: model and optimizer have different steps in {made}")
        return self._state.step

    def generate(self) -> float:
        """Wait for the duration of a rollout, unless it is aborted, and return that duration.

        All ranks return together. Higher ranks finish earlier, so that replicas are idle for a known time.
        """
        self._aborted.clear()
        seconds = self._settings.rollout_seconds * (1 - 0.4 * self._rank / self._ranks)
        self._aborted.wait(seconds)
        self._group.all_reduce(0)
        return seconds

    def abort(self) -> None:
        """Abort the rollout."""
        self._aborted.set()

    def train(self, step: int) -> None:
        """Train one step together with all other ranks."""
        if step == self._settings.fail_at_step and self._rank == self._ranks - 1:
            raise PlannedError(f"rank {self._rank} fails in step {step}, as the job requests")
        time.sleep(self._settings.update_seconds)
        self._state.train(step, self._group.all_reduce(part(step, self._rank)))

    def save(self, made: Path) -> None:
        """Write this rank's files of the checkpoint, and wait until all other ranks have written theirs."""
        time.sleep(self._settings.save_seconds)
        for kind in KINDS:
            self._state.save(self._file(made, kind), self._settings.state_kilobytes)
        self._group.all_reduce(0)

    def _file(self, made: Path, kind: str) -> Path:
        return made / MODEL_FOLDER / f"{kind}_world_size_{self._ranks}_rank_{self._rank}.pt"
