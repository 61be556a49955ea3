"""What a manifest sets differently from its script, each with the reason. Pure; the house test uses it."""

from __future__ import annotations

from dataclasses import dataclass

from upstream.command_recipes.sources import REBALANCE, Source
from upstream.command_recipes.table import Facts

TREE = "/workspace/cann-recipes-train"
"""The repository in the image that the site builds, with frameworks copied in and patched."""
SHARED = "/shared"
CODE = "/code"
"""Where the pods have the folder of the repository that holds the reward function, at the script's commit."""
TOOLS = "/tools"
"""Where the pods have the ConfigMap with the tools' configuration."""
WORK = "/work"
"""Where the command starts: a folder of the run on the job's volume."""
GIT = "a file of the repository, which the pods fetch at the script's commit"
KUBERAY = "KubeRay starts Ray and gives the address to its processes"
VOLUME = "on the job's volume, which every pod mounts"
ABSOLUTE = "absolute, because Ray's processes do not start in the recipe's folder"
IN_POD = "the ConfigMap beside the job, which has the sandbox's address in the pod"
ROOTS = ("$PWD/", "./", "home/", "data/", "dataset/")
"""Folders where the scripts have models and data."""
LEFT_OUT = {
    "MASTER_PORT": KUBERAY,
    "WORLD_SIZE": "verl sets it for each worker",
    "TP_SOCKET_IFNAME": "network.hccl.socketInterface; without it the pod's address is used",
    "HCCL_SOCKET_IFNAME": "network.hccl.socketInterface; without it the pod's address is used",
    "GLOO_SOCKET_IFNAME": "network.hccl.socketInterface; without it the pod's address is used",
    "HCCL_IF_BASE_PORT": "ignored by HCCL if HCCL_HOST_SOCKET_PORT_RANGE is set, which the operator does",
    "HCCL_HOST_SOCKET_PORT_RANGE": "the operator sets auto",
    "HCCL_CONNECT_TIMEOUT": "network.hccl.connectTimeoutSeconds",
    "HCCL_EXEC_TIMEOUT": "network.hccl.execTimeoutSeconds",
    "ASCEND_PROCESS_LOG_PATH": "the operator sets a folder of the pod",
    "ASCEND_RT_VISIBLE_DEVICES": "the device plug-in gives the pod its devices",
    "ASCEND_HOME_PATH": "the image's set_env.sh",
    "ASCEND_TOOLKIT_HOME": "the image's set_env.sh",
    "ASCEND_CUSTOM_OPP_PATH": "a prefix of set_env.sh's value, which a pod's variable would replace: the image sets it",
    "LD_LIBRARY_PATH": "a prefix of set_env.sh's value, which a pod's variable would replace: the image sets it",
    "PYTHONPATH": "the image's PYTHONPATH has the recipe's folder",
    "DIST_CKPT_PATH": "the flag has the path",
}
PLACES = {
    "/path/to/model": "Qwen3-30B-A3B",
    "/path/to/dist_checkpoint": "Qwen3-30B-A3B-sharded",
    "/path/to/train.parquet": "deepscaler/train.parquet",
    "/path/to/test.parquet": "deepscaler/test.parquet",
}
"""Texts of the scripts that stand for a file, with the file on the volume."""
FILES = (".train_files", ".val_files", "model.path", "dist_checkpointing_path", "eagle3_draft_model")


@dataclass(frozen=True)
class Value:
    """The value in the manifest, and why it differs from the script's; no reason if it does not."""

    text: str
    reason: str = ""


