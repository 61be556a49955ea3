"""verl's implementation of `trainer.Trainer`: the entry point `verl` of group `rljob_runtime.trainers`.

verl is imported only when a method is called, so that an image with another trainer does not need it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rljob_runtime import draft_check, launcher_overrides, model_check, preflight
from rljob_runtime.checkpoints import contents, parallelism, prompt_ledger
from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.contract import NOTE_LIMIT, ExitCode, JobConfig, OverrideValue, Platform, StopMode
from rljob_runtime.fork_server import start as fork_server
from rljob_runtime.image_check import verl_choice
from rljob_runtime.image_check.verl_choice import VerlChoice
from rljob_runtime.input_checks import data_files
from rljob_runtime.input_checks.data_files import DataSettings
from rljob_runtime.input_checks.reward import RewardSettings
from rljob_runtime.input_checks.tools import ToolSettings
from rljob_runtime.input_checks.user_file import ImportCheck
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.trainer import WORKER_HOOK, Result, Setup
from rljob_runtime.verl_plugin import async_settings

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from rljob_runtime.verl_plugin.trainer.task_runner import PinnedTaskRunner

WARNINGS_SHOWN = 2
"""Warnings about the image among the notes of a run, of which there are few. The driver's log has all."""


STORAGE_UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
STORAGE_ROWS = "transfer_queue.backend.SimpleStorage.total_storage_size"


class VerlTrainer:
    """Runs verl with our registered trainer in a task runner on the head."""

    sole_actor = ("TransferQueueController", "transfer_queue")
    """A fixed name (TransferQueue 0.1.11, interface.py). A second run would attach to the first and destroy it."""

    def __init__(self) -> None:
        self._setup: Setup | None = None
        self._config: DictConfig | None = None
        self._runner: PinnedTaskRunner | None = None
        self._verl = VerlChoice()

    @property
    def actor_id(self) -> str | None:
        """See `Trainer`."""
        return None if self._runner is None else self._runner.actor_id

    def only_evaluates(self, job: JobConfig) -> bool:
        """See `Trainer`."""
        return launcher_overrides.only_evaluates(job)

    def environment(self, job: JobConfig, environ: Mapping[str, str]) -> Mapping[str, str]:
        """See `Trainer`. Raises RefusedError if no verl can run in this image."""
        self._verl = verl_choice.choose()
        return {**launcher_overrides.environment(job, environ), **self._verl.environment(environ)}

    def prepare(self, setup: Setup) -> None:
        """Compose verl's configuration and let verl check it."""
        self._verl.activate()
        # In parallel with the imports of this process.
        fork_server.begin_early(os.environ)
        report_verl(self._verl, setup)
        from rljob_runtime import hydra_config

        job = setup.job
        model_check.require(job)
        draft_check.require(job)
        config = hydra_config.compose(job, setup.spool, setup.scratch)
        require_plugin(job)
        require_torch_npu(job)
        async_settings.require(job, functools.partial(hydra_config.value, config))
        contents.require(job, config, needs_critic=trains_critic(config))
        if not preflight.missing_here([required.path for required in job.required_paths]):
            # verl reads the critic's model here. If it is missing, the path check later reports which nodes lack it.
            require_inputs(config, lambda: hydra_config.validate(config))
        prepare_processes(config, setup.variables, self._verl)
        self._setup, self._config = setup, config

    def run(self, connected: Callable[[], None]) -> Result:
        """See `Trainer`."""
        from verl.trainer.main_ppo import run_ppo

        from rljob_runtime.verl_plugin.trainer.task_runner import PinnedTaskRunner

        setup = self._prepared
        self._runner = PinnedTaskRunner(setup.job, setup.attempt, setup.spool, connected)
        run_ppo(self._composed, task_runner_class=self._runner)
        return self._runner.result()

    @property
    def loads(self) -> Mapping[str, frozenset[str]]:
        """See `Trainer`."""
        return contents.loads(self._composed, needs_critic=trains_critic(self._composed))

    def begin_at(self, start: Start) -> None:
        """See `Trainer`."""
        from rljob_runtime import hydra_config

        parallelism.require(start, self._composed)
        if start.folder is not None and self._composed.actor_rollout_ref.actor.strategy != "megatron":
            model_check.require_adapter(start.folder, self._composed.actor_rollout_ref.model)
        values = resume_settings(start)
        if start.folder is not None and STORAGE_UNITS in values:
            values[STORAGE_ROWS] = storage_rows(start.folder, self._composed)
        hydra_config.apply(self._composed, values)

    def request_stop(self, mode: StopMode) -> None:
        """See `Trainer`."""
        if self._runner is not None:
            self._runner.request_stop(mode)

    @property
    def _prepared(self) -> Setup:
        if self._setup is None:
            raise AssertionError("run before prepare")
        return self._setup

    @property
    def _composed(self) -> DictConfig:
        if self._config is None:
            raise AssertionError("run before prepare")
        return self._config


def trains_critic(config: DictConfig) -> bool:
    """Report whether the algorithm trains a value model, which a job without one only has in its configuration."""
    from verl.trainer.ppo.utils import need_critic

    needed: bool = need_critic(config)
    return needed


