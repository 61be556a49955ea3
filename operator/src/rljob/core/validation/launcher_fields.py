"""Which fields a job may have for what trains it, judged on the merged manifest, because a recipe may set a field.

`violations` names every field that the launcher does not read; `readable` returns the manifest without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rljob.api.field_path import member
from rljob.api.launcher import READS, LauncherType, Reads
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.nearest import nearest_field
from rljob.core.spec.merge import Tree, leaves, shape_of
from rljob.core.spec.recipes import JOB_SOURCE
from rljob.core.validation.violation import Check, Violation


def reads_of(document: Mapping[str, Any]) -> Reads:
    """Return what the launcher reads that a manifest names, whatever else it contains; by default that is verl."""
    launcher = document.get("launcher")
    return _reads(launcher.get("type") if isinstance(launcher, Mapping) else None)


def _reads(name: object) -> Reads:
    known = name if isinstance(name, str) and name in READS else LauncherType.VERL
    return READS[known]


def violations(tree: Tree) -> Iterator[Violation]:
    """Yield the fields that the launcher does not read, with the recipe that sets them."""
    if not isinstance(tree, dict):
        return
    named = next((leaf.value for path, leaf in leaves(dict(tree)) if path == ("launcher", "type")), None)
    reads = _reads(named)
    for name in reads.unread:
        if name in tree:
            yield _refused(name, tree[name], named, reads.instead)
    for section, members in reads.members.items():
        found, known = tree.get(section), shape_of(RLJobSpec).member(section).members
        for name, value in found.items() if isinstance(found, dict) else ():
            if name not in known:
                near = nearest_field(name, sorted(members))
                fix = f"did you mean {near}?" if near else "see `kubectl explain rljob.spec`"
                yield Violation(f"spec.{member(section, name)}", f"is not a field; {fix}")
            elif name not in members:
                yield _refused(member(section, name), value, named, reads.instead_of.get(section, reads.instead))


def readable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest without the fields that `violations` names."""
    return reads_of(document).part_of(document)


def _refused(field: str, tree: Tree, launcher: object, instead: str) -> Violation:
    sources = [leaf.source for _, leaf in leaves(tree) if leaf.source != JOB_SOURCE]
    fix = f"; {sources[0]} sets it, so name it in spec.unset as well" if sources else ""
    return Violation(f"spec.{field}", f"is not read with launcher.type {launcher}: remove it; {instead}{fix}")


def _command_goes_with_its_type(spec: RLJobSpec) -> Iterator[Violation]:
    launcher = spec.launcher
    if launcher.type is LauncherType.COMMAND and launcher.command is None:
        yield Violation("spec.launcher.command", "is required with launcher.type Command; set at least args")
    if launcher.type is not LauncherType.COMMAND and launcher.command is not None:
        yield Violation("spec.launcher.command", f"requires launcher.type Command, not {launcher.type}; set it")


CHECKS: tuple[Check, ...] = (_command_goes_with_its_type,)
