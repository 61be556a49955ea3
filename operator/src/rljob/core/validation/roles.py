"""The roles of the worker groups: who trains, who generates and who judges, and that each finds its model.

Called by `validate`. `RLJobSpec.trainer_group` and `rollout_group` return the first group where a role is missing, so
that other checks have a group to look at.
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.training import SEPARATE_ASYNC, Judge
from rljob.api.v1alpha1 import POLICY_ROLES, RLJobSpec, Role, WorkerGroup
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
    if _judge_of(spec) is not None:
        return  # See `_a_judge_has_its_group`.
    mode = spec.trainer.mode if spec.reads("trainer.mode") else None
    found = sorted(sorted(set(group.roles)) for group in spec.worker_groups if Role.JUDGE not in group.roles)
    apart = found == [[Role.ROLLOUT], [Role.TRAINER]]
    listed = "; ".join(map(_shown, spec.worker_groups))
    if mode == SEPARATE_ASYNC:
        if not apart:
            yield Violation(
                GROUPS,
                f"trainer.mode {mode} needs one group with role Trainer and one with role Rollout, but there are "
                f"{listed}; set roles: [Trainer] in one group and roles: [Rollout] in another one",
            )
    elif found != [sorted(POLICY_ROLES)]:
        who = f"launcher.type {spec.launcher.type}" if mode is None else f"trainer.mode {mode}"
        other = "" if mode is None else f", or set trainer.mode to {SEPARATE_ASYNC}"
        yield Violation(
            GROUPS,
            f"{who} needs one group with the roles Trainer and Rollout, but there are {listed}; keep one group without "
            f"roles{other}",
        )


def _a_judge_has_its_group(spec: RLJobSpec) -> Iterator[Violation]:
    """The judge is served on devices of its own, and nothing else runs there."""
    mode = spec.trainer.mode if spec.reads("trainer.mode") else None
    if _judge_of(spec) is None:
        can = mode is not None and mode != SEPARATE_ASYNC
        way = "set reward.judge, or remove the group" if can else "remove the group"
        for path, group in fields.groups(spec):
            if set(group.roles) == {Role.JUDGE}:
                yield Violation(f"{path}.roles", f"Judge, but the job has no reward.judge; {way}")
        return
    if mode == SEPARATE_ASYNC:
        yield Violation(
            "spec.reward.judge",
            f"is not supported with trainer.mode {SEPARATE_ASYNC}, whose trainer and rollout take both worker groups; "
            "set trainer.mode to ColocateAsync, or let the reward function ask a judge outside of the job",
        )
        return
    kinds = sorted(sorted(set(group.roles)) for group in spec.worker_groups)
    if kinds != sorted([[Role.JUDGE], sorted(POLICY_ROLES)]):
        listed = "; ".join(map(_shown, spec.worker_groups))
        yield Violation(
            GROUPS,
            "reward.judge needs two groups, one with roles: [Judge] and one without roles, which trains and generates, "
            f"but there are {listed}; set them so",
        )


def _judge_of(spec: RLJobSpec) -> Judge | None:
    return spec.reward.judge if spec.reads("reward") else None


def _shown(group: WorkerGroup) -> str:
    return f"{group.name}: {', '.join(group.roles)}"


def _groups_have_the_same_model(spec: RLJobSpec) -> Iterator[Violation]:
    """The engine reads tokenizer and configuration of the model, and its first weights, on its own node."""
    if spec.trainer_group is not spec.rollout_group:
        yield from _in_both(spec, "spec.model.path", spec.model.path, spec.rollout_group)


def _workers_have_the_judges_tokenizer(spec: RLJobSpec) -> Iterator[Violation]:
    """The processes that call the reward function load it, on nodes that train (verl's reward_loop.py:126-129)."""
    judge = _judge_of(spec)
    if judge is not None and spec.judge_group is not None:
        yield from _in_both(spec, "spec.reward.judge.path", judge.path, spec.judge_group)


def _in_both(spec: RLJobSpec, field: str, path: str, other: WorkerGroup) -> Iterator[Violation]:
    """Report a path that only one of the trainer's workers and another group has on a volume."""
    here, there = (f"spec.{fields.place_of(spec, group)}.template" for group in (spec.trainer_group, other))
    trainer, found = (mount_of(spec, path, place) for place in (here, there))
    if (trainer is None) != (found is None):
        has, lacks = (here, there) if found is None else (there, here)
        yield Violation(
            field, f"{path} is on volume {trainer or found} of {has} and on none of {lacks}; mount the volume in both"
        )


CHECKS: tuple[Check, ...] = (
    _roles_are_named_once,
    _groups_suit_the_mode,
    _a_judge_has_its_group,
    _groups_have_the_same_model,
    _workers_have_the_judges_tokenizer,
)
