"""What the launcher of verl's trainer sets by job and start."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rljob_runtime import launcher_overrides
from rljob_runtime.checkpoints import prompt_ledger
from rljob_runtime.checkpoints.prompt_ledger import PromptLedger
from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.contract import NodeGroup, Platform, Role, TrainerMode
from rljob_runtime.spool.spool import Spool
from rljob_runtime.verl_plugin import launcher
from runtime.tests.conftest import MakeJob

GROUPS = (NodeGroup("train", Role.TRAINER, 2, 32), NodeGroup("generate", Role.ROLLOUT, 3, 2))


def test_a_queue_is_loaded_into_as_many_storage_units_as_it_was_saved_from(tmp_path: Path) -> None:
    start = Start(tmp_path, 4)
    plain = {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": str(tmp_path)}
    assert launcher.resume_settings(start) == plain
    (tmp_path / prompt_ledger.UNITS_FILE).parent.mkdir(parents=True)
    (tmp_path / prompt_ledger.UNITS_FILE).write_text(json.dumps([{"position": 0}, {"position": 1}, {"position": 2}]))
    units = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
    assert launcher.resume_settings(start) == {**plain, units: 3}


@pytest.mark.parametrize(("size", "rows"), [(1, (7 + 2 * 8) * 5), (1000, 1000)])
def test_a_queue_has_room_for_what_a_step_has_in_flight(tmp_path: Path, size: int, rows: int) -> None:
    ledger = PromptLedger()
    for number in range(7):
        ledger.fetch(f"u{number}", 0, number)
    prompt_ledger.write(tmp_path, ledger, {})
    simple = {"backend": {"SimpleStorage": {"total_storage_size": size}}}
    wanted = {"transfer_queue": simple, "data": {"train_batch_size": 8}, "actor_rollout_ref": {"rollout": {"n": 4}}}
    assert launcher.storage_rows(tmp_path, attributes(wanted)) == rows


def attributes(plain: dict[str, Any]) -> Any:  # noqa: ANN401 - nested
    """Return a configuration whose values are attributes, as those of OmegaConf, which unit tests do not have."""
    inner = {key: attributes(value) if isinstance(value, dict) else value for key, value in plain.items()}
    return SimpleNamespace(**inner)


def test_what_must_not_be_lost_with_a_replica_is_kept_on_nodes_that_train(make_job: MakeJob, tmp_path: Path) -> None:
    key = "+transfer_queue.backend.SimpleStorage.required_node_resource"
    alike = make_job()
    apart = make_job(nodes=5, devices=34, groups=GROUPS, platform=Platform.NPU, mode=TrainerMode.SEPARATE_ASYNC)
    fixed = [launcher_overrides.fixed(job, Spool(tmp_path), tmp_path) for job in (alike, apart)]
    assert [keys[key] for keys in fixed] == ["NPU", "rljob_trainer"]
    router = "actor_rollout_ref.rollout.router_config_path"
    assert [Path(str(keys[router])).name for keys in fixed] == ["router.yaml", "trainer_router.yaml"]
    defaults = launcher_overrides.defaults(apart)
    assert (defaults["trainer.nnodes"], defaults["trainer.n_gpus_per_node"]) == (2, 16)
    assert defaults["transfer_queue.backend.SimpleStorage.num_data_storage_units"] == 4


@pytest.mark.parametrize("mode", TrainerMode)
def test_each_mode_has_a_trainer_of_its_own(make_job: MakeJob, tmp_path: Path, mode: TrainerMode) -> None:
    fixed = launcher_overrides.fixed(make_job(mode=mode), Spool(tmp_path), tmp_path)
    assert fixed["trainer.v1.trainer_mode"] == launcher_overrides.TRAINERS[mode]


def test_a_judge_takes_no_devices_from_those_that_train_and_generate(make_job: MakeJob, tmp_path: Path) -> None:
    groups = (NodeGroup("trainer", Role.TRAINER, 2, 16), NodeGroup("judge", Role.JUDGE, 1, 8))
    job = make_job(nodes=3, devices=24, groups=groups, platform=Platform.NPU)
    assert [(job.nodes_of(role), job.devices_of(role)) for role in Role] == [(2, 16), (2, 16), (1, 8)]
    defaults, fixed = launcher_overrides.defaults(job), launcher_overrides.fixed(job, Spool(tmp_path), tmp_path)
    assert (defaults["trainer.nnodes"], defaults["trainer.n_gpus_per_node"]) == (2, 8)
    assert fixed["actor_rollout_ref.rollout.router_config_path"] == str(launcher_overrides.ROUTER_CONFIG)
