"""Upstream's own code on both sides of every rule that the operator has about it.

rules.json has the keys of a job just inside and of one just outside each rule, as the operator renders them; it is
written by the operator's tests (operator/tests/corpus/rules.py says what is inside). A probe gives the composed
configuration to the code of verl, vLLM or Megatron-Core that draws the line: it must pass the inside and raise for the
outside, in the file and at the lines that the rule cites. Where upstream says nothing, the probe returns the effect,
which differs between the sides as the operator says. A test that fails means that upstream has moved, and that the rule
must follow.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import json
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime import hydra_config
from rljob_runtime.contract import CONTRACT_VERSION, JobConfig, Platform
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.spool.spool import Spool

FILE = Path(__file__).with_name("rules.json")
DOCUMENT: dict[str, Any] = json.loads(FILE.read_text())
RULES: dict[str, dict[str, Any]] = DOCUMENT["rules"]
SPOOL, SCRATCH = Spool(Path("/spool")), Path("/scratch")
REFUSALS = (AssertionError, AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError)
"""Errors with which upstream refuses; Hydra and our launcher wrap them."""
pytestmark = pytest.mark.usefixtures("megatron")
UNCHECKED = "vllm/config/cache.py"
"""It declares a bound, which pydantic checks."""
PROMPT, RESPONSE = 1024, 1024
"""Lengths in the smallest spec."""


class ReachedError(Exception):
    """Upstream has passed the line and would now take devices."""


class Side:
    """One side of a rule: the job, and the configuration that verl composes of it."""

    def __init__(self, row: dict[str, Any], model: str, patch: pytest.MonkeyPatch) -> None:
        kept = {key: value for key, value in DOCUMENT["base"].items() if key not in row["without"]}
        self.job = JobConfig(
            version=CONTRACT_VERSION,
            namespace="ns",
            name="job",
            uid="u",
            cluster_name="c",
            cluster_generation=1,
            platform=Platform(row["platform"]),
            nodes=row["nodes"],
            devices=row["devices"],
            dies_per_card=2,
            total_steps=kept["trainer.total_training_steps"],
            overrides=kept | row["set"],
        )
        self.config = hydra_config.compose(self.job, SPOOL, SCRATCH)
        self.config.actor_rollout_ref.model.path = self.config.critic.model.path = model
        self.actor, self.rollout = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout
        self.patch = patch

    @property
    def group(self) -> int:
        """Devices that share a sequence."""
        if self.actor.strategy == "megatron":
            return int(self.actor.megatron.context_parallel_size)
        return int(self.actor.ulysses_sequence_parallel_size)

    @property
    def ranks(self) -> int:
        """Data-parallel ranks."""
        sizes = self.actor.megatron if self.actor.strategy == "megatron" else None
        split = sizes.tensor_model_parallel_size * sizes.pipeline_model_parallel_size if sizes else 1
        return self.job.devices // (split * self.group)

    @property
    def step_samples(self) -> int:
        """Samples of a step, with those that fill up its last update."""
        from verl.trainer.ppo.v1.trainer_base import PPOTrainer

        samples = self.config.data.train_batch_size * self.rollout.n
        trainer: Any = types.SimpleNamespace(use_critic=False, config=self.config, global_steps=1)
        multiple = PPOTrainer._get_required_batch_multiple(trainer, self.ranks)
        return int(-(-samples // multiple) * multiple)

    @property
    def share(self) -> int:
        """Samples of a rank in an update."""
        return int(self.actor.ppo_mini_batch_size * self.rollout.n // self.ranks)


def configuration(side: Side) -> None:
    """Run verl's own check before a run."""
    from verl.utils import device

    # Without an NPU, verl would set trainer.device to the device that it finds.
    side.patch.setattr(device, "auto_set_device", lambda _: None)
    hydra_config.validate(side.config)


def update(side: Side) -> None:
    _train(side, side.actor.ppo_mini_batch_size)


def critic_update(side: Side) -> None:
    _train(side, side.config.critic.ppo_mini_batch_size)


