"""Every prompt once: verl's loop of an asynchronous mode in small, killed anywhere and resumed, under the ledger."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rljob_runtime.checkpoints import prompt_ledger
from rljob_runtime.checkpoints.prompt_ledger import (
    CONTROLLER_FILE,
    DATA_FILE,
    LEDGER_FILE,
    RETRIES,
    UNITS_FILE,
    Dropped,
    LedgerMismatchError,
    PromptLedger,
    prompts_to_add,
    strays,
)

ROWS, BATCH, SAMPLES, UNITS = 7, 3, 2, 2
"""Rows of an epoch, prompts of a step, responses to each, storage units."""
UNIT_FILE = "transfer_queue/simple_storage/su_{}.pkl"


@dataclass
class Loader:
    """Gives the rows of each epoch in order."""

    drawn: int = 0

    def draw(self) -> tuple[int, int]:
        self.drawn += 1
        return divmod(self.drawn - 1, ROWS)


@dataclass
class Run:
    """One run over its attempts: what is in memory is lost when it is killed."""

    folder: Path
    window: float
    chance: random.Random
    sweeps: bool = True
    step: int = 0
    loader: Loader = field(default_factory=Loader)
    ledger: PromptLedger = field(default_factory=PromptLedger)
    queue: dict[str, dict[str, Any]] = field(default_factory=dict)
    """TransferQueue: tags of prompts by uid, and of responses by `<uid>_<session>_0`."""
    trained: list[tuple[int, int]] = field(default_factory=list)
    dropped: list[tuple[int, int]] = field(default_factory=list)
    """Epoch and row of all that the weights of now have seen, by this test's own count."""
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)
    lineage: dict[int, str] = field(default_factory=dict)
    """The test's counts of each saved step."""
    names: int = 0

    def prompts(self) -> dict[str, dict[str, Any]]:
        return {key: tag for key, tag in self.queue.items() if tag["is_prompt"]}

    def fetch(self, count: int) -> None:
        for _ in range(count):
            self.names += 1
            uid = f"uid{self.names}"
            self.rows[uid] = self.loader.draw()
            self.ledger.fetch(uid, *self.rows[uid])
            self.queue[uid] = {"is_prompt": True, "status": "running", "global_steps": self.step}

    def clear(self, uids: set[str]) -> None:
        for key in [key for key in self.queue if key.split("_")[0] in uids]:
            del self.queue[key]

    def drop(self, uids: list[str], reason: Dropped) -> None:
        self.clear(set(uids))
        self.ledger.drop(uids, reason)
        self.dropped += [self.rows[uid] for uid in uids]
        self.fetch(len(uids))

    # One attempt; it may be killed at each `yield`.

    def attempt(self) -> Generator[None, None, None]:
        self.resume()
        self.step += 1
        for uid, tag in self.prompts().items():
            if tag["status"] == "running":  # verl issues it again
                self.clear({uid})
                self.queue[uid] = {**tag, "global_steps": self.step}
        self.fetch(max(0, int(self.window * BATCH) - len(self.prompts())))
        yield
        while True:
            yield from self.train_a_step()

    def train_a_step(self) -> Iterator[None]:
        self.fetch(prompts_to_add(wanted := int((1 + self.window) * BATCH), len(self.prompts())))
        assert len(self.prompts()) == wanted, "also after a rollout that was abandoned with all prompts in flight"
        yield
        while len(ready := [uid for uid, tag in self.prompts().items() if tag["status"] == "finished"]) < BATCH:
            self.generate()
            yield
        if self.chance.random() < 0.1:  # a stop abandons the rollout: the weights are those of the step before
            yield from self.save(self.step - 1, set())
        batch = sorted(ready, key=lambda uid: int(self.queue[uid]["global_steps"]))[:BATCH]
        for uid in batch:
            del self.queue[uid]  # verl clears the prompts as it samples them, and the responses after the save
        yield
        self.ledger.train(batch)
        self.trained += [self.rows[uid] for uid in batch]
        if self.chance.random() < 0.7:
            yield from self.save(self.step, set(batch))
        self.clear(set(batch))
        self.step += 1

    def generate(self) -> None:
        waiting = [uid for uid, tag in self.prompts().items() if tag["status"] == "running"]
        uid = self.chance.choice(waiting)
        for session in range(SAMPLES):
            self.queue[f"{uid}_{session}_0"] = {"is_prompt": False}
        match self.chance.choices(["finished", "failed", "filtered", "stale"], [6, 2, 1, 1])[0]:
            case "finished":
                self.queue[uid] = {**self.queue[uid], "status": "finished"}
            case "failed" if self.ledger.may_retry(uid):
                self.ledger.retry([uid])
                tag = self.queue[uid]
                self.clear({uid})
                self.queue[uid] = {**tag, "global_steps": self.step}
            case reason:
                self.drop([uid], Dropped(reason))

    def save(self, step: int, batch: set[str]) -> Iterator[None]:
        if step < 1:
            return
        made = self.folder / "saving"
        counts = json.dumps([self.trained, self.dropped, self.rows])
        (made / UNITS_FILE).parent.mkdir(parents=True, exist_ok=True)
        (made / DATA_FILE).write_text(json.dumps(self.loader.drawn))
        yield
        (made / CONTROLLER_FILE).write_text(json.dumps(self.queue))
        for unit in range(UNITS):
            (made / UNIT_FILE.format(unit)).write_text(json.dumps(sorted(self.queue)[unit::UNITS]))
        (made / UNITS_FILE).write_text(json.dumps([{"position": unit} for unit in range(UNITS)]))
        yield
        prompts = self.prompts()
        assert self.ledger.problems(prompts, strays(self.queue, prompts.keys() | batch), self.loader.drawn) == []
        assert self.ledger.unaccounted(prompts, self.loader.drawn) == 0
        prompt_ledger.write(made, self.ledger, prompts)
        yield
        if step in self.lineage:  # saved again, with the prompts of now
            (self.folder / f"global_step_{step}").rename(
                self.folder / f"retired_{self.names}_{len(counts)}_{self.chance.random()}"
            )
        made.rename(self.folder / f"global_step_{step}")
        self.lineage[step] = counts
        self.ledger.completed()

    def resume(self) -> None:
        """Load the last step; what was in memory is gone."""
        self.step = max(self.lineage, default=0)
        self.loader, self.ledger, self.queue = Loader(), PromptLedger(), {}
        self.trained, self.dropped = [], []
        if self.step == 0:
            return
        made = self.folder / f"global_step_{self.step}"
        assert prompt_ledger.problem_of(made) is None
        assert prompt_ledger.storage_units(made) == UNITS
        self.ledger = prompt_ledger.read(made)
        self.loader = Loader(json.loads((made / DATA_FILE).read_text()))
        self.queue = json.loads((made / CONTROLLER_FILE).read_text())
        self.trained, self.dropped, rows = json.loads(self.lineage[self.step])
        self.rows = {uid: tuple(place) for uid, place in rows.items()}
        if self.sweeps:
            for key in strays(self.queue, self.prompts()):
                del self.queue[key]
        assert self.problems() == []
        self.audit()

    def problems(self) -> list[str]:
        prompts = self.prompts()
        return self.ledger.problems(prompts, strays(self.queue, prompts), self.loader.drawn)

    def audit(self) -> None:
        """Find each row that was fetched in exactly one place."""
        places = [*map(tuple, self.trained), *map(tuple, self.dropped), *(self.rows[uid] for uid in self.prompts())]
        assert Counter(places) == Counter(divmod(number, ROWS) for number in range(self.loader.drawn))


