"""Check the model's own config.json on the head, before any weights are loaded.

The operator judges what a manifest states about its model; a model that is given only by path is judged here, by the
same rules (`planning.model_splits`). Called by the trainer while it prepares its configuration. It never fails for a
model that it cannot read: the node checks report missing files.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from rljob_runtime.checkpoints.saved_steps import MODEL_FOLDER
from rljob_runtime.contract import ExitCode, JobConfig
from rljob_runtime.export.adapter import FSDP_META
from rljob_runtime.files import run_with_timeout
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.planning.findings import Finding
from rljob_runtime.planning.flattening import plain_keys
from rljob_runtime.planning.model_facts import facts_of_config
from rljob_runtime.planning.model_splits import judge, judge_trainer
from rljob_runtime.planning.run_layout import CRITIC, MODEL, critic_layout, read_layout

ADAPTER_FIELD, ADAPTER_CONFIG = "trainer.lora.path", "adapter_config.json"
READ_SECONDS = 30.0
"""Time to read one small file; a volume may hang."""
CONFIG_BYTES_MAX = 4 << 20
"""A config.json has a few kilobytes; those of quantized models list their layers."""
UNKEPT = (
    *("use_dora", "use_rslora", "rank_pattern", "alpha_pattern"),
    *("modules_to_save", "bias", "lora_bias", "fan_in_fan_out"),
)
"""Settings of peft without which its matrices mean something else. verl's checkpoints keep rank and alpha only, and
vLLM serves neither DoRA nor biases (vllm/lora/peft_helper.py, 0.23.0)."""


def require(job: JobConfig) -> None:
    """Refuse a run that its model does not allow (exit 64), and print what is doubtful."""
    findings = list(_findings(plain_keys(job.overrides)))
    for one in findings:
        if not one.refused:
            print(f"rljob: warning: {one.field}: {one.message}", file=sys.stderr, flush=True)  # noqa: T201
    if refused := [f"{one.field}: {one.message}" for one in findings if one.refused]:
        raise RefusedError(ExitCode.BAD_CONFIG, "ModelMismatch", "; ".join(refused))


def _findings(keys: Mapping[str, object]) -> Iterator[Finding]:
    model, critic = keys.get(f"{MODEL}.path"), keys.get(f"{CRITIC}.model.path")
    if isinstance(model, str) and (config := read_config("model.path", Path(model))) is not None:
        yield from judge(facts_of_config(config, f"{model}/config.json"), read_layout(keys))
    # By default the critic is the same model with the same sizes.
    if isinstance(critic, str) and critic != model:
        config = read_config("critic.path", Path(critic))
        if config is not None:
            yield from judge_trainer(facts_of_config(config, f"{critic}/config.json"), critic_layout(keys))
    yield from _adapter(keys)


def _adapter(keys: Mapping[str, object]) -> Iterator[Finding]:
    """Yield what contradicts the adapter from which training begins; FSDP2's engine takes its settings from it."""
    path, rank = keys.get(f"{MODEL}.lora_adapter_path"), keys.get(f"{MODEL}.lora_rank")
    if not isinstance(path, str) or (config := read_config(ADAPTER_FIELD, Path(path), ADAPTER_CONFIG)) is None:
        return
    where = f"{path}/{ADAPTER_CONFIG}"
    if (own := config.get("r")) != rank:
        yield Finding("trainer.lora.rank", f"{rank}, but r is {own} in {where}; set it to that", "r", refused=True)
    for switch in UNKEPT:
        if config.get(switch) not in (None, False, "none", [], {}):
            problem = f"{where} has {switch}, which is not in checkpoints; train an adapter without it"
            yield Finding(ADAPTER_FIELD, problem, switch, refused=True)


def require_adapter(step: Path, model: Mapping[str, object]) -> None:
    """Refuse a step with another adapter than the run trains (exit 64): verl would scale it by the run's own alpha.

    `model` is verl's configuration of it. An adapter that the run begins with brings its own alpha.
    """
    saved = read_config("checkpoint.path", step / MODEL_FOLDER, FSDP_META)
    if saved is None:
        return
    for key, setting, field in (("r", "lora_rank", "rank"), ("lora_alpha", "lora_alpha", "alpha")):
        ours = model.get(setting) or 0
        own = field == "alpha" and model.get("lora_adapter_path")
        if saved.get(key) is not None and saved[key] != ours and not own:
            problem = (
                f"trainer.lora.{field}: {ours}, but {saved[key]} in {step}/{MODEL_FOLDER}/{FSDP_META}; set it to that"
            )
            raise RefusedError(ExitCode.BAD_CONFIG, "ModelMismatch", problem)


def read_config(field: str, folder: Path, name: str = "config.json") -> Mapping[str, object] | None:
    """Return the configuration in a model's folder; None if there is none or the volume does not answer."""
    file, read = folder / name, list[bytes]()
    if not run_with_timeout(READ_SECONDS, functools.partial(_read, file, read), f"{file} was not checked") or not read:
        return None
    if len(read[0]) > CONFIG_BYTES_MAX:
        raise _invalid(field, file, f"has more than {CONFIG_BYTES_MAX >> 20} MiB")
    try:
        config = json.loads(read[0])
    except (ValueError, RecursionError):
        raise _invalid(field, file, "is not JSON") from None
    if not isinstance(config, dict):
        raise _invalid(field, file, "is not a JSON object")
    return config


def _read(file: Path, into: list[bytes]) -> None:
    if not file.is_file():
        return
    with file.open("rb") as opened:
        into.append(opened.read(CONFIG_BYTES_MAX + 1))


def _invalid(field: str, file: Path, problem: str) -> RefusedError:
    message = f"{field}: {file} {problem}; it is not the {file.name} of a model, download the model again"
    return RefusedError(ExitCode.BAD_CONFIG, "ModelConfigInvalid", message)
