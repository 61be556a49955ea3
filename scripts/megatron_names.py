"""Write the table of names that Megatron and MindSpeed know (rljob_runtime/planning/megatron_names.py).

MindSpeed cannot be installed without Ascend's libraries, so the source of its arguments is read instead: every
`add_argument` of mindspeed/arguments.py and of its features, what its documentation sets through verl, Megatron's own
arguments (which MindSpeed's features read) and the fields of Megatron-Core's configuration classes. Run it when the
pins below change, with bare clones of both repositories:

    python -m scripts.megatron_names <MindSpeed.git> <Megatron-LM.git>
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).resolve().parents[1] / "runtime/src/rljob_runtime/planning/megatron_names.py"
MINDSPEED_ARGUMENTS = ("mindspeed/arguments.py", "mindspeed/features_manager/")
MINDSPEED_DOCUMENTS = "docs/"
THROUGH_VERL = re.compile(r"override_transformer_config\.(\w+)")
MEGATRON_ARGUMENTS = "megatron/training/arguments.py"
HEADER = '''"""Names that Megatron and MindSpeed read, by file. Written by scripts/megatron_names.py; do not edit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """A pinned commit of one repository."""

    repository: str
    branch: str
    commit: str
    names: Mapping[str, str]
    """File -> the names in it, separated by spaces."""


SOURCES = (
'''
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


def rows(pin: Pin, names: dict[str, list[str]]) -> Iterator[str]:
    """Return the lines of one source."""
    yield f'    Source("{pin.repository}", "{pin.branch}", "{pin.commit}", {{'
    for path, found in sorted(names.items()):
        lines = textwrap.wrap(" ".join(found), 98)
        yield f'        "{path}": ('
        yield from (f'            "{line} "' for line in lines[:-1])
        yield f'            "{lines[-1]}"'
        yield "        ),"
    yield "    }),"


def main() -> None:
    """Write the table."""
    mindspeed, megatron = (Path(word) for word in sys.argv[1:3])
    lines = [*rows(MINDSPEED, mindspeed_names(mindspeed)), *rows(MEGATRON, core_names(megatron))]
    TABLE.write_text(HEADER + "\n".join(lines) + "\n)\n")
    ruff = (sys.executable, "-m", "ruff", "format", "--quiet", str(TABLE))
    subprocess.run(ruff, check=True)
    print(f"wrote {TABLE}, {TABLE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
