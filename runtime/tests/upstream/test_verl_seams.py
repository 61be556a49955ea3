"""Each extension point of verl 0.9.1 that we use, so that a new version fails here and not in a long run."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.checkpoints import contents


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def in_order(source: str, *words: str) -> bool:
    places = [source.find(word) for word in words]
    return -1 not in places and places == sorted(places)


@pytest.fixture(scope="module")
def base() -> Any:
    from verl.trainer.ppo.v1 import PPOTrainerSync

    return PPOTrainerSync


def test_a_step_still_has_its_order(base: Any) -> None:
    assert in_order(
        inspect.getsource(base.fit),
        "self.global_steps <= self.total_training_steps",
        "self.on_step_begin()",
        "self.step(metrics",
        "self._save_checkpoint()",
        "self.on_step_end()",
        "val_metrics: dict = self._validate()",
        "self._compute_metrics(",
        "tq.kv_clear(",
        "self.logger.log(data=metrics",
        "self.global_steps += 1\n            SkipManager",
        "self.on_train_end()",
    )


def test_a_validation_before_training_is_over_before_the_loop(base: Any) -> None:
    assert in_order(
        inspect.getsource(base.fit), "val_metrics = self._validate()", '"val_only"', "self.on_train_begin()", "while "
    )
    assert 'reward_extra_infos_dict["reward"].extend(scores)' in inspect.getsource(base._validate)


def test_a_checkpoint_is_loaded_from_the_path_that_we_give(base: Any) -> None:
    source = inspect.getsource(base._load_checkpoint)
    assert 'self.config.trainer.resume_mode == "resume_path"' in source
    assert "global_step_folder = self.config.trainer.resume_from_path" in source
    assert 'os.path.join(global_step_folder, "actor")' in source


def test_shards_carry_the_number_of_devices_in_their_names() -> None:
    from verl.utils.checkpoint import fsdp_checkpoint_manager

    from rljob_runtime.checkpoints.saved_steps import SHARD

    source = inspect.getsource(fsdp_checkpoint_manager)
    for kind in ("model", "optim", "extra_state"):
        assert f'f"{kind}_world_size_{{self.world_size}}_rank_{{self.rank}}.pt"' in source
        assert SHARD.match(f"{kind}_world_size_16_rank_3.pt")


@pytest.mark.parametrize("saved", [None, ["model"], ["optimizer", "extra"], "['optimizer']", "[model, optimizer]", []])
def test_settings_are_read_as_the_checkpoint_managers_of_verl_read_them(saved: Any) -> None:
    from omegaconf import OmegaConf
    from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager

    manager = BaseCheckpointManager.__new__(BaseCheckpointManager)
    config = OmegaConf.create({"save_contents": saved, "load_contents": "${.save_contents}"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.distributed.get_rank", lambda: 0)
        patch.setattr("torch.distributed.get_world_size", lambda: 1)
        BaseCheckpointManager.__init__(manager, None, None, checkpoint_config=config)
    read = contents.named(config.load_contents)
    assert (contents.MODEL in read) == manager.should_save_model == manager.should_load_model
    assert (contents.OPTIMIZER in read) == manager.should_save_optimizer == manager.should_load_optimizer
    assert (contents.EXTRA in read) == manager.should_save_extra == manager.should_load_extra


def test_the_files_that_list_saved_contents_keep_their_names() -> None:
    import verl

    # Not imported: the image for CPUs has no Megatron.
    utils = Path(verl.__path__[0]) / "utils"
    megatron = (utils / "checkpoint" / "megatron_checkpoint_manager.py").read_text()
    assert f'"{contents.FSDP_FILE}"' in (utils / "checkpoint" / "fsdp_checkpoint_manager.py").read_text()
    assert f'"{contents.MEGATRON_FILE}"' in (utils / "megatron_utils.py").read_text()
    assert '"contents": contents,' in megatron
    assert all(f'contents["{name}"] = ' in megatron for name in (contents.MODEL, contents.OPTIMIZER))


def test_verl_still_makes_no_baselines_for_remax(base: Any) -> None:
    # When it does, delete verl_plugin/trainer/remax_baselines.py.
    assert "reward_baselines" not in inspect.getsource(sys.modules[base.__mro__[1].__module__])


def test_our_estimator_gives_verls_remax_with_the_baselines_of_the_prompts() -> None:
    import torch
    from verl.trainer.ppo import core_algos

    from rljob_runtime.verl_plugin.trainer import remax_baselines

    remax_baselines.set_scores({"a": 1.0, "b": 0.25})
    mask = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    rewards = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])
    estimator = core_algos.get_adv_estimator_fn(remax_baselines.ESTIMATOR)
    advantages, returns = estimator(token_level_rewards=rewards, response_mask=mask, index=["a", "b", "padding"])
    assert advantages.tolist() == [[0.0, 0.0], [0.75, 0.0], [0.0, 0.0]]
    assert returns.tolist() == [[1.0, 1.0], [1.0, 0.0], [0.0, 0.0]]


def test_a_prompt_for_validation_goes_where_the_baselines_are_read() -> None:
    from verl.trainer.ppo.v1 import agent_loop_tq

    source = inspect.getsource(agent_loop_tq)
    assert 'validate = batch["validate"] if "validate" in batch else False' in source
    assert '"train" if not trajectory["validate"] else "val"' in source


def test_prompts_are_sent_after_the_step_has_begun(base: Any) -> None:
    # on_step_begin resets the replicas' clock, records the data's position, and may abandon the step.
    assert in_order(inspect.getsource(base.step), "self.prepare_step()", "self._step_once(")


def test_a_checkpoint_writes_its_data_before_the_tracker(base: Any) -> None:
    source = inspect.getsource(base._save_checkpoint)
    assert in_order(source, "save_checkpoint(", '"data.pt"', "latest_checkpointed_iteration.txt")


def test_how_many_checkpoints_stay_is_asked_of_three_keys(base: Any) -> None:
    source = inspect.getsource(base._save_checkpoint)
    asked = {"remove_previous_ckpt_in_save", "max_actor_ckpt_to_keep", "max_critic_ckpt_to_keep"}
    assert set(re.findall(r'trainer\.get\("(\w+)"', source)) == asked


def test_waiting_for_answers_is_one_method_of_the_replay_buffer() -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    assert parameters(ReplayBuffer._wait_for_next_poll) == ["self", "partition_id", "last_debug_time"]
    assert "self._wait_for_next_poll(partition_id, last_debug_time)" in inspect.getsource(ReplayBuffer.sample)
    assert "self.poll_interval" in inspect.getsource(ReplayBuffer.__init__)


def test_prompts_of_a_validation_that_is_left_can_be_found_and_cleared() -> None:
    import transfer_queue

    assert parameters(transfer_queue.kv_list) == ["partition_id"]
    assert parameters(transfer_queue.kv_clear) == ["keys", "partition_id"]


def test_answers_carry_their_lengths_until_the_buffer_clears_their_group() -> None:
    from verl.trainer.ppo.v1 import agent_loop_tq, trainer_sync
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    assert parameters(ReplayBuffer._clear_groups) == ["self", "partition_id", "uids"]
    clear = inspect.getsource(ReplayBuffer._clear_groups)
    assert 'for key in self.partitions[partition_id] if key.split("_")[0] in uids' in clear
    assert inspect.getsource(ReplayBuffer).count("self._clear_groups(partition_id, ") == 2
    assert all(f'"{name}": ' in inspect.getsource(agent_loop_tq) for name in ("prompt_len", "response_len"))
    assert 'marked_timer("update_weights"' in inspect.getsource(trainer_sync)


def test_rows_that_verl_makes_up_have_a_tag_and_a_known_length() -> None:
    from verl.trainer.ppo import padding_utils

    assert padding_utils.SYNTHETIC_PADDING_SEQ_LEN == 128  # docs/reference/definitions.md
    assert "is_padding=True" in inspect.getsource(padding_utils)


def test_the_stages_of_a_step_keep_their_names(base: Any) -> None:
    from verl.trainer.ppo.v1 import trainer_base, trainer_sync

    from rljob_runtime.spool.step_metrics import STAGES

    source = inspect.getsource(trainer_base) + inspect.getsource(trainer_sync)
    timed = set(re.findall(r'marked_timer\("(\w+)"', source))
    assert set(STAGES) | {"step", "testing"} <= timed
    inner = inspect.getsource(base._step_once)
    assert in_order(inner, *(f'marked_timer("{stage}"' for stage in STAGES[:-2]))


def test_transfer_queue_publishes_the_address_of_its_metrics() -> None:
    import transfer_queue
    from transfer_queue.metrics import TQMetricsExporter

    from rljob_runtime.exporter import upstream_metrics

    assert parameters(transfer_queue.get_metrics_endpoint) == []
    exporter = TQMetricsExporter()
    families = {family.name: family.type for family in exporter.registry.collect()}
    kinds = {
        metric.name.removesuffix("_total" if metric.kind == "counter" else ""): metric.kind
        for metric in upstream_metrics.TRANSFER_QUEUE
    }
    assert kinds == {name: families.get(name) for name in kinds}


def test_vllms_families_that_are_kept_by_replica_still_exist() -> None:
    import importlib.util

    from rljob_runtime.exporter import upstream_metrics

    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    source = (Path(str(spec.origin)).parent / "v1/metrics/loggers.py").read_text()
    for metric in upstream_metrics.PER_REPLICA:
        assert f'name="{metric.name.removesuffix("_total")}"' in source


def test_the_task_runner_is_a_class_behind_rays_wrapper() -> None:
    from verl.trainer.main_ppo import TaskRunnerV1

    plain = TaskRunnerV1.__ray_actor_class__
    # Ray adds an argument for tracing.
    assert parameters(plain.run)[:2] == ["self", "config"]
    assert in_order(inspect.getsource(plain.run), "self.trainer = trainer_cls(config=config)", "self.trainer.fit(")


def test_run_ppo_makes_a_runner_and_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from omegaconf import OmegaConf
    from verl.trainer import main_ppo

    calls: list[str] = []

    class Runner:
        def remote(self, config: Any = None) -> Any:
            calls.append("made" if config is None else "run")
            return self

        run = property(lambda self: self)

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get", lambda _: calls.append("waited"))
    rollout = {"rollout": {"full_determinism": False}}
    config = OmegaConf.create(
        {
            "actor_rollout_ref": rollout,
            "reward": {"reward_model": {"enable": False, **rollout}},
            "trainer": {"logger": []},
            "global_profiler": {"tool": None},
            "ray_kwargs": {},
        }
    )
    main_ppo.run_ppo(config, task_runner_class=Runner())
    assert calls == ["made", "run", "waited"]


def test_the_trainer_reaches_the_router() -> None:
    from verl.workers.rollout.llm_server import LLMServerManager

    source = inspect.getsource(LLMServerManager._init_global_load_balancer)
    assert "self.global_load_balancer = get_router_handle(" in source
    assert "router_config_path" in source


def test_the_scrape_file_keeps_its_form() -> None:
    from verl.workers.rollout.utils import update_prometheus_config

    source = inspect.getsource(update_prometheus_config)
    assert '{"job_name": "rollout", "static_configs": [{"targets": server_addresses}]}' in source


def test_the_metrics_that_we_compute_from_keep_their_names() -> None:
    from verl.trainer.ppo import metric_utils

    source = inspect.getsource(metric_utils)
    for key in ("perf/total_num_tokens", "prompt_length/mean", "response_length/mean", "critic/score/mean"):
        assert f'"{key}"' in source
    assert 'f"timing_s/{name}"' in source


def test_the_tracker_keeps_its_name() -> None:
    from verl.utils.checkpoint import checkpoint_manager

    from rljob_runtime.checkpoints.saved_steps import TRACKER_FILE

    assert TRACKER_FILE in inspect.getsource(checkpoint_manager)


def test_the_queue_keeps_its_fixed_name_and_takes_our_resource() -> None:
    import importlib.util

    from rljob_runtime.verl_plugin.launcher import VerlTrainer

    spec = importlib.util.find_spec("transfer_queue")
    assert spec is not None
    sources = "".join(path.read_text() for path in Path(str(spec.origin)).parent.rglob("*.py"))
    assert all(f'"{word}"' in sources for word in VerlTrainer.sole_actor)
    assert "required_node_resource" in sources


def test_ray_keeps_the_names_that_we_use() -> None:
    import ray.exceptions
    from ray._common.constants import HEAD_NODE_RESOURCE_NAME

    from rljob_runtime.outcomes import PLACE_ERRORS
    from rljob_runtime.verl_plugin.trainer.task_runner import HEAD_RESOURCE

    assert HEAD_NODE_RESOURCE_NAME == HEAD_RESOURCE
    known = set(dir(ray.exceptions))
    assert set(PLACE_ERRORS) <= known
    assert {getattr(ray.exceptions, name).__module__ for name in PLACE_ERRORS} == {"ray.exceptions"}


def test_torchs_error_for_a_device_without_memory_is_not_taken_for_rays() -> None:
    import torch

    from rljob_runtime.outcomes import DEVICE_OUT_OF_MEMORY, from_error

    assert from_error(torch.OutOfMemoryError("Allocation on device")).reason == DEVICE_OUT_OF_MEMORY


CPU_PROBE = """
import importlib.metadata, sys
import verl
from verl.plugin.platform import get_platform
plugin = sys.modules["rljob_runtime.verl_plugin.plugin"]
assert plugin.LOADED == ["rljob", "cpu"], plugin.LOADED
assert get_platform().device_name == "cpu" and get_platform().ray_resource_name() == "NPU"
assert importlib.metadata.version("vllm").endswith("+cpu")
import verl.third_party.vllm
import torch.distributed, os, tempfile
name = tempfile.mktemp()
torch.distributed.init_process_group("cpu:gloo,cpu:gloo", init_method=f"file://{name}", rank=0, world_size=1)
torch.distributed.all_reduce(torch.ones(1))
from verl.workers.engine.fsdp import transformer_impl
assert transformer_impl.CPUOffloadPolicy(pin_memory=True).pin_memory is False
from verl.utils.model import load_valuehead_model
assert hasattr(load_valuehead_model, "_rljob")
print("probe ok")
"""


def test_the_cpu_platform_loads_through_the_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    done = subprocess.run([sys.executable, "-c", CPU_PROBE], capture_output=True, text=True, check=False)
    assert "probe ok" in done.stdout, done.stderr[-3000:]


def test_elsewhere_the_plugin_leaves_verl_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_PLATFORM", "huawei")
    probe = (
        "import verl, sys; from verl.plugin.platform.platform_manager import PlatformRegistry as R;"
        "assert sys.modules['rljob_runtime.verl_plugin.plugin'].LOADED == ['rljob'];"
        "assert 'cpu' not in R.registered_names(); print('probe ok')"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert "probe ok" in done.stdout, done.stderr[-3000:]


def test_a_worker_names_its_device_as_it_is_made_and_after_it_was_bound() -> None:
    from verl.single_controller.base.worker import Worker

    from rljob_runtime.verl_plugin.platform import worker_binding

    original = inspect.unwrap(Worker.__init__)
    assert parameters(original) == ["self", "cuda_visible_devices"]
    assert in_order(inspect.getsource(original), "self._setup_env_cuda_visible_devices()", "WORLD_SIZE")
    assert "set_device(" in inspect.getsource(Worker._setup_env_cuda_visible_devices)
    worker_binding.install()
    assert inspect.unwrap(Worker.__init__) is original
    assert hasattr(Worker.__init__, worker_binding.MARK)


def test_a_rollout_server_leaves_its_devices_in_the_variable_that_we_read() -> None:
    import verl

    # Importing it requires a distribution named vllm.
    source = (Path(verl.__file__).parent / "workers/rollout/vllm_rollout/vllm_async_server.py").read_text()
    assert "os.environ[get_visible_devices_keyword()] = cuda_visible_devices" in source


def test_verl_still_binds_nothing_on_npus() -> None:
    # When it does, it and verl_plugin/platform/worker_binding.py must agree.
    from verl.utils import distributed

    assert "is_npu_available" in inspect.getsource(distributed.set_numa_affinity)


def test_a_run_that_ends_lets_its_last_records_reach_the_log_volume(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from rljob_runtime.contract import CONTRACT_VERSION, JobConfig, Phase, Platform, Progress
    from rljob_runtime.spool.spool import Spool
    from rljob_runtime.training_attempt import current
    from rljob_runtime.verl_plugin.trainer.task_runner import RLJobTaskRunner

    def train(*_: object) -> None:
        current().record(1, {"timing_s/step": 1.0})
        raise RuntimeError("a bug")

    append = Spool.append_step

    def append_slowly(spool: Spool, *rest: Any) -> None:
        time.sleep(0.5)
        append(spool, *rest)

    monkeypatch.setattr(Spool, "append_step", append_slowly)
    monkeypatch.setattr(RLJobTaskRunner.__mro__[1], "run", train)
    job = JobConfig(CONTRACT_VERSION, "team-a", "sums", "uid-1", "sums-1", 1, Platform.CPU, 1, 2, 2, 40, {})
    job = dataclasses.replace(job, log_path=str(tmp_path / "volume"))
    spool = Spool(tmp_path / "spool")
    spool.write_progress(Progress(pod_uid="p", phase=Phase.TRAINING))
    with pytest.raises(RuntimeError, match="a bug"):
        RLJobTaskRunner(job.to_json(), 1, str(spool.root)).run(None)
    assert (tmp_path / "volume" / "sums-1" / "attempt-1" / "steps.jsonl").read_text().count("\n") == 1
