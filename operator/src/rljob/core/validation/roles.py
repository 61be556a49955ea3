"""The roles of the worker groups: who trains and who generates, and that both find the same model.

Called by `validate`. `RLJobSpec.trainer_group` and `rollout_group` return the first group where a role is missing, so
that other checks have a group to look at.
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.training import SEPARATE_ASYNC
from rljob.api.v1alpha1 import RLJobSpec, Role, WorkerGroup
from rljob.core.validation import fields
from rljob.core.validation.pods import mount_of
from rljob.core.validation.violation import Check, Violation

GROUPS = "spec.workerGroups"


def _roles_are_named_once(spec: RLJobSpec) -> Iterator[Violation]:
    for path, group in fields.groups(spec):
        for role in Role:
            if group.roles.count(role) > 1:
                yield Violation(f"{path}.roles", f"{role} is listed twice; remove one")


def _groups_suit_the_mode(spec: RLJobSpec) -> Iterator[Violation]:
    """A role needs exactly one group, and groups of different roles need a trainer that keeps them apart."""
    found = sorted(sorted(set(group.roles)) for group in spec.worker_groups)
    apart = found == [[Role.ROLLOUT], [Role.TRAINER]]
    listed = "; ".join(map(_shown, spec.worker_groups))
    mode = spec.trainer.mode if spec.reads("trainer.mode") else None
    if mode == SEPARATE_ASYNC:
        if not apart:
            yield Violation(
                GROUPS,
                f"trainer.mode {mode} needs one group with role Trainer and one with role Rollout, but there are "
                f"{listed}; set roles: [Trainer] in one group and roles: [Rollout] in another one",
            )
    elif found != [sorted(Role)]:
        who = f"launcher.type {spec.launcher.type}" if mode is None else f"trainer.mode {mode}"
        other = "" if mode is None else f", or set trainer.mode to {SEPARATE_ASYNC}"
        yield Violation(
            GROUPS,
            f"{who} needs one group with the roles Trainer and Rollout, but there are {listed}; keep one group without "
            f"roles{other}",
        )


def _shown(group: WorkerGroup) -> str:
    return f"{group.name}: {', '.join(group.roles)}"


def _groups_have_the_same_model(spec: RLJobSpec) -> Iterator[Violation]:
    """The engine reads tokenizer and configuration of the model, and its first weights, on its own node."""
    if spec.trainer_group is spec.rollout_group:
        return
    here, there = (
        f"spec.{fields.place_of(spec, group)}.template" for group in (spec.trainer_group, spec.rollout_group)
    )
    trainer, rollout = (mount_of(spec, spec.model.path, place) for place in (here, there))
    if (trainer is None) != (rollout is None):
        has, lacks = (here, there) if rollout is None else (there, here)
        yield Violation(
            "spec.model.path",
            f"{spec.model.path} is on volume {trainer or rollout} of {has} and on none of {lacks}; mount the volume in "
            "both",
        )


CHECKS: tuple[Check, ...] = (_roles_are_named_once, _groups_suit_the_mode, _groups_have_the_same_model)
