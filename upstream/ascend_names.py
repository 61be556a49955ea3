"""Write the table of names in released vllm-ascend and MindSpeed (rljob_runtime/planning/tables/ascend.json).

Neither can be imported without Ascend's libraries, so the wheel of vllm-ascend and a bare clone of MindSpeed are read:
options of `additional_config`, environment variables, methods of speculative decoding, entry points, requirements, and
the classes and functions of selected files. Run it when a pin changes:

    pip download --no-deps --platform manylinux_2_34_aarch64 --python-version 3.11 --only-binary :all: \
        -d <folder> vllm-ascend==0.23.0
    python -m upstream.ascend_names <folder>/vllm_ascend-*.whl <MindSpeed.git>
"""

from __future__ import annotations

import ast
import configparser
import email
import hashlib
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from upstream.megatron_names import MINDSPEED, git
from upstream.name_tables import write_table

PACKAGE = "vllm_ascend/"
OPTIONS_VARIABLE = "additional_config"
METHODS_FILE = "vllm_ascend/spec_decode/__init__.py"
VARIABLES_FILE = "vllm_ascend/envs.py"
SYMBOL_FILES = (
    "vllm_ascend/ascend_config.py",
    "vllm_ascend/attention/mla_v1.py",
    "vllm_ascend/distributed/parallel_state.py",
    "vllm_ascend/worker/worker.py",
)
"""Files of vllm-ascend that code and pages of this project rely on."""
MINDSPEED_ADAPTOR = "mindspeed/megatron_adaptor.py"
MINDSPEED_BUILDERS = "mindspeed/op_builder/"


def options(tree: ast.AST) -> Iterator[str]:
    """Return the keys that a module reads from `additional_config`: by get, index, `in`, or through a helper."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            holder = node.func.value if isinstance(node.func, ast.Attribute) else None
            if holder is not None and _is_options(holder) and node.args:
                yield from _texts(node.args[:1])
            elif any(_is_options(argument) for argument in node.args):
                yield from _texts(node.args[1:2])
        elif isinstance(node, ast.Subscript) and _is_options(node.value):
            yield from _texts([node.slice])
        elif isinstance(node, ast.Compare) and any(_is_options(right) for right in node.comparators):
            yield from _texts([node.left])


def _is_options(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name == OPTIONS_VARIABLE


def _texts(nodes: list[ast.expr]) -> Iterator[str]:
    yield from (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def variables(tree: ast.Module) -> Iterator[str]:
    """Return the keys of the table of environment variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            yield from _texts([key for key in node.keys if key is not None])


def methods(tree: ast.Module) -> Iterator[str]:
    """Return the strings that `method` is compared with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == "method":
            for right in node.comparators:
                yield from _texts(list(right.elts) if isinstance(right, ast.Tuple) else [right])


def symbols(tree: ast.Module) -> Iterator[str]:
    """Return the classes, functions and methods of a module."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef))


def read_wheel(path: Path) -> dict[str, object]:
    """Return everything in the table that comes from vllm-ascend's wheel."""
    wheel = zipfile.ZipFile(path)
    trees = {
        name: ast.parse(wheel.read(name))
        for name in wheel.namelist()
        if name.startswith(PACKAGE) and name.endswith(".py")
    }
    info = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(wheel.read(info))
    points = configparser.ConfigParser(delimiters=("=",))
    points.read_string(wheel.read(info.replace("METADATA", "entry_points.txt")).decode())
    found = names_of(trees)
    return {
        "VLLM_ASCEND_VERSION": metadata["Version"],
        "VLLM_ASCEND_WHEEL": path.name,
        "VLLM_ASCEND_SHA256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "VLLM_ASCEND_DEVICE": _build_device(trees),
        **{name: names for name, names in found.items() if name != "VLLM_ASCEND_SYMBOLS"},
        "VLLM_ASCEND_ENTRY_POINTS": {group: sorted(points[group]) for group in sorted(points.sections())},
        "VLLM_ASCEND_REQUIRES": sorted(metadata.get_all("Requires-Dist") or []),
        "VLLM_ASCEND_SYMBOLS": found["VLLM_ASCEND_SYMBOLS"],
    }


def names_of(trees: Mapping[str, ast.Module]) -> dict[str, list[str] | dict[str, list[str]]]:
    """Return the names in the modules of a release."""
    return {
        "VLLM_ASCEND_OPTIONS": sorted({name for tree in trees.values() for name in options(tree)}),
        "VLLM_ASCEND_VARIABLES": sorted(set(variables(trees[VARIABLES_FILE]))),
        "VLLM_ASCEND_METHODS": sorted(set(methods(trees[METHODS_FILE]))),
        "VLLM_ASCEND_SYMBOLS": {name: sorted(symbols(trees[name])) for name in SYMBOL_FILES},
    }


def _build_device(trees: Mapping[str, ast.Module]) -> str:
    """Return the hardware generation that the wheel's operators were compiled for."""
    for node in trees["vllm_ascend/_build_info.py"].body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            return str(node.value.value)
    raise SystemExit("vllm_ascend/_build_info.py does not state a device; check how this release is built")


def read_mindspeed(clone: Path) -> dict[str, object]:
    """Return everything in the table that comes from MindSpeed."""
    paths = git(clone, "ls-tree", "-r", "--name-only", MINDSPEED.commit, MINDSPEED_BUILDERS, MINDSPEED_ADAPTOR)
    found = {
        path: sorted(symbols(ast.parse(git(clone, "show", f"{MINDSPEED.commit}:{path}"))))
        for path in paths.splitlines()
        if path.endswith(".py")
    }
    requires = git(clone, "show", f"{MINDSPEED.commit}:requirements.txt").split()
    return {
        "MINDSPEED_COMMIT": MINDSPEED.commit,
        "MINDSPEED_SYMBOLS": {path: names for path, names in found.items() if names},
        "MINDSPEED_REQUIRES": sorted(requires),
    }


def main() -> None:
    """Write the table."""
    wheel, clone = (Path(word) for word in sys.argv[1:3])
    write_table("ascend.json", read_wheel(wheel) | read_mindspeed(clone))


if __name__ == "__main__":
    main()
