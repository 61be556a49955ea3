"""What the launcher of verl's trainer sets by job and start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rljob_runtime import launcher_overrides
from rljob_runtime.checkpoints import prompt_ledger
from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.contract import TrainerMode
from rljob_runtime.spool.spool import Spool
from rljob_runtime.verl_plugin import launcher
from runtime.tests.conftest import MakeJob


def test_a_queue_is_loaded_into_as_many_storage_units_as_it_was_saved_from(tmp_path: Path) -> None:
    start = Start(tmp_path, 4)
    plain = {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": str(tmp_path)}
    assert launcher.resume_settings(start) == plain
    (tmp_path / prompt_ledger.UNITS_FILE).parent.mkdir(parents=True)
    (tmp_path / prompt_ledger.UNITS_FILE).write_text(json.dumps([{"position": 0}, {"position": 1}, {"position": 2}]))
    units = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
    assert launcher.resume_settings(start) == {**plain, units: 3}


@pytest.mark.parametrize("mode", TrainerMode)
def test_each_mode_has_a_trainer_of_its_own(make_job: MakeJob, tmp_path: Path, mode: TrainerMode) -> None:
    fixed = launcher_overrides.fixed(make_job(mode=mode), Spool(tmp_path), tmp_path)
    assert fixed["trainer.v1.trainer_mode"] == launcher_overrides.TRAINERS[mode]
