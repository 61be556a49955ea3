"""data.train and data.validation: the formats that verl reads.

Source: verl 0.9.1, verl/utils/dataset/rl_dataset.py:173-178, reads a file by the end of its name and raises for any
other, after the processes of the run have started. rljob_runtime.input_checks.data_files checks what is in the files.
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Check, Violation

SUFFIXES = (".parquet", ".json", ".jsonl")
"""verl compares them as they are, with their case."""
CUSTOM_CLASS = "data.custom_cls"
"""A dataset class of the user's, which reads the files itself (rl_dataset.py:582)."""


def _files_have_a_format(spec: RLJobSpec) -> Iterator[Violation]:
    """The suffix alone tells verl how to read a file."""
    if _has_custom_class(spec):
        return
    for field, paths in (("train", spec.data.train), ("validation", spec.data.validation)):
        for index, path in enumerate(paths):
            if not path.endswith(SUFFIXES):
                yield Violation(
                    f"spec.data.{field}[{index}]",
                    f"{path} ends with none of {', '.join(SUFFIXES)}, and verl 0.9.1 reads no other files; convert it, "
                    f"or set verl.overrides[{CUSTOM_CLASS}.path] to a dataset class that reads it",
                )


def _has_custom_class(spec: RLJobSpec) -> bool:
    """Report whether an override names the file of a dataset class, with its full key or within a map."""
    for key, value in spec.verl.overrides.items():
        plain = key.lstrip("+")
        if plain == CUSTOM_CLASS and isinstance(value, dict) and value.get("path") is not None:
            return True
        if plain == f"{CUSTOM_CLASS}.path" and value is not None:
            return True
    return False


CHECKS: tuple[Check, ...] = (_files_have_a_format,)
