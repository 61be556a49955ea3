"""Record what a script passes to verl's trainer, by running it in a bash where every command is a function.

The scripts compute their flags with arrays, defaults, arithmetic and branches, so bash itself evaluates them. It runs
restricted (`bash -r`: no redirection, no path in a command's name), in an empty folder, with a PATH without programs,
and record.sh replaces every command: nothing is executed, and the trainer's arguments are printed. Only
`upstream.verl_scripts` calls it.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

STUBS = Path(__file__).with_name("record.sh")
TRAINER = "verl.trainer.main_ppo"
MARK = "@recorded@"
REDIRECTIONS = re.compile(r"[0-9]?>&[0-9]|(?:&|[0-9])?>>?\s*(?:\"[^\"]*\"|[^\s;|&)]+)")
"""Restricted bash refuses them; what they send elsewhere does not matter here."""
HOME = "/shared"
"""The scripts keep models and data below $HOME; an RLJob keeps them on a volume."""
ENVIRONMENT = {"HOME": HOME, "PATH": "/nonexistent", "RLJOB_MARK": MARK, "BASH_ENV": str(STUBS)}
REQUIRED = {
    # verl, .github/workflows/e2e_ascend.yml:135.
    "run_qwen3_30b_grpo_mindspeed.sh": {
        "USE_DIST_CKPT": "True",
        "USE_DUMMY_MODEL": "True",
        "DUMMY_MODEL_CONFIG_PATH": "qwen3moe_minimal.json",
        "DUMMY_MODEL_PATH": f"{HOME}/dist_ckpt/qwen3_30b_grpo_mindspeed",
    },
    "run_qwen3_vl_30b_a3b_fsdp.sh": {"INFER_BACKEND": "vllm"},
}
"""Variables that a script requires from its caller, as verl's own workflows set them."""
SECONDS = 30.0


@dataclass(frozen=True)
class Call:
    """One call of verl's trainer."""

    arguments: tuple[str, ...]
    """What follows the module's name."""
    environment: dict[str, str]
    """Variables that the script exports."""


def record(name: str, text: str) -> tuple[Call, ...]:
    """Return the calls of verl's trainer that a script makes on an NPU."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / name
        script.write_text(REDIRECTIONS.sub(" ", text))
        try:
            done = subprocess.run(
                ("/bin/bash", "-r", str(script)),
                cwd=folder,
                env=ENVIRONMENT | REQUIRED.get(name, {}),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{name}: still running after {SECONDS} s; it waits for something") from error
    return tuple(_calls(done.stdout.decode()))


def _calls(output: str) -> list[Call]:
    """Read what record.sh printed: between marks, the variables, then the arguments."""
    parts = output.split(f"{MARK}\0")
    calls = []
    for variables, arguments in zip(parts[1::3], parts[2::3], strict=False):
        words = arguments.split("\0")[:-1]
        if words[:2] == ["-m", TRAINER]:
            pairs = (entry.partition("=") for entry in variables.split("\0")[:-1])
            ours = {*ENVIRONMENT, *(given for one in REQUIRED.values() for given in one), "PWD", "OLDPWD", "SHLVL", "_"}
            exported = {key: value for key, _, value in pairs if key not in ours}
            calls.append(Call(tuple(words[2:]), exported))
    return calls
