"""What a manifest sets differently from its script, each with the reason. Pure; the house test uses it."""

from __future__ import annotations

from dataclasses import dataclass

from scripts.command_recipes.sources import Source
from scripts.command_recipes.table import Facts

TREE = "/workspace/cann-recipes-train"
"""The repository in the image that the site builds, with frameworks copied in and patched."""
SHARED = "/shared"
KUBERAY = "KubeRay starts Ray and gives the address to its processes"
VOLUME = "on the job's volume, which every pod mounts"
ABSOLUTE = "absolute, because Ray's processes do not start in the recipe's folder"
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
    "ASCEND_RT_VISIBLE_DEVICES": "the device plug-in gives the pod its devices",
    "ASCEND_HOME_PATH": "the image's set_env.sh",
    "ASCEND_TOOLKIT_HOME": "the image's set_env.sh",
    "ASCEND_CUSTOM_OPP_PATH": "a prefix of set_env.sh's value, which a pod's variable would replace: the image sets it",
    "LD_LIBRARY_PATH": "a prefix of set_env.sh's value, which a pod's variable would replace: the image sets it",
    "PYTHONPATH": "the image's PYTHONPATH has the recipe's folder",
    "DIST_CKPT_PATH": "the flag has the path",
}
FILES = (".train_files", ".val_files", "model.path", "dist_checkpointing_path", "eagle3_draft_model")


@dataclass(frozen=True)
class Value:
    """The value in the manifest, and why it differs from the script's; no reason if it does not."""

    text: str
    reason: str = ""


def flag_value(source: Source, key: str, text: str) -> Value:
    """Return what the manifest passes for a flag of the script."""
    tree = f"{TREE}/{source.started_in}"
    if text.endswith("your_sharded_weights"):
        model = "DeepSeek-V3" if source.name.startswith("deepseek") else "Qwen3-235B-A22B"
        return Value(f"{SHARED}/{model}-sharded", f"a placeholder in the script; {VOLUME}")
    if key.endswith(FILES):
        parts = text.strip("['/]").split("/")
        name = "/".join(parts[-2:] if "parquet" in text or "huggingface" in text else parts[-1:])
        path = f"{SHARED}/{name.replace('to/', '')}"
        return Value(f"['{path}']" if text.startswith("[") else path, VOLUME)
    if key == "trainer.default_local_dir":
        return Value("{checkpoints}", "checkpoint.path, which the launcher divides by attempts")
    if key == "trainer.experiment_name" and source.name == "tool-agent-4b":
        return Value("qwen3-4b_dapo", "the script appends the date; the job's name tells runs apart")
    if ":8080/" in text:
        return Value(text.replace(":8080/", ":9080/"), "port 8080 of a pod has Ray's metrics, so the sandbox uses 9080")
    if text.startswith(("$PWD/outputs", "outputs/")):
        return Value(f"{SHARED}/outputs/{text.rsplit('/', 1)[-1]}", VOLUME)
    return _program_value(tree, key, text)


def _program_value(tree: str, key: str, text: str) -> Value:
    """Return the value of a flag that may name a file of the recipe."""
    if text.startswith("$PWD"):
        return Value(text.replace("$PWD", tree), ABSOLUTE)
    if key.endswith(("custom_reward_function.path", "custom_cls.path", "tool_config_path")):
        return Value(f"{tree}/{text.removeprefix('./')}", ABSOLUTE)
    return Value(text)


def variable_value(source: Source, name: str, text: str) -> Value | None:
    """Return what the pods have for a variable of the script; None if it is left out, for the reason in LEFT_OUT."""
    if name in LEFT_OUT:
        return None
    return flag_value(source, name, text)


def arguments(source: Source, facts: Facts) -> list[str]:
    """Return the command of the manifest."""
    flags = [f"{key}={flag_value(source, key, text).text}" for key, text in facts.flags.items()]
    return ["python3", "-m", facts.module, *flags]
