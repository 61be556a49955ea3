"""What an RLJob needs and a script does not say, and what a script says in another form than a flag. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.model_shape import known_shape
from rljob.launchers.verl.rows import ACTOR, MODEL
from rljob.render.accelerators import BUILT_IN
from upstream.verl_scripts.fields import Json
from upstream.verl_scripts.hydra_value import Value
from upstream.verl_scripts.table import Script

SHARED, IMAGE = "/shared", "registry.example/rljob/runtime:npu"
STEPS = 1000
"""For scripts with epochs only: the length of their data set is not among their flags."""
DEVICES_PER_A2 = 8
"""An Atlas A2 node has 8 devices, an A3 node 16 dies (rljob.render.accelerators)."""
MEGATRON_CONFIG = "ppo_megatron_trainer"
"""Deprecated name of `model_engine=megatron` (verl 0.9.1, trainer/config/ppo_megatron_trainer.yaml)."""
DYNAMIC, TOKENS = f"{ACTOR}.use_dynamic_bsz", f"{ACTOR}.ppo_max_token_len_per_gpu"
VERL_TOKENS = 16384
"""verl 0.9.1, trainer/config/actor/actor.yaml:33: the bound of a script that only enables dynamic batches."""
PATHS = {
    f"{MODEL}.path",
    "critic.model.path",
    "data.train_files",
    "data.val_files",
    "reward.custom_reward_function.path",
    "trainer.default_local_dir",
}
"""verl downloads a model that is named by its id in a hub; an RLJob has its folder."""
TEXT = f"""\
What a script does not say has a stand-in: the image; a volume at `{SHARED}` that holds models, data and checkpoints; a
reward function where the script takes verl's own by the name of the data set; {STEPS} steps where it counts epochs
only; class atlas-a2 up to {DEVICES_PER_A2} devices per node, and atlas-a3 above. Models that the operator knows by name
have their architecture, so that their memory is planned.
"""


def stated_flags(script: Script) -> dict[str, Value]:
    """Return the Hydra keys with their values, paths made absolute, and what the options of Hydra stand for."""
    flags = script.values
    implied: dict[str, Value] = {"model_engine": "megatron"}
    if script.flags.get("--config-name", "").removesuffix(".yaml") == MEGATRON_CONFIG:
        flags = implied | flags
    if flags.get(DYNAMIC) is True:
        flags |= {TOKENS: flags.get(TOKENS, VERL_TOKENS)}
    return {key: absolute(value) if key in PATHS else value for key, value in flags.items()}


def absolute(value: Value) -> Value:
    """Return a path below the stand-in for the volume; the scripts' paths are relative, or of their own hosts."""
    if isinstance(value, list):
        return [absolute(member) for member in value]
    path = PurePosixPath("/", str(value))
    return str(path if path.is_relative_to(SHARED) else PurePosixPath(SHARED, path.relative_to("/")))


def skeleton(flags: Mapping[str, Value]) -> Json:
    """Return a spec with the stand-ins, and with values in required fields."""
    devices = flags.get("trainer.n_gpus_per_node", DEVICES_PER_A2)
    volumes = {
        "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": "rl-shared"}}],
        "volumeMounts": [{"name": "shared", "mountPath": SHARED}],
    }
    spec: Json = {
        "runtime": {"image": IMAGE},
        "accelerator": {"class": "atlas-a2" if devices in range(1, DEVICES_PER_A2 + 1) else "atlas-a3"},
        "workerGroups": [{"name": "trainer", "devicesPerNode": devices, "template": volumes}],
        "model": {"path": f"{SHARED}/model"},
        "data": {"train": [f"{SHARED}/train.parquet"]},
        "reward": {"path": f"{SHARED}/reward.py"},
        "trainer": {"steps": STEPS, "globalBatchSize": 1024},
        "verl": {"overrides": {}},
    }
    _add_architecture(spec, PurePosixPath(str(flags.get(f"{MODEL}.path", ""))).name)
    every = flags.get("trainer.save_freq")
    if isinstance(every, int) and every > 0:
        folder = str(flags.get("trainer.default_local_dir", f"{SHARED}/checkpoints"))
        spec["checkpoint"] = {"path": folder, "everySteps": every}
    return spec


def _add_architecture(spec: Json, name: str) -> None:
    """Add the architecture of a model whose name, or the first words of it, the operator knows."""
    words = name.split("-")
    for length in range(len(words), 0, -1):
        model = spec["model"] | {"architecture": "-".join(words[:length])}
        if known_shape(RLJobSpec.model_validate(spec | {"model": model}, context=BUILT_IN)) is not None:
            spec["model"] = model
            return