def flag_value(source: Source, key: str, text: str) -> Value:
    """Return what the manifest passes for a flag of the script."""
    if text in PLACES:
        return Value(f"{SHARED}/{PLACES[text]}", f"a placeholder in the script; {VOLUME}")
    if text.endswith("your_sharded_weights"):
        model = "DeepSeek-V3" if source.name.startswith("deepseek") else "Qwen3-235B-A22B"
        return Value(f"{SHARED}/{model}-sharded", f"a placeholder in the script; {VOLUME}")
    if key.endswith(FILES):
        path = _on_volume(source, text.strip("['/]"))
        return Value(f"['{path}']" if text.startswith("[") else path, VOLUME)
    if text.startswith(("$PWD/outputs", "outputs/")):
        return Value(f"{SHARED}/outputs/{source.name}/{text.rsplit('/', 1)[-1]}", VOLUME)
    if key == "trainer.default_local_dir":
        return Value("{checkpoints}", "checkpoint.path, which the launcher divides by attempts")
    if key == "trainer.experiment_name" and source.name == "tool-agent-4b":
        return Value("qwen3-4b_dapo", "the script appends the date; the job's name distinguishes runs")
    if ":8080/" in text:
        return Value(text.replace(":8080/", ":9080/"), "port 8080 of a pod has Ray's metrics, so the sandbox uses 9080")
    return _program_value(source, key, text)


def _on_volume(source: Source, path: str) -> str:
    """Return where the volume has a file of the recipe's or the host's folder.

    The folders below it are kept: retool.py of the tool agent chooses by the last two how to read a data set.
    """
    for folder in ROOTS:
        path = path.removeprefix(folder)
    return f"{SHARED}/{path}" if "/" in path or "parquet" not in path else f"{SHARED}/{source.name}/{path}"


def _program_value(source: Source, key: str, text: str) -> Value:
    """Return the value of a flag that may name a file of the recipe."""
    name = text.rsplit("/", 1)[-1]
    if key.endswith("tool_config_path"):
        return Value(f"{TOOLS}/{name}", IN_POD)
    if key.endswith(("custom_reward_function.path", "custom_cls.path")):
        in_image = Value(f"{TREE}/{source.started_in}/{name}", ABSOLUTE)
        return Value(f"{CODE}/{name}", GIT) if source.code else in_image
    if text.startswith("$PWD"):
        return Value(text.replace("$PWD", f"{TREE}/{source.started_in}"), ABSOLUTE)
    return Value(text)


def saves(facts: Facts) -> bool:
    """Report whether the script saves checkpoints."""
    return int(facts.flags["trainer.save_freq"]) > 0


def added_flags(facts: Facts) -> dict[str, Value]:
    """Return the flags of the manifest that the script lacks."""
    if not saves(facts) or "trainer.default_local_dir" in facts.flags:
        return {}
    reason = "verl's default is below the folder where a process starts, which is the image's and not kept"
    return {"trainer.default_local_dir": Value("{checkpoints}", reason)}


def added_variables(source: Source, facts: Facts) -> dict[str, Value]:
    """Return the variables of the pods that the script lacks."""
    logger = facts.flags["trainer.logger"]
    added: dict[str, Value] = {}
    if "tensorboard" in logger and "TENSORBOARD_DIR" not in facts.environment:
        reason = "the default is below the folder where a process starts, which is the image's and not kept"
        added["TENSORBOARD_DIR"] = Value(f"{SHARED}/tensorboard/{source.name}", reason)
    if "wandb" in logger:
        added["WANDB_DIR"] = Value(f"{SHARED}/wandb/{source.name}", "as for checkpoints")
        added["WANDB_MODE"] = Value(
            "offline", "without a key wandb asks for one; with secretRefs, remove this variable"
        )
    return added


def variable_value(source: Source, name: str, text: str) -> Value | None:
    """Return what the pods have for a variable of the script; None if it is left out, for the reason in LEFT_OUT."""
    if name in LEFT_OUT:
        return None
    if name == "ROLLOUT_REBALANCE_ENABLE" and source.commit == REBALANCE:
        return Value("1", "the tag is the last whose rebalance works, and the job shows it")
    return flag_value(source, name, text)


def variables(source: Source, facts: Facts) -> dict[str, str]:
    """Return the variables of head and workers."""
    known = {name: variable_value(source, name, text) for name, text in facts.environment.items()}
    script = {name: value.text for name, value in known.items() if value is not None}
    return dict(sorted((script | {name: value.text for name, value in added_variables(source, facts).items()}).items()))


def arguments(source: Source, facts: Facts) -> list[str]:
    """Return the command of the manifest."""
    flags = {key: flag_value(source, key, text) for key, text in facts.flags.items()} | added_flags(facts)
    return ["python3", "-m", facts.module, *(f"{key}={value.text}" for key, value in flags.items())]
