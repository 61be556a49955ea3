"""What verl saves and loads: a restart must continue what was trained, or the job is refused.

verl saves and loads the model of a role only if `save_contents` and `load_contents` contain "model", and so on for
"optimizer" and "extra" (verl/utils/checkpoint/checkpoint_manager.py:54-57, 76-83 and 119-126, 0.9.1). By default it
loads what it saves (trainer/config/actor/actor.yaml:139, critic/critic.yaml:81), so a missing model is no error:
training continues at step N with the weights of model.path. The launcher checks the same in the composed configuration
(rljob_runtime/checkpoints/contents.py), and a seam test runs verl's own manager with every subset.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.algorithms import has_critic
from rljob.launchers.verl.effective import UNKNOWN, Effective, effective, given
from rljob.launchers.verl.rows import ACTOR
from rljob.launchers.verl.sizes import uses_megatron
from rljob.launchers.verl.trained import trained
from rljob.launchers.verl.values import OFF
from rljob_runtime.planning.on_policy import is_on

MODEL, OPTIMIZER, EXTRA = PARTS = ("model", "optimizer", "extra")
EXPORTED = "hf_model"
"""A copy for export, which is never loaded by FSDP."""
NEEDED = {"save": (MODEL, OPTIMIZER), "load": (MODEL,)}
"""To load the model without its optimizer is how Megatron changes its split (docs/training.md)."""
SAVE_ADAPTER_ONLY = f"{ACTOR}.checkpoint.save_lora_only"
CONSTANT = {"lr_scheduler_type": "constant", "lr_decay_style": "constant", "lr_warmup_steps_ratio": 0}
"""Settings of an optimizer with which its learning rate does not depend on the step; -1 warm-up steps mean none
(workers/engine/fsdp/transformer_impl.py:509-522, verl 0.9.1)."""


@dataclass(frozen=True)
class Role:
    """A model that is trained and saved."""

    key: str

    def contents(self, does: str) -> str:
        """Return the key of what is saved or loaded."""
        return f"{self.key}.checkpoint.{does}_contents"


def roles(spec: RLJobSpec) -> tuple[Role, ...]:
    """Return the models that the algorithm trains."""
    return (Role(ACTOR), Role("critic")) if has_critic(spec) else (Role(ACTOR),)


def parts(value: object) -> frozenset[str]:
    """Return the parts that verl reads from a setting: it asks `in`, also of text, and takes null for all."""
    if value is None or value is UNKNOWN:
        return frozenset(PARTS)
    return frozenset(part for part in PARTS if isinstance(value, (str, list)) and part in value)


def _saves_are_whole(spec: RLJobSpec) -> Iterator[Violation]:
    """An asynchronous save is marked before its shards are written: a crash in the first one leaves it incomplete."""
    reason = "an asynchronous checkpoint can look complete while it is not; remove it, or spec.checkpoint"
    seen = effective(spec)
    for role in roles(spec):
        setting = seen.setting(f"{role.key}.checkpoint.async_save")
        if spec.checkpoint is not None and setting is not None and setting.value not in OFF:
            yield Violation(setting.field, reason)


def _lists_are_whole(spec: RLJobSpec) -> Iterator[Violation]:
    """A key below a list changes one of its entries, which nobody can read off the manifest."""
    lists = [role.contents(does) for role in roles(spec) for does in NEEDED]
    for setting in given(spec) if spec.checkpoint is not None else ():
        found = next((key for key in lists if setting.key.startswith(f"{key}.")), None)
        if found is not None:
            yield Violation(setting.field, f"changes a part of {found}; override the whole list")


def _parts_exist(spec: RLJobSpec) -> Iterator[Violation]:
    """A part that verl does not know is left out in silence."""
    seen = effective(spec)
    for role in roles(spec) if spec.checkpoint is not None else ():
        for does in NEEDED:
            setting = seen.setting(role.contents(does))
            names = setting.value if setting is not None and isinstance(setting.value, list) else []
            if setting and (wrong := [str(name)[:32] for name in names if name not in (*PARTS, EXPORTED)]):
                listed = ", ".join((*PARTS, EXPORTED))
                yield Violation(setting.field, f"{wrong[0]!r} is no part of a checkpoint; use {listed}")


def _restarts_continue_the_training(spec: RLJobSpec) -> Iterator[Violation]:
    """A restart from a checkpoint without the model trains on at its step with untrained weights, and may succeed."""
    if spec.checkpoint is None:
        return
    seen = effective(spec)
    for role in roles(spec):
        for does, needed in NEEDED.items():
            key = role.contents(does)
            setting = seen.setting(key)
            lacking = " and ".join(part for part in needed if part not in parts(seen.value(key)))
            # By default verl loads what it saves, which is then the setting to correct.
            if lacking and setting is not None:
                yield Violation(
                    setting.field,
                    f"{does}s checkpoints without {lacking}, so a restart would not continue what was trained; add "
                    f"{lacking}, or remove the override or spec.checkpoint",
                )


def _restarts_find_what_they_load(spec: RLJobSpec) -> Iterator[Violation]:
    """Each part that verl loads has a file of its own, and every restart would fail where it was not saved."""
    seen = effective(spec)
    for role in roles(spec) if spec.checkpoint is not None else ():
        loads = seen.setting(role.contents("load"))
        saved = parts(seen.value(role.contents("save")))
        lacking = " and ".join(part for part in PARTS if loads and part in parts(loads.value) and part not in saved)
        if loads is not None and lacking and set(NEEDED["save"]) <= saved:
            yield Violation(
                loads.field,
                f"loads {lacking}, which {role.contents('save')} does not save, so every restart would fail; make both "
                "lists the same",
            )


def _restarts_keep_the_schedule(spec: RLJobSpec) -> Iterator[Violation]:
    """FSDP keeps the place in the learning-rate schedule in `extra` (fsdp_checkpoint_manager.py:222, verl 0.9.1)."""
    seen = effective(spec)
    for role in roles(spec) if spec.checkpoint is not None and not seen.megatron else ():
        saved, loaded = (parts(seen.value(role.contents(does))) for does in NEEDED)
        key = role.contents("save" if EXTRA not in saved else "load")
        if EXTRA not in saved & loaded and has_schedule(seen, role.key):
            yield Violation(
                seen.field(key),
                f"lacks extra, which has the place in the learning-rate schedule of {role.key}.optim; a restart would "
                "begin the schedule again; add extra, or use a constant rate without warm-up",
            )


def _restarts_begin_a_new_optimizer(spec: RLJobSpec) -> Iterator[Violation]:
    """Loading the weights alone serves one restart, with another split (docs/training.md); it repeats at each one."""
    seen = effective(spec)
    trains = spec.checkpoint is not None and spec.trainer.mode != "Evaluate"
    for role in roles(spec) if trains else ():
        loads = seen.setting(role.contents("load"))
        if loads is not None and MODEL in parts(loads.value) and OPTIMIZER not in parts(loads.value):
            yield Violation(
                loads.field,
                f"lacks optimizer, so every restart begins {role.key} with a new optimizer; remove it after the next "
                "save",
            )


def _evaluations_score_what_is_trained(spec: RLJobSpec) -> Iterator[Violation]:
    """An evaluation converts a checkpoint into a model, with its adapter merged, and passes the job's overrides on."""
    what = trained(spec) if spec.evaluation is not None else None
    if what is None or what.field is None:
        return
    if (reason := _not_convertible(spec)) is not None:
        yield Violation("spec.evaluation", f"{reason}; remove it and use spec.trainer.evaluateEverySteps")
    elif what.by_override:
        yield Violation(
            "spec.evaluation",
            f"would add the adapter of {what.field} to a model in which it is merged; use spec.trainer.lora instead of "
            "the override",
        )


