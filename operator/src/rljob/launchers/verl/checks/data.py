"""data.train and data.validation: the formats that verl reads. reward: what goes together.

Source: verl 0.9.1, verl/utils/dataset/rl_dataset.py:173-178, reads a file by the end of its name and raises for any
other, after the processes of the run have started. rljob_runtime.input_checks.data_files checks what is in the files.
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.training import Reward
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.effective import effective
from rljob.launchers.verl.values import whole

SUFFIXES = (".parquet", ".json", ".jsonl")
"""verl compares them as they are, with their case."""
MOST_PROMPTS = "data.train_max_samples"
CUSTOM_CLASS = "data.custom_cls.path"
"""File of a dataset class of the user's, which reads the files itself (rl_dataset.py:582)."""


def _files_have_a_format(spec: RLJobSpec) -> Iterator[Violation]:
    """The suffix alone decides how verl reads a file."""
    if effective(spec).value(CUSTOM_CLASS) is not None:
        return
    for field, paths in (("train", spec.data.train), ("validation", spec.data.validation)):
        for index, path in enumerate(paths):
            if not path.endswith(SUFFIXES):
                yield Violation(
                    f"spec.data.{field}[{index}]",
                    f"{path} ends with none of {', '.join(SUFFIXES)}, and verl 0.9.1 reads no other files; convert it, "
                    f"or set verl.overrides[{CUSTOM_CLASS}] to a dataset class that reads it",
                )


def _functions_of_the_runtime_have_one_name(spec: RLJobSpec) -> Iterator[Violation]:
    default = Reward.model_fields["function"].default
    if spec.reward.builtin is not None and spec.reward.function != default:
        yield Violation(
            "spec.reward.function",
            f"{spec.reward.function} is a function of reward.path, and builtin {spec.reward.builtin} has one function "
            "only; remove it",
        )


def _prompts_fill_a_batch(spec: RLJobSpec) -> Iterator[Violation]:
    """An incomplete batch is dropped, so no step is left (verl/trainer/ppo/v1/trainer_base.py:716,747)."""
    setting, batch = effective(spec).setting(MOST_PROMPTS), spec.trainer.global_batch_size
    most = whole(setting.value) if setting is not None else None
    if setting is not None and most is not None and 0 <= most < batch:
        yield Violation(
            setting.field,
            f"{most} prompts do not fill a batch of trainer.globalBatchSize {batch}; raise it, or remove it for all",
        )


CHECKS: tuple[Check, ...] = (_files_have_a_format, _prompts_fill_a_batch, _functions_of_the_runtime_have_one_name)
