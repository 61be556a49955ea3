"""Every subset of what verl can save and load: a run resumes with exactly what was trained, or it is refused.

verl's own FSDP checkpoint manager saves and loads a small model of one rank. Our rules see the same settings and files.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROBE = """
import itertools, json, sys, types
from pathlib import Path
import torch, torch.distributed
from torch.distributed._composable.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoModelForCausalLM, Qwen2Config
from verl.trainer.config import CheckpointConfig
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
from rljob_runtime.checkpoints import contents
from rljob_runtime.contract import CONTRACT_VERSION, JobConfig, Platform
from rljob_runtime.outcomes import RefusedError

folder = Path(sys.argv[1])
job = JobConfig(CONTRACT_VERSION, "n", "j", "u", "c", 1, Platform.CPU, 1, 1, 1, 4, {}, checkpoint_path=str(folder))
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
SHAPE = dict(vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
             num_key_value_heads=1, architectures=["Qwen2ForCausalLM"])


def engine(kind, seed, contents):
    torch.manual_seed(seed)
    model = fully_shard(AutoModelForCausalLM.from_config(Qwen2Config(**SHAPE)), mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    decay = (lambda step: 1.0) if kind == "constant" else (lambda step: 0.5 ** step)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, decay)
    manager = FSDPCheckpointManager(model, optimizer, scheduler, None, CheckpointConfig(**contents))
    return manager


def train(manager, steps):
    for _ in range(steps):
        manager.model(input_ids=torch.arange(8).reshape(1, 8)).logits.square().mean().backward()
        manager.optimizer.step()
        manager.optimizer.zero_grad()
        manager.lr_scheduler.step()


def local(value):
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def parts(manager):
    weights = [local(value).detach().clone() for value in manager.model.state_dict().values()]
    moments = [local(value).clone() for state in manager.optimizer.state_dict()["state"].values()
               for value in state.values()]
    return weights, moments, manager.lr_scheduler.last_epoch, manager.lr_scheduler.get_last_lr()


def same(ours, theirs):
    return len(ours) == len(theirs) and all(torch.equal(a, b) for a, b in zip(ours, theirs))


class Section(dict):
    __getattr__ = dict.__getitem__


def config(kind, save, load):
    optimizer = Section(lr_scheduler_type="constant" if kind == "constant" else "cosine", lr_warmup_steps=-1,
                        lr_warmup_steps_ratio=0.0)
    whole = Section(save_contents=None, load_contents=None)
    role = lambda contents: Section(checkpoint=contents, strategy="fsdp2", optim=optimizer)
    actor = role(Section(save_contents=save, load_contents=load))
    return Section(actor_rollout_ref=Section(actor=actor), critic=role(whole))


NAMES = ("model", "optimizer", "extra", "hf_model")
SUBSETS = [list(chosen) for size in range(5) for chosen in itertools.combinations(NAMES, size)] + [None, "model,extra"]
for kind, save in itertools.product(("constant", "decaying"), SUBSETS):
    step = folder / f"global_step_{len(list(folder.iterdir()))}"
    trained = engine(kind, 1, {"save_contents": save, "load_contents": save})
    train(trained, 2)
    trained.save_checkpoint(str(step / "actor"), global_step=2)
    saved = parts(trained)
    for load in SUBSETS:
        try:
            contents.require(job, config(kind, save, load), needs_critic=True)
        except RefusedError as error:
            verdict = "refused"
        else:
            wanted = {"actor": contents.named(load)}
            verdict = "incomplete" if list(contents.lacking(step, wanted)) else "accepted"
        resumed = engine(kind, 2, {"save_contents": save, "load_contents": load})
        try:
            resumed.load_checkpoint(str(step / "actor"))
            weights, moments, epoch, rates = parts(resumed)
            did = {"weights": same(saved[0], weights), "moments": same(saved[1], moments),
                   "schedule": (epoch, rates) == saved[2:] or kind == "constant"}
        except FileNotFoundError:
            did = None
        print(json.dumps({"kind": kind, "save": save, "load": load, "verdict": verdict, "did": did}), flush=True)
"""
SECONDS = 3600
pytestmark = pytest.mark.long
COMBINATIONS = 18 * 18
"""Pairs of a save and a load, for each kind of schedule."""


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """Return what our rules said and what verl did, for every pair of settings and kind of schedule."""
    command = (sys.executable, "-c", PROBE, str(tmp_path_factory.mktemp("saves")))
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.fixture(params=["constant", "decaying"])
def seen(request: pytest.FixtureRequest, cases: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the cases of one kind of schedule."""
    return [case for case in cases if case["kind"] == request.param]


def test_what_is_accepted_resumes_with_exactly_what_was_trained(seen: list[dict[str, object]]) -> None:
    assert len(seen) == COMBINATIONS
    accepted = [case for case in seen if case["verdict"] == "accepted"]
    assert len(accepted) > 10
    for case in accepted:
        did = case["did"]
        assert isinstance(did, dict), case
        assert did["weights"], case
        assert did["schedule"], case
        # Leaving the optimizer out of what is loaded is a choice, with which Megatron changes its split.
        assert did["moments"] or "optimizer" not in str(case["load"]), case


def test_what_is_refused_would_fail_or_lose_something(seen: list[dict[str, object]]) -> None:
    """The rules are not wider than needed, but for steps without an optimizer, which the next attempt could not use."""
    for case in (case for case in seen if case["verdict"] != "accepted"):
        did = case["did"]
        lost = not isinstance(did, dict) or not all(did.values())
        assert lost or "optimizer" not in str(case["save"]), case


def test_weights_that_were_never_saved_are_lost_in_silence(seen: list[dict[str, object]]) -> None:
    """This is why the rules exist: verl raises nothing."""
    silent = [case for case in seen if isinstance(case["did"], dict) and not case["did"]["weights"]]
    assert silent
    assert all(case["verdict"] != "accepted" for case in silent)