def _exports_are_whole(spec: RLJobSpec) -> Iterator[Violation]:
    reason = _not_convertible(spec) if spec.export is not None else None
    if reason is not None:
        yield Violation("spec.export", f"{reason}; each export will fail and name the folder with the adapter")


def _not_convertible(spec: RLJobSpec) -> str | None:
    """Return why a checkpoint cannot become a model: it has an adapter without its base."""
    what, only = trained(spec), effective(spec).setting(SAVE_ADAPTER_ONLY)
    if what.field is None:
        return None
    if uses_megatron(spec):
        # utils/checkpoint/megatron_checkpoint_manager.py:1009
        return f"{spec.trainer.backend} saves only the adapter of {what.field}, without its base model"
    return f"{only.field} saves only the adapter" if only is not None and is_on(only.value) else None


def has_schedule(seen: Effective, role: str) -> bool:
    """Report whether the learning rate of a role depends on the step."""
    steps = seen.value(f"{role}.optim.lr_warmup_steps")
    if isinstance(steps, (int, float)) and steps > 0:
        return True
    values = ((seen.value(f"{role}.optim.{name}"), constant) for name, constant in CONSTANT.items())
    return any(value not in (constant, None, UNKNOWN) for value, constant in values)


CHECKS: tuple[Check, ...] = (
    _saves_are_whole,
    _lists_are_whole,
    _parts_exist,
    _restarts_continue_the_training,
    _restarts_find_what_they_load,
    _restarts_keep_the_schedule,
    _evaluations_score_what_is_trained,
)
WARNINGS: tuple[Check, ...] = (_restarts_begin_a_new_optimizer, _exports_are_whole)