def _train(side: Side, prompts: int) -> None:
    """Begin the updates of a batch on one rank."""
    import torch
    from tensordict import TensorDict
    from verl.utils import tensordict_utils
    from verl.workers.engine_workers import TrainingWorker

    def reached() -> int:
        raise ReachedError

    engine = types.SimpleNamespace(get_data_parallel_size=lambda: side.ranks, get_data_parallel_rank=reached)
    data = TensorDict({"x": torch.zeros(4)}, batch_size=4)
    tensordict_utils.assign_non_tensor(data, mini_batch_size=prompts * side.rollout.n)
    inspect.unwrap(TrainingWorker.train_mini_batch)(types.SimpleNamespace(engine=engine), data)


def trainer_apart(side: Side) -> None:
    """Begin the trainer whose rollout has devices of its own, up to what it shares with the others."""
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync

    def reached(*_: object) -> None:
        raise ReachedError

    side.patch.setattr(PPOTrainer, "__init__", reached)
    PPOTrainerSeparateAsync(side.config)


def passes(side: Side) -> None:
    _split(side.share, side.actor.ppo_micro_batch_size_per_gpu)


def critic_passes(side: Side) -> None:
    _split(side.share, side.config.critic.fsdp.micro_batch_size_per_gpu)


def rollout_passes(side: Side) -> None:
    _split(side.step_samples // side.ranks, side.rollout.log_prob_micro_batch_size_per_gpu)


def reference_passes(side: Side) -> None:
    _split(side.step_samples // side.ranks, side.config.actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu)


def _split(samples: int, size: int) -> None:
    """Split a rank's samples into passes of a fixed size."""
    import torch
    from tensordict import TensorDict
    from verl.utils import tensordict_utils
    from verl.workers.engine.utils import prepare_micro_batches

    data = TensorDict({"x": torch.zeros(samples)}, batch_size=samples)
    tensordict_utils.assign_non_tensor(data, use_dynamic_bsz=False, micro_batch_size_per_gpu=size)
    split, _ = prepare_micro_batches(data)
    assert len(split) == samples // size


def tokens(side: Side) -> None:
    _pack(side, side.actor.ppo_max_token_len_per_gpu)


def rollout_tokens(side: Side) -> None:
    _pack(side, side.rollout.log_prob_max_token_len_per_gpu)


def _pack(side: Side, bound: int) -> None:
    """Pack the longest sequence into a pass."""
    import torch
    from tensordict import TensorDict
    from verl.utils import tensordict_utils
    from verl.workers.engine.utils import prepare_micro_batches

    longest = side.config.data.max_prompt_length + side.config.data.max_response_length
    rows = torch.nested.as_nested_tensor([torch.zeros(longest, dtype=torch.int64)], layout=torch.jagged)
    data = TensorDict({"input_ids": rows}, batch_size=1)
    tensordict_utils.assign_non_tensor(data, use_dynamic_bsz=True, max_token_len_per_gpu=bound, sp_size=side.group)
    split, _ = prepare_micro_batches(data)
    assert len(split) == 1


def engine(side: Side) -> None:
    """The actor's worker, up to its engine."""
    _worker(side, "actor")


def rollout(side: Side) -> None:
    """The rollout's worker, up to its devices."""
    _worker(side, "rollout")


def _worker(side: Side, role: str) -> None:
    from verl.workers import engine_workers

    def reached(*_: Any, **__: Any) -> None:
        raise ReachedError

    side.patch.setattr(engine_workers, "init_device_mesh", reached)
    worker = types.SimpleNamespace(
        config=side.config.actor_rollout_ref,
        role=role,
        world_size=side.job.devices,
        distillation_enabled=False,
        _omega_profiler_config=None,
        actor_worker_cls=reached,
    )
    inspect.unwrap(engine_workers.ActorRolloutRefWorker.init_model)(worker)


def replica(side: Side) -> None:
    """A replica, before it has any device."""
    from verl.workers.rollout.replica import RolloutReplica

    bare = type("Bare", (RolloutReplica,), {})
    bare.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    bare(0, side.rollout, None, gpus_per_node=side.rollout.n_gpus_per_node)


def _server(side: Side, positions: int = PROMPT + RESPONSE) -> Any:
    """Return a server of vLLM after verl's own corrections, for a model of so many positions."""
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

    server = types.SimpleNamespace(
        config=omega_conf_to_dataclass(side.rollout),
        model_config=types.SimpleNamespace(hf_config=types.SimpleNamespace(max_position_embeddings=positions)),
        _disaggregation_role="null",
    )
    vLLMHttpServer._validate_configs(server)
    return server


def scheduler(side: Side) -> None:
    """Configure vLLM's scheduler with the arguments that verl passes on (vllm_async_server.py, `launch_server`)."""
    from vllm.config import SchedulerConfig

    config = _server(side).config
    names = ("max_num_seqs", "max_num_batched_tokens", "enable_chunked_prefill", "max_model_len")
    arguments = {name: getattr(config, name) for name in names}
    given = {name: value for name, value in config.engine_kwargs.get("vllm", {}).items() if name in names}
    SchedulerConfig(is_encoder_decoder=False, **(arguments | given))


def server(side: Side) -> None:
    """Start a server for a model whose context is the longest sequence."""
    _server(side)


def starting(side: Side) -> bool:
    """Report whether a server starts for a model of a longer context."""
    try:
        _server(side, positions=40960)
    except dataclasses.FrozenInstanceError:
        return False
    return True


def room(side: Side) -> None:
    response(side)


def response(side: Side) -> int:
    """Return the tokens that a response to the longest prompt may have."""
    from verl.workers.rollout.vllm_rollout import vllm_async_server

    asked: list[int] = []

    def sampling(max_tokens: int, **_: Any) -> None:
        asked.append(max_tokens)
        raise ReachedError

    side.patch.setattr(vllm_async_server, "SamplingParams", sampling)
    generate = vllm_async_server.vLLMHttpServer.generate(_server(side), [1] * PROMPT, {}, "request")
    with contextlib.suppress(ReachedError):
        asyncio.run(generate)
    return asked[0]


def sampling(side: Side) -> None:
    _sampled(side.rollout)


def validation(side: Side) -> None:
    _sampled(side.rollout.val_kwargs)


def temperature(side: Side) -> bool:
    """Report whether vLLM samples at the temperature by which the trainer divides."""
    return bool(_sampled(side.rollout).temperature == side.rollout.temperature)


def _sampled(values: Any) -> Any:
    from vllm import SamplingParams

    return SamplingParams(temperature=values.temperature, top_p=values.top_p, top_k=values.top_k)


def cache(side: Side) -> None:
    from vllm.config import CacheConfig

    share = side.rollout.gpu_memory_utilization
    CacheConfig(gpu_memory_utilization=side.rollout.engine_kwargs.vllm.get("gpu_memory_utilization", share))


def filling(side: Side) -> int:
    """Return the samples without effect that verl adds to a step."""
    return side.step_samples - int(side.config.data.train_batch_size * side.rollout.n)


def peers(side: Side) -> bool:
    """Report whether the advantage of a response is its reward."""
    import torch
    from verl.trainer.ppo import core_algos

    samples = side.rollout.n
    rewards = torch.arange(1, samples + 1, dtype=torch.float32).unsqueeze(-1)
    index: Any = ["prompt"] * samples
    mask = torch.ones(samples, 1)
    found = [
        compute(token_level_rewards=rewards.clone(), response_mask=mask, index=index)[0]
        for compute in (core_algos.compute_grpo_outcome_advantage, core_algos.compute_rloo_outcome_advantage)
    ]
    same = {bool(torch.allclose(advantages, rewards, atol=1e-4)) for advantages in found}
    assert len(same) == 1
    return same.pop()


def transformer(side: Side) -> None:
    """Megatron-Core's options of a transformer."""
    import torch
    from megatron.core.transformer import transformer_config

    names = ("recompute_granularity", "recompute_method", "recompute_num_layers")
    given = {name: side.actor.megatron.override_transformer_config[name] for name in names}
    transformer_config.TransformerConfig(
        num_layers=4, hidden_size=8, num_attention_heads=4, params_dtype=torch.bfloat16, **given
    )


def grid(side: Side) -> None:
    """Megatron-Core's grids of ranks, up to its first group."""
    import torch
    from megatron.core import parallel_state

    def reached(**_: Any) -> None:
        raise ReachedError

    side.patch.setattr(torch.distributed, "is_initialized", lambda: True)
    side.patch.setattr(torch.distributed, "get_world_size", lambda *_: side.job.devices)
    side.patch.setattr(torch.distributed, "get_rank", lambda *_: 0)
    side.patch.setattr(parallel_state, "timedelta", reached)
    sizes = side.actor.megatron
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=sizes.tensor_model_parallel_size,
        pipeline_model_parallel_size=sizes.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=sizes.virtual_pipeline_model_parallel_size,
        context_parallel_size=sizes.context_parallel_size,
        expert_model_parallel_size=sizes.expert_model_parallel_size,
        expert_tensor_parallel_size=sizes.expert_tensor_parallel_size,
    )


RAISING: dict[str, Callable[[Side], None]] = {
    probe.__name__: probe
    for probe in (
        configuration,
        update,
        critic_update,
        trainer_apart,
        passes,
        critic_passes,
        rollout_passes,
        reference_passes,
        tokens,
        rollout_tokens,
        engine,
        rollout,
        replica,
        server,
        scheduler,
        room,
        sampling,
        validation,
        cache,
        transformer,
        grid,
    )
}
SILENT: dict[str, tuple[Callable[[Side], object], object, object]] = {
    "filling": (filling, 0, 32),
    "peers": (peers, False, True),
    "starting": (starting, True, False),
    "response": (response, RESPONSE, RESPONSE - 1),
    "temperature": (temperature, True, False),
}
"""Probe -> the effect inside and outside."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a folder with the files that verl reads of a model before it loads weights."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast, Qwen2Config

    folder = str(tmp_path_factory.mktemp("model"))
    words = WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>")
    PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(words), pad_token="<pad>", eos_token="<eos>", unk_token="<pad>"
    ).save_pretrained(folder)
    Qwen2Config(architectures=["Qwen2ForCausalLM"], vocab_size=2, hidden_size=8, num_hidden_layers=1).save_pretrained(
        folder
    )
    return folder


def test_every_probe_is_used() -> None:
    assert {row["probe"] for row in RULES.values()} == set(RAISING) | set(SILENT)


@pytest.mark.parametrize("name", [name for name, row in RULES.items() if row["probe"] in RAISING])
def test_upstream_accepts_the_inside(name: str, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    side = Side(RULES[name]["inside"], model, monkeypatch)
    with contextlib.suppress(ReachedError):
        RAISING[RULES[name]["probe"]](side)


@pytest.mark.parametrize("name", [name for name, row in RULES.items() if row["probe"] in RAISING])
def test_upstream_refuses_the_outside(name: str, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from hydra.errors import HydraException

    side = Side(RULES[name]["outside"], model, monkeypatch)
    with pytest.raises((*REFUSALS, RefusedError, HydraException)) as caught:
        RAISING[RULES[name]["probe"]](side)
    error = _innermost(caught.value)
    assert isinstance(error, REFUSALS)
    file, _, lines = RULES[name]["source"].partition(":")
    if file != UNCHECKED:
        raised = traceback.extract_tb(error.__traceback__)[-1]
        first, last = map(int, lines.split("-"))
        assert raised.filename.endswith(f"/{file}"), raised
        assert first <= (raised.lineno or 0) <= last, raised


def _innermost(error: BaseException) -> BaseException:
    """Return what upstream raised, without what Hydra, pydantic or our launcher make of it."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        inner = error.errors()[0].get("ctx", {}).get("error")
        return inner if isinstance(inner, BaseException) else error
    return error if isinstance(error, REFUSALS) or error.__cause__ is None else _innermost(error.__cause__)


@pytest.mark.parametrize("name", [name for name, row in RULES.items() if row["probe"] in SILENT])
def test_upstream_has_the_effect_that_the_warning_states(
    name: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe, inside, outside = SILENT[RULES[name]["probe"]]
    assert probe(Side(RULES[name]["inside"], model, monkeypatch)) == inside
    assert probe(Side(RULES[name]["outside"], model, monkeypatch)) == outside