def resume_settings(start: Start) -> dict[str, OverrideValue]:
    """Return verl's keys for the step to start from."""
    if start.folder is None:
        return {"trainer.resume_mode": "disable", "trainer.resume_from_path": None}
    values: dict[str, OverrideValue] = {
        "trainer.resume_mode": "resume_path",
        "trainer.resume_from_path": str(start.folder),
    }
    # As many as in the step, whatever the number of nodes is now: TransferQueue loads a queue into no other number.
    units = prompt_ledger.storage_units(start.folder)
    return values if units is None else {**values, STORAGE_UNITS: units}


def storage_rows(step: Path, config: DictConfig) -> int:
    """Return the rows that the queue must hold after a resume.

    A step may have more prompts in flight than its successor's settings allow, which then drain. Each has a row, and so
    has each of its responses; the queue also has those of the step that is saved, and of the one that begins.
    """
    simple = config.transfer_queue.backend.SimpleStorage
    prompts = prompt_ledger.prompts_in_flight(step) + 2 * int(config.data.train_batch_size)
    return max(int(simple.total_storage_size), prompts * (int(config.actor_rollout_ref.rollout.n) + 1))


def require_inputs(config: DictConfig, meanwhile: Callable[[], None]) -> None:
    """Refuse data files, a reward function and tools that the run cannot use.

    Do something else while the user's code loads.
    """
    data, files = DataSettings.of(config), (RewardSettings.of(config), ToolSettings.of(config))
    with contextlib.ExitStack() as loading:
        checks = [ImportCheck(file) for file in files if file is not None]
        for check in checks:
            loading.callback(check.stop)
        meanwhile()
        if data is not None:
            data_files.require(data)
        for check in checks:
            check.require()


def require_plugin(job: JobConfig) -> None:
    """Refuse to continue if verl has not loaded our plug-in: it would compute on the wrong platform."""
    import verl  # noqa: F401 - loads the entry points

    module = sys.modules.get("rljob_runtime.verl_plugin.plugin")
    loaded = getattr(module, "LOADED", [])
    if "rljob" not in loaded or (job.platform.value == "cpu" and "cpu" not in loaded):
        raise RefusedError(
            ExitCode.BAD_CONFIG,
            "PluginMissing",
            "verl did not load the entry point rljob of group verl.plugins: the image must contain rljob-runtime with "
            "its dist-info, and VERL_USE_EXTERNAL_PLUGINS must not exclude it; a load error is printed above",
        )


def require_torch_npu(job: JobConfig) -> None:
    """Refuse to continue if torch_npu does not import on the head, which has no driver.

    verl suppresses the error, takes the platform for that of GPUs, and waits for some (verl 0.9.1,
    plugin/platform/platform_npu.py:29 and platform_manager.py:113-117).
    """
    if job.platform is not Platform.NPU:
        return
    try:
        importlib.import_module("torch_npu")
    except Exception as error:
        raise RefusedError(
            ExitCode.BAD_CONFIG,
            "TorchNPUMissing",
            f"torch_npu does not import on the head: {error}; the image needs torch_npu, and in LD_LIBRARY_PATH the "
            "toolkit's libraries and, last, the folder devlib with its libascend_hal.so",
        ) from error


def report_verl(chosen: VerlChoice, setup: Setup) -> None:
    """Publish which verl runs, and what the run loses in this image or meets untried."""
    notes = tuple(f"image: {warning}"[:NOTE_LIMIT] for warning in chosen.warnings)
    print(f"rljob: verl {chosen.version or 'of an unknown version'}", file=sys.stderr, flush=True)  # noqa: T201
    for note in notes:
        print(f"rljob: warning: {note}", file=sys.stderr, flush=True)  # noqa: T201
    setup.spool.update_progress(verl_version=chosen.version, notes=notes[:WARNINGS_SHOWN])


def prepare_processes(config: DictConfig, variables: Mapping[str, str], chosen: VerlChoice) -> None:
    """Let verl's own ray.init pass variables, hook and interpreter to every process of the job."""
    from omegaconf import OmegaConf

    runtime_env = "ray_kwargs.ray_init.runtime_env"
    for name, value in {**variables, **module_path(config, chosen)}.items():
        OmegaConf.update(config, f"{runtime_env}.env_vars.{name}", value, force_add=True)
    hook = f"{runtime_env}.worker_process_setup_hook"
    if OmegaConf.select(config, hook) is None:
        OmegaConf.update(config, hook, WORKER_HOOK, force_add=True)
    chosen_env = OmegaConf.to_container(OmegaConf.select(config, runtime_env))
    if python := fork_server.interpreter(chosen_env, variables):
        OmegaConf.update(config, f"{runtime_env}.py_executable", python, force_add=True)


def module_path(config: DictConfig, chosen: VerlChoice) -> dict[str, str]:
    """Return the variable that lets Ray's processes find the injected packages, before what the job sets itself.

    Without a value of the job, each node's own comes after them, which Ray puts in the place of `$PYTHONPATH`
    (ray/_private/utils.py:1665-1677, update_envs, 2.60).
    """
    from omegaconf import OmegaConf

    name = verl_choice.VARIABLE
    own = OmegaConf.select(config, f"ray_kwargs.ray_init.runtime_env.env_vars.{name}")
    if own is None and chosen.folder is None:
        return {}
    return {name: chosen.path_before(f"${name}" if own is None else str(own))}
