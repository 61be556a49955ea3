"""verl's own `_save_checkpoint` under our fence: what it writes, in which order, and what a paused driver omits.

The trainer is verl's with our overrides. Only its worker group, replicas and dataloader, which need devices, are
replaced by small ones.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rljob_runtime.checkpoint import TRACKER_FILE, complete_steps, tracked_step
from rljob_runtime.claims import Owner, claim, publish
from rljob_runtime.parallelism import SPLIT_FILE

PROBE = """
import sys, time, types
import torch
from pathlib import Path
from omegaconf import OmegaConf
from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager
from rljob_runtime import claims
from rljob_runtime.contract import CONTRACT_VERSION, JobConfig, Phase, Platform, Progress
from rljob_runtime.contract import RuleCondition, StopMode, StopRule
from rljob_runtime.outcomes import FencedError, StartGoneError
from rljob_runtime.parallelism import SIZES
from rljob_runtime.spool import Spool
from rljob_runtime.stop_rules import StopRules
from rljob_runtime.verl_plugin import fenced_save
from rljob_runtime.training_attempt import TrainingAttempt
from rljob_runtime.verl_plugin.trainer import RLJobTrainer, StepAbandonedError

folder, spool, place, go = Path(sys.argv[1]), Spool(Path(sys.argv[2])), sys.argv[3], Path(sys.argv[4])
job = JobConfig(
    CONTRACT_VERSION, "team-a", "sums", "uid-1", "sums-uid01-1", 1, Platform.CPU, 1, 2, 2, 40, {},
    checkpoint_path=str(folder),
)
claims.claim(folder, claims.Owner.of(job, 1))
spool.write_progress(Progress(pod_uid="p", phase=Phase.TRAINING, attempt=1))


def pause(here):
    if here == place:
        print(here, flush=True)
        while not go.exists():
            time.sleep(0.001)


class Workers:
    def __init__(self):
        self.previous_saved_paths = []

    remove_previous_save_local_path = BaseCheckpointManager.remove_previous_save_local_path

    def execute_all_async(self, method, *words, **options):
        raise AssertionError(f"{method} on ranks that do not exist")

    def load_checkpoint(self, local_path, del_local_after_load):
        (Path(local_path).parent / "data.pt").unlink()

    def save_checkpoint(self, local_path, remote_path, global_step, max_ckpt_to_keep=None):
        BaseCheckpointManager.ensure_checkpoint_capacity(self, max_ckpt_to_keep)
        Path(local_path).mkdir(parents=True)
        BaseCheckpointManager.register_checkpoint(self, local_path, max_ckpt_to_keep)
        pause("saving")
        pause(f"saving-{global_step}")


class Told:
    def on_save(self, trainer, global_step, checkpoint_dir, async_save, **options):
        tracker = (folder / "TRACKER").read_text() if (folder / "TRACKER").exists() else None
        print("told", global_step, checkpoint_dir == str(folder / f"global_step_{global_step}"), async_save, tracker)


class Data:
    def state_dict(self):
        pause("before-mark")
        return {"place": 7}


class Replicas:
    def abort_replicas(self):
        print("aborted", flush=True)

    def sleep_replicas(self):
        print("asleep", flush=True)