def killed_after(run: Run, yields: int) -> None:
    attempt = run.attempt()
    for _ in range(yields):
        next(attempt)
    attempt.close()
    for left in sorted(run.folder.glob("saving/**/*"), reverse=True):
        left.unlink() if left.is_file() else left.rmdir()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 2**32), st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.lists(st.integers(1, 90), min_size=1, max_size=5)
)
def test_each_prompt_is_in_one_place_wherever_a_run_is_killed(
    tmp_path_factory: pytest.TempPathFactory, seed: int, window: float, kills: list[int]
) -> None:
    run = Run(tmp_path_factory.mktemp("run"), window, random.Random(seed))  # noqa: S311 - a trace
    for yields in kills:
        killed_after(run, yields)
    run.resume()


@pytest.fixture
def saved(tmp_path: Path) -> Run:
    """Return a run that was killed after it had saved several steps."""
    run = Run(tmp_path, 1.0, random.Random(0))  # noqa: S311 - a trace
    while len(run.lineage) < 3:
        killed_after(run, 40)
    return run


def last(run: Run) -> Path:
    return run.folder / f"global_step_{max(run.lineage)}"


def test_responses_of_a_saved_step_that_nobody_swept_are_noticed(saved: Run) -> None:
    saved.sweeps = False
    with pytest.raises(AssertionError, match="responses in the queue belong to no prompt"):
        saved.resume()


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


