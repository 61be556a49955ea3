"""What our trainers override of verl's 0.9.1, and what verl does with prompts in flight."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from rljob_runtime.contract import TrainerMode
from rljob_runtime.image_check.seams import TABLE
from rljob_runtime.launcher_overrides import TRAINERS


def in_order(source: str, *words: str) -> bool:
    places = [source.find(word) for word in words]
    return -1 not in places and places == sorted(places)


@pytest.fixture(scope="module")
def base() -> Any:
    from verl.trainer.ppo.v1 import PPOTrainerColocateAsync

    return PPOTrainerColocateAsync


OVERRIDDEN = {
    "__init__",
    "_balance_batch",
    "_build_replay_buffer",
    "_compute_advantage",
    "_compute_metrics",
    "_compute_old_log_prob",
    "_fetch_one_gen_batch",
    "_init_dataloader",
    "_init_resource_pool_mgr",
    "_load_checkpoint",
    "_maybe_log_val_generations",
    "_save_checkpoint",
    "_setup",
    "_start_profiling",
    "_stop_profiling",
    "_update_actor",
    "_val_metrics_update",
    "_validate",
    "fit",
    "get_llm_client",
    "on_init_end",
    "on_sample_end",
    "on_step_begin",
    "on_step_end",
    "on_train_begin",
    "step",
}
OF_MODE = {
    TrainerMode.SYNC: {"_submit_batch_to_rollout"},
    TrainerMode.COLOCATE_ASYNC: {"prepare_step"},
    TrainerMode.SEPARATE_ASYNC: {"prepare_step", "_step_once"},
}


@pytest.mark.parametrize("mode", TrainerMode)
def test_our_trainer_of_a_mode_overrides_what_verls_has(mode: TrainerMode) -> None:
    from verl.trainer.ppo.v1 import get_trainer_cls

    from rljob_runtime.verl_plugin.trainer.task_runner import MODULES

    importlib.import_module(f"rljob_runtime.verl_plugin.trainer.{MODULES[mode]}")
    ours = get_trainer_cls(TRAINERS[mode])
    verls = next(part for part in ours.__mro__ if not part.__module__.startswith("rljob_runtime."))
    assert verls is get_trainer_cls(ours.VERL_MODE), "the literal selects verl's rules of the same mode"
    own = [part for part in ours.__mro__ if part.__module__.startswith("rljob_runtime.")]
    assert ours.__mro__.index(verls) == len(own), "verl's comes after all of ours"
    found = {name for part in own for name, value in vars(part).items() if inspect.isfunction(value)}
    overridden = {name for name in found if hasattr(verls, name)}
    assert overridden == OVERRIDDEN | OF_MODE[mode]
    # test_imports.py compares their parameters with verl's.
    rows = {seam.attribute for seam in TABLE if seam.parameters is not None}
    assert {f"PPOTrainer.{name}" for name in overridden} <= rows


def test_the_modes_that_keep_prompts_in_flight_follow_the_buffer_at_three_places() -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBufferAsync

    wait = inspect.getsource(ReplayBufferAsync.wait_for_sampleable)
    # What is tried again leaves the reasons before the eviction, and the set of ended prompts before the selection.
    assert in_order(
        wait,
        "self._sync_metadata_from_transfer_queue()",
        "self._terminal_eviction_reasons(global_steps, partition_id)",
        "self._evict_terminal_groups(",
        "self.refill_fn(len(evicted_uids))",
        "self._sampleable_terminal_keys(partition_id, eviction_reasons)",
        "self._wait_for_next_poll(",
    )
    assert "self.finished_keys[partition_id] | self.failure_keys[partition_id]" in inspect.getsource(
        ReplayBufferAsync._sampleable_terminal_keys
    )
    assert in_order(
        inspect.getsource(ReplayBufferAsync.sample), "self.wait_for_sampleable(", "self._materialize_batch("
    )
    assert "tq.kv_clear(partition_id=partition_id, keys=selected_prompt_uids)" in inspect.getsource(
        ReplayBufferAsync._materialize_batch
    )


def test_prompts_in_flight_are_saved_after_the_data_and_issued_again_before_the_loop(base: Any) -> None:
    source = inspect.getsource(base._save_checkpoint)
    assert in_order(source, '"data.pt"', "tq.save_checkpoint(", "self.checkpoint_callback.on_save(")
    assert in_order(
        inspect.getsource(base.fit), "self.global_steps += 1", "self._reissue_inflight_prompts()", "on_train_begin()"
    )
    assert "self.config.data.gen_batch_size = 1" in inspect.getsource(base._init_dataloader)
    again = inspect.getsource(base._reissue_inflight_prompts)
    assert in_order(again, "tq.kv_batch_get(", "tq.kv_batch_put(", "self.agent_loop_manager.generate_sequences(batch)")
    assert '{"is_prompt": True, "status": "pending", "global_steps": self.global_steps}' in again


def test_a_queue_is_saved_under_the_names_that_the_ledger_reads() -> None:
    import transfer_queue
    from transfer_queue import interface
    from transfer_queue.storage.managers import simple_storage_manager as units

    from rljob_runtime.checkpoints import prompt_ledger

    controller = f"{prompt_ledger.QUEUE_FOLDER}/{interface._CONTROLLER_FILE}"
    assert controller == prompt_ledger.CONTROLLER_FILE
    assert f"{prompt_ledger.QUEUE_FOLDER}/{units._SU_SUBDIR}/{units._SU_INFO_FILE}" == prompt_ledger.UNITS_FILE
    assert "len(su_ids) != len(su_info_list)" in inspect.getsource(units.AsyncSimpleStorageManager.load_checkpoint)
    assert callable(transfer_queue.save_checkpoint)
