"""Record the one command that a script of cann-recipes-train runs, in a bash where every command is a function.

It uses the bash of `upstream.verl_scripts.record`: restricted, in an empty folder, with record.sh in place of every
command, so that nothing is executed. Of the scripts that start Ray, only the lines that set variables are evaluated.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from upstream.verl_scripts.record import ENVIRONMENT, MARK, REDIRECTIONS, SECONDS

ASSIGNMENT = re.compile(r"^(?:export )?[A-Za-z_][A-Za-z0-9_]*=.*$", re.MULTILINE)
DERIVED = ("CURRENT_IP", "TRAIN_SCRIPT", "DEFAULT_TRAIN_SCRIPT", "ENV_SCRIPT")
"""Variables of the scripts that start Ray which only find the node's address and the script to run."""
MODULE = re.compile(r"verl\.trainer\.main_[a-z_]+")
OURS = frozenset({*ENVIRONMENT, "PWD", "OLDPWD", "SHLVL", "_"})

Recorded = tuple[str, dict[str, str], dict[str, str]]


def variables_of(text: str) -> str:
    """Return the lines of a script that set variables."""
    lines = (found.group() for found in ASSIGNMENT.finditer(text))
    return "\n".join(line for line in lines if line.removeprefix("export ").partition("=")[0] not in DERIVED)


def record(text: str, before: tuple[str, ...] = (), given: tuple[tuple[str, str], ...] = ()) -> Recorded:
    """Return module, flags and exported variables of the command that a script runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = str(Path(name).resolve())
        script = Path(folder) / "script.sh"
        script.write_text("\n".join([*map(variables_of, before), REDIRECTIONS.sub(" ", text)]))
        done = subprocess.run(
            ("/bin/bash", "-r", str(script)),
            cwd=folder,
            env=ENVIRONMENT | dict(given),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        output = done.stdout.decode().replace(folder, "$PWD")
    calls = [call for call in _calls(output) if MODULE.fullmatch(call[0])]
    if len(calls) != 1:
        raise ValueError(f"{len(calls)} commands that train, not 1: {done.stderr.decode()[-500:]}")
    module, flags, environment = calls[0]
    return module, flags, {key: value for key, value in environment.items() if key not in dict(given)}


def _calls(output: str) -> list[Recorded]:
    """Read what record.sh printed: between marks, the variables, then the arguments."""
    parts = output.split(f"{MARK}\0")
    calls = []
    for variables, arguments in zip(parts[1::3], parts[2::3], strict=False):
        words = arguments.split("\0")[:-1]
        pairs = (entry.partition("=") for entry in variables.split("\0")[:-1])
        flags = {key: value for key, _, value in (word.partition("=") for word in words[2:] if "=" in word)}
        calls.append((words[1], flags, {key: value for key, _, value in pairs if key not in OURS}))
    return calls