FAULTS: dict[str, tuple[Callable[[Run], object], str]] = {
    "another number of storage units": (
        lambda run: (last(run) / UNITS_FILE).write_text("[{}, {}, {}]"),
        f"files that are not those of its ledger: {UNITS_FILE} is of 12 bytes",
    ),
    "a storage unit that was cut off": (
        lambda run: truncate(last(run) / UNIT_FILE.format(1)),
        f"files that are not those of its ledger: {UNIT_FILE.format(1)} is of ",
    ),
    "a storage unit that is not there": (
        lambda run: (last(run) / UNIT_FILE.format(0)).unlink(),
        f"files that are not those of its ledger: {UNIT_FILE.format(0)} is absent, was of ",
    ),
    "the loader's state of an earlier step": (
        lambda run: (last(run) / DATA_FILE).write_bytes(
            (run.folder / f"global_step_{min(run.lineage)}" / DATA_FILE).read_bytes()
        ),
        "files that are not those of its ledger: data.pt is of ",
    ),
    "a ledger that was cut off": (
        lambda run: truncate(last(run) / LEDGER_FILE),
        "has a broken ledger: prompts.json is not JSON",
    ),
    "a ledger that lost a prompt": (
        lambda run: edit(last(run), lambda plain: plain["inFlight"].pop()),
        "has a ledger that does not add up: ",
    ),
    "a ledger of a newer image": (
        lambda run: edit(last(run), lambda plain: plain.update(version=2)),
        "has a broken ledger: prompts.json has version 2, this image reads 1",
    ),
    "a ledger of somebody else": (
        lambda run: (last(run) / LEDGER_FILE).write_text("[]"),
        "has a broken ledger: prompts.json cannot be read",
    ),
}


def edit(step: Path, change: Callable[[dict[str, Any]], object]) -> None:
    plain = json.loads((step / LEDGER_FILE).read_text())
    change(plain)
    (step / LEDGER_FILE).write_text(json.dumps(plain))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_step_is_not_resumed_from(saved: Run, fault: str) -> None:
    assert prompt_ledger.problem_of(last(saved)) is None
    make, text = FAULTS[fault]
    make(saved)
    problem = prompt_ledger.problem_of(last(saved))
    assert problem is not None
    assert text in problem


def test_a_loader_that_is_not_the_ledgers_is_noticed_in_the_trainer_too(saved: Run) -> None:
    saved.resume()
    saved.loader.drawn -= 1
    assert saved.problems() == [
        f"the loader has given {saved.loader.drawn} prompts, and the ledger has {saved.ledger.fetched}"
    ]
    assert saved.ledger.unaccounted(saved.prompts(), saved.loader.drawn) == 1


def test_a_step_of_another_mode_has_no_ledger(tmp_path: Path) -> None:
    assert (prompt_ledger.has_ledger(tmp_path), prompt_ledger.problem_of(tmp_path)) == (False, None)
    assert prompt_ledger.storage_units(tmp_path) is None
    with pytest.raises(FileNotFoundError):
        prompt_ledger.read(tmp_path)


def test_what_contradicts_the_ledger_is_remembered() -> None:
    ledger = PromptLedger()
    ledger.fetch("a", 0, 0)
    ledger.fetch("a", 0, 1)
    ledger.train(["b"])
    ledger.drop(["c"], Dropped.STALE)
    assert ledger.problems(["a"], [], 2) == [
        "a was fetched twice",
        "b was trained, and was not in flight",
        "c was dropped as stale, and was not in flight",
        "2 prompts were fetched, but 0 trained, 0 dropped and 1 in flight are 1",
    ]


def test_the_same_row_twice_in_flight_is_named() -> None:
    ledger = PromptLedger()
    for uid in ("a", "b"):
        ledger.fetch(uid, 1, 4)
    assert ledger.problems(["a", "b"], [], 2) == ["1 rows are in flight twice: 1:4"]


def test_prompts_that_the_queue_lost_or_that_came_from_elsewhere_are_named() -> None:
    ledger = PromptLedger()
    ledger.fetch("a", 0, 0)
    assert ledger.problems(["b"], [], 1) == [
        "1 prompts in flight are not in the queue: a",
        "1 prompts in the queue are not in flight: b",
    ]


def test_a_prompt_is_tried_again_a_few_times_over_all_attempts(saved: Run) -> None:
    saved.resume()
    uid = next(iter(saved.ledger.in_flight))
    for _ in range(RETRIES):
        saved.ledger.retry([uid] if saved.ledger.may_retry(uid) else [])
    prompt_ledger.write(last(saved), saved.ledger, saved.prompts())
    assert not prompt_ledger.read(last(saved)).may_retry(uid)


def test_a_step_lists_what_was_trained_since_the_one_before(saved: Run) -> None:
    kept = [
        json.loads((saved.folder / f"global_step_{step}" / LEDGER_FILE).read_text()) for step in sorted(saved.lineage)
    ]
    rows = [tuple(row) for plain in kept for row in plain["trainedRows"]]
    saved.resume()
    assert Counter(rows) == Counter(map(tuple, saved.trained))
    assert [tuple(row[:2]) for plain in kept for row in plain["droppedRows"]] == [*map(tuple, saved.dropped)]


def test_a_ledger_of_the_wrong_form_says_so() -> None:
    with pytest.raises(LedgerMismatchError, match=r"prompts.json cannot be read: KeyError\('version'\)"):
        PromptLedger.from_plain({})