trainer = RLJobTrainer.__new__(RLJobTrainer)
trainer._run = TrainingAttempt(job, 1, spool)
trainer.config = OmegaConf.create({
    "trainer": {
        "default_local_dir": str(folder), "default_hdfs_dir": None, "v1": {"trainer_mode": "rljob_sync"},
        "max_actor_ckpt_to_keep": 1, "max_critic_ckpt_to_keep": 1, "del_local_ckpt_after_load": False,
        "resume_mode": "resume_path", "resume_from_path": str(folder / "global_step_4"),
    },
    "algorithm": {"adv_estimator": "grpo"}, "data": {"filter_overlong_prompts": True},
    "actor_rollout_ref": {"actor": {
        "checkpoint": {"async_save": place == "async"}, "strategy": "megatron" if place == "megatron" else "fsdp2",
        "megatron": dict.fromkeys(SIZES, 2),
    }},
})
OmegaConf.set_struct(trainer.config, True)
trainer._take_over(trainer.config)
trainer._nan = None
trainer.trainer_mode, trainer.use_critic, trainer.global_steps = "sync", False, 4
trainer.actor_rollout_wg, trainer.train_dataloader = Workers(), Data()
trainer._publisher = trainer.checkpoint_callback = fenced_save.Publisher(Told(), trainer._run)
if place in ("rollout", "between-steps", "before-steps"):
    trainer.checkpoint_manager, trainer._data_before = Replicas(), {"place": 6}
    trainer.global_steps, trainer.abandoned_step = int(sys.argv[5]), None
    if place != "before-steps":
        trainer._run.step_began()
    if place == "rollout":
        trainer._abandon_rollout()
    else:
        trainer._run.request_stop(StopMode.AFTER_STEP)
        try:
            trainer.on_step_begin()
        except StepAbandonedError:
            print("left")
    data = folder / f"global_step_{trainer.global_steps}" / "data.pt"
    place = torch.load(data, weights_only=False)["place"] if data.exists() else None
    print("given-up", trainer.abandoned_step, trainer.stopped_by, trainer.global_steps, place)
    sys.exit()
if place == "target":
    trainer.checkpoint_manager = Replicas()
    rule = StopRule("target", "critic/score/mean", RuleCondition.ABOVE, threshold=0.9)
    for _ in range(2):
        trainer._rules, trainer.total_training_steps, trainer._awake = StopRules([rule]), 40, True
        trainer._apply_stop_rules(4, {"critic/score/mean": 0.95})
        print("matched", trainer.matched.step, trainer.total_training_steps)
    sys.exit()
if place == "nan":
    rule = StopRule("nan", "actor/grad_norm", RuleCondition.IS_NAN, for_steps=2)
    trainer._rules, trainer.total_training_steps = StopRules([rule]), 40
    RLJobTrainer.__mro__[1].step = lambda self, metrics, timing: metrics.update({"actor/grad_norm": float("nan")})
    for step in (4, 6):
        trainer.global_steps, metrics = step, {}
        trainer.step(metrics, {})
        trainer._save_checkpoint()
        trainer._apply_stop_rules(step, metrics)
    print("matched", trainer.matched.step, trainer.total_training_steps)
    sys.exit()
if place == "loading":
    trainer._save_checkpoint()
    try:
        trainer._load_checkpoint()
    except StartGoneError as error:
        print("told", error)
    sys.exit()
try:
    trainer._save_checkpoint()
    print("saved", trainer.config.actor_rollout_ref.actor.checkpoint.async_save)
    if len(sys.argv) > 5:
        trainer.global_steps = int(sys.argv[5])
        trainer._save_checkpoint()
except FencedError:
    print("fenced")
