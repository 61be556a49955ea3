"""Write the table of names that Megatron and MindSpeed know (rljob_runtime/planning/tables/megatron.json).

MindSpeed cannot be installed without Ascend's libraries, so the source of its arguments is read instead: every
`add_argument` of mindspeed/arguments.py and of its features, what its documentation sets through verl, Megatron's own
arguments (which MindSpeed's features read) and the fields of Megatron-Core's configuration classes. Run it when the
pins below change, with bare clones of both repositories:

    python -m upstream.megatron_names <MindSpeed.git> <Megatron-LM.git>
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from upstream.name_tables import write_table

MINDSPEED_ARGUMENTS = ("mindspeed/arguments.py", "mindspeed/features_manager/")
MINDSPEED_DOCUMENTS = "docs/"
THROUGH_VERL = re.compile(r"override_transformer_config\.(\w+)")
MEGATRON_ARGUMENTS = "megatron/training/arguments.py"
CORE_CLASSES = {
    "megatron/core/model_parallel_config.py": ("ModelParallelConfig",),
    "megatron/core/transformer/transformer_config.py": ("TransformerConfig", "MLATransformerConfig"),
}


@dataclass(frozen=True)
class Pin:
    """The commit to read: verl 0.9.1's Ascend guide names the branch core_r0.16.0 of both."""

    repository: str
    branch: str
    commit: str


MINDSPEED = Pin("Ascend/MindSpeed", "core_r0.16.0", "e4772499f7eb9fa9a68919dd1eaddef00e915b2d")
MEGATRON = Pin("NVIDIA/Megatron-LM", "core_r0.16.0", "ddc0d6774783b032ddceacc5714e653651daecb9")


def git(clone: Path, *words: str) -> str:
    """Run git in a bare clone."""
    return subprocess.run(("git", "-C", str(clone), *words), check=True, capture_output=True, text=True).stdout


def arguments(source: str) -> Iterator[str]:
    """Return the destination of every `add_argument` in a file: `dest`, otherwise the first long option."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            named = [w.value.value for w in node.keywords if w.arg == "dest" and isinstance(w.value, ast.Constant)]
            options = [str(a.value) for a in node.args if isinstance(a, ast.Constant)]
            long = [option for option in options if option.startswith("--")]
            if named or long:
                yield str(named[0]) if named else long[0].removeprefix("--").replace("-", "_")


def fields(source: str, classes: tuple[str, ...]) -> Iterator[str]:
    """Return the fields of some dataclasses of a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name in classes:
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield line.target.id


def mindspeed_names(clone: Path) -> dict[str, list[str]]:
    """Return MindSpeed's arguments by file."""
    paths = git(clone, "ls-tree", "-r", "--name-only", MINDSPEED.commit).splitlines()
    found = {}
    for path in paths:
        if path.endswith(".py") and path.startswith(MINDSPEED_ARGUMENTS):
            found[path] = sorted(set(arguments(git(clone, "show", f"{MINDSPEED.commit}:{path}"))))
        elif path.endswith(".md") and path.startswith(MINDSPEED_DOCUMENTS):
            found[path] = sorted(set(THROUGH_VERL.findall(git(clone, "show", f"{MINDSPEED.commit}:{path}"))))
    return {path: names for path, names in found.items() if names}


def core_names(clone: Path) -> dict[str, list[str]]:
    """Return Megatron's arguments and Megatron-Core's configuration fields by file."""
    source = git(clone, "show", f"{MEGATRON.commit}:{MEGATRON_ARGUMENTS}")
    found = {MEGATRON_ARGUMENTS: sorted(set(arguments(source)))}
    for path, classes in CORE_CLASSES.items():
        found[path] = sorted(set(fields(git(clone, "show", f"{MEGATRON.commit}:{path}"), classes)))
    return found


def main() -> None:
    """Write the table."""
    mindspeed, megatron = (Path(word) for word in sys.argv[1:3])
    found = ((MINDSPEED, mindspeed_names(mindspeed)), (MEGATRON, core_names(megatron)))
    write_table(
        "megatron.json", {"sources": [{**asdict(pin), "names": dict(sorted(names.items()))} for pin, names in found]}
    )


if __name__ == "__main__":
    main()
