"""Which fields a job may have for what trains it, judged on the merged manifest, because a recipe may set a field.

`violations` names every field that a command does not read; `readable` returns the manifest without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rljob.api.field_path import member
from rljob.api.launcher import LauncherType
from rljob.api.v1alpha1 import SHARED, VERL_ONLY, RLJobSpec
from rljob.core.spec.merge import Tree, leaves
from rljob.core.spec.recipes import JOB_SOURCE
from rljob.core.validation.violation import Check, Violation

INSTEAD = "put it into launcher.command.args"
OTHERS: Mapping[str, str] = {
    "checkpoint": "the command decides it; state it in launcher.command.args",
    "optimizations": "only verl has it; " + INSTEAD,
}


def is_command(document: Mapping[str, Any]) -> bool:
    """Report whether a manifest says that a command trains, whatever else it contains."""
    launcher = document.get("launcher")
    return isinstance(launcher, Mapping) and launcher.get("type") == LauncherType.COMMAND


def violations(tree: Tree) -> Iterator[Violation]:
    """Yield the fields that a command does not read, with the recipe that sets them."""
    if not isinstance(tree, dict) or not _names_command(tree):
        return
    for name in VERL_ONLY:
        if name in tree:
            yield _refused(name, tree[name], INSTEAD)
    for section, members in SHARED.items():
        found = tree.get(section)
        for name, value in found.items() if isinstance(found, dict) else ():
            if name not in members:
                yield _refused(member(section, name), value, OTHERS.get(section, INSTEAD))


def readable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest without the fields that `violations` names."""
    if not is_command(document):
        return dict(document)
    return {name: _part(name, section) for name, section in document.items() if name not in VERL_ONLY}


def _part(name: str, section: Any) -> Any:  # noqa: ANN401 - JSON of anybody
    if name not in SHARED or not isinstance(section, Mapping):
        return section
    return {field: value for field, value in section.items() if field in SHARED[name]}


def _names_command(tree: Mapping[str, Tree]) -> bool:
    return any(path == ("launcher", "type") and leaf.value == LauncherType.COMMAND for path, leaf in leaves(dict(tree)))


def _refused(field: str, tree: Tree, instead: str) -> Violation:
    sources = [leaf.source for _, leaf in leaves(tree) if leaf.source != JOB_SOURCE]
    fix = f"; {sources[0]} sets it, so name it in spec.unset as well" if sources else ""
    return Violation(f"spec.{field}", f"is not read with launcher.type Command: remove it; {instead}{fix}")


def _command_goes_with_its_type(spec: RLJobSpec) -> Iterator[Violation]:
    launcher = spec.launcher
    if launcher.type is LauncherType.COMMAND and launcher.command is None:
        yield Violation("spec.launcher.command", "is required with launcher.type Command; set at least args")
    if launcher.type is not LauncherType.COMMAND and launcher.command is not None:
        yield Violation("spec.launcher.command", f"requires launcher.type Command, not {launcher.type}; set it")


CHECKS: tuple[Check, ...] = (_command_goes_with_its_type,)