""".replace("TRACKER", TRACKER_FILE)


@dataclasses.dataclass(frozen=True)
class Place:
    """The folders of a probe."""

    root: Path

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def go(self) -> Path:
        return self.root / "go"

    def words(self, place: str) -> list[str]:
        """Return the command line."""
        return [sys.executable, "-c", PROBE, str(self.checkpoints), str(self.root / "spool"), place, str(self.go)]

    def give_up(self, step: int, place: str = "rollout") -> str:
        """Abandon a step and return the output."""
        done = subprocess.run([*self.words(place), str(step)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.checkpoints)) for path in self.checkpoints.rglob("*"))


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return Place(tmp_path)


def last_words(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.split(" ", 1)[0] in ("told", "saved", "fenced")]


def test_the_tracker_is_written_by_us_and_the_jobs_own_callback_notices_nothing(here: Place) -> None:
    done = subprocess.run(here.words("nowhere"), capture_output=True, text=True, check=False)
    assert last_words(done.stdout) == ["told 4 True False 4", "saved False"], done.stderr[-3000:]
    assert here.files() == [".owner", "global_step_4", "global_step_4/actor", "global_step_4/data.pt", TRACKER_FILE]


def test_a_step_of_megatron_records_its_parallelism(here: Place) -> None:
    done = subprocess.run(here.words("megatron"), capture_output=True, text=True, check=False)
    assert last_words(done.stdout) == ["told 4 True False 4", "saved False"], done.stderr[-3000:]
    made = ["global_step_4", "global_step_4/actor", "global_step_4/data.pt", f"global_step_4/{SPLIT_FILE}"]
    assert here.files() == [".owner", *made, TRACKER_FILE]


def test_a_step_that_disappears_while_verl_loads_it_is_reported(here: Place) -> None:
    done = subprocess.run(here.words("loading"), capture_output=True, text=True, check=False)
    told = (
        f"{here.checkpoints}/global_step_4 disappeared while the run loaded it; the next attempt chooses another start"
    )
    assert last_words(done.stdout)[-1:] == [f"told {told}"], done.stderr[-3000:]


def test_a_save_that_is_asynchronous_indeed_is_left_to_the_worker_that_ends_it(here: Place) -> None:
    done = subprocess.run(here.words("async"), capture_output=True, text=True, check=False)
    assert last_words(done.stdout) == ["told 4 True True None", "saved True"], done.stderr[-3000:]


@pytest.mark.parametrize("place", ["saving", "before-mark"])
def test_a_driver_that_was_paused_in_a_save_does_not_publish(here: Place, place: str) -> None:
    with subprocess.Popen(here.words(place), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any(line.strip() == place for line in process.stdout)
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            claim(here.checkpoints, Owner("uid-1", 2))
            publish(here.checkpoints, Owner("uid-1", 2), 2)
            here.go.touch()
            process.send_signal(signal.SIGCONT)
            said, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert last_words(said) == ["fenced"]
    assert tracked_step(here.checkpoints) == 2
    assert "global_step_4/data.pt" not in here.files()


def test_a_driver_that_is_killed_in_a_save_leaves_the_checkpoint_before(here: Place) -> None:
    with subprocess.Popen([*here.words("saving-6"), "6"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(line.strip() == "saving-6" for line in process.stdout)
        process.kill()
    assert complete_steps(here.checkpoints) == [4]


def test_the_previous_checkpoint_is_deleted_once_the_new_one_is_published(here: Place) -> None:
    done = subprocess.run([*here.words("nowhere"), "6"], capture_output=True, text=True, check=False)
    assert last_words(done.stdout) == ["told 4 True False 4", "saved False", "told 6 True False 6"], done.stderr[-3000:]
    assert here.files() == [".owner", "global_step_6", "global_step_6/actor", "global_step_6/data.pt", TRACKER_FILE]


def test_weights_that_are_nan_are_not_saved_whether_their_rule_has_matched_yet_or_not(here: Place) -> None:
    done = subprocess.run(here.words("nan"), capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "matched 6 6", done.stderr[-3000:]
    assert here.files() == [".owner"]


def test_a_stop_rule_frees_the_replicas_memory_for_its_save_and_saves_a_step_once(here: Place) -> None:
    done = subprocess.run(here.words("target"), capture_output=True, text=True, check=False)
    said = [line for line in done.stdout.splitlines() if line.split(" ", 1)[0] in ("asleep", "told", "matched")]
    assert said == ["asleep", "told 4 True False 4", "matched 4 4", "matched 4 4"], done.stderr[-3000:]


def test_a_rollout_that_is_abandoned_is_named_and_its_prompts_are_drawn_again(here: Place) -> None:
    said = here.give_up(5).splitlines()
    assert said.index("aborted") < said.index("asleep") < said.index("told 4 True False 4"), said
    assert said[-1] == "given-up 5 AbortRollout 4 6"


def test_a_first_rollout_that_is_abandoned_leaves_no_checkpoint(here: Place) -> None:
    assert here.give_up(1).splitlines()[-1] == "given-up 1 AbortRollout 0 None"
    assert here.files() == [".owner"]


def test_a_stop_between_two_steps_ends_with_the_one_that_is_trained(here: Place) -> None:
    said = here.give_up(5, "between-steps").splitlines()
    assert said.index("asleep") < said.index("told 4 True False 4") < said.index("left"), said
    assert said[-1] == "given-up None AfterStep 4 7"


def test_a_stop_before_an_attempts_first_step_saves_nothing_again(here: Place) -> None:
    assert here.give_up(5, "before-steps").splitlines()[-2:] == ["left", "given-up None AfterStep 4 None"]
    assert here.files() == [".owner"]
