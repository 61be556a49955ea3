"""Around the import of vllm-ascend's Triton helpers: functions of triton-ascend's language, for the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np


def _tensor(like: Any, data: Any) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    scalar = like.type.scalar
    kind = tl.block_type(scalar, list(data.shape)) if data.shape != (1,) else scalar
    return tl.core.tensor(TensorHandle(data, like.handle.dtype), kind)


def _number(value: Any) -> int:
    handle = getattr(value, "handle", None)
    return int(getattr(value, "value", value) if handle is None else handle.data.item())


def _place(offsets: Sequence[Any], sizes: Sequence[Any], strides: Sequence[Any]) -> tuple[slice, ...]:
    numbers = (
        (_number(at), _number(size), _number(step)) for at, size, step in zip(offsets, sizes, strides, strict=True)
    )
    return tuple(slice(at, at + size * step, step) for at, size, step in numbers)


def get_element(source: Any, index: Sequence[Any]) -> Any:
    """Return one element."""
    return _tensor(source, np.array([source.handle.data[tuple(_number(each) for each in index)]]))


def extract_slice(source: Any, offsets: Sequence[Any], sizes: Sequence[Any], strides: Sequence[Any]) -> Any:
    """Return a part."""
    return _tensor(source, source.handle.data[_place(offsets, sizes, strides)].copy())


def insert_slice(source: Any, part: Any, offsets: Sequence[Any], sizes: Sequence[Any], strides: Sequence[Any]) -> Any:
    """Return a copy with another part."""
    data = source.handle.data.copy()
    data[_place(offsets, sizes, strides)] = part.handle.data
    return _tensor(source, data)


def before() -> None:
    """Do nothing."""


def after(module: ModuleType) -> None:
    """Replace the functions, and correct the interpreter of Triton 3.2."""
    for function in (get_element, extract_slice, insert_slice):
        setattr(module, function.__name__, function)
    from triton.runtime import interpreter

    interpreter.RESERVED_KWS += ["multibuffer"]  # an option of triton-ascend's compiler
    correct_negative_axes(interpreter)
    find_largest_at_once(interpreter)
    correct_masks()


def correct_negative_axes(interpreter: Any) -> None:
    """Let a reduction count a negative axis from the end; the interpreter would reduce over another one."""
    unravel = interpreter.ReduceOps.unravel

    def counted_from_the_front(self: Any, tensors: Any, axis: int | None) -> Any:
        if axis is not None and axis < 0:
            axis += tensors[0].handle.data.ndim
        return unravel(self, tensors, axis)

    interpreter.ReduceOps.unravel = counted_from_the_front


def find_largest_at_once(interpreter: Any) -> None:
    """Let numpy find the place of the largest element, as in Triton's own fast path.

    The interpreter compares functions by identity and misses this one, which `tl.max(return_indices=True)` passes: it
    then combines element by element, which takes half a minute for each position of a rejection sampler.
    """
    import numpy as np

    reduce = interpreter.ReduceOps.apply_impl

    def reduced(self: Any, tensors: Any) -> Any:
        combine = getattr(self.combine_fn, "fn", self.combine_fn)
        if getattr(combine, "__name__", "") == "_argmax_combine_tie_break_left":
            return self.min_max(tensors[0], val_reduce_op=np.max, idx_reduce_op=np.argmax)
        return reduce(self, tensors)

    interpreter.ReduceOps.apply_impl = reduced


def correct_masks() -> None:
    """Let a mask of one false element count as a mask; the interpreter would load and store as if there were none."""
    from triton.language import core, semantic

    class Mask(core.tensor):  # type: ignore[misc]  # triton has no types
        def __bool__(self) -> bool:
            return True

    def with_mask(function: Any, position: int) -> Any:
        def called(*values: Any) -> Any:
            mask = values[position]
            if mask is None:
                return function(*values)
            return function(*values[:position], Mask(mask.handle, mask.type), *values[position + 1 :])

        return called

    semantic.load = with_mask(semantic.load, 1)
    semantic.store = with_mask(semantic.store, 2)
