"""vLLM's scheduler: tokens and sequences of a pass, and the context of the model.

A value may come by a field, by an override of the rollout's key, or below engine_kwargs.vllm; `effective` has the one
that applies. Lines are those of verl 0.9.1 (below verl/) and of vLLM 0.23.0 (below vllm/).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.model_shape import model_facts
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.effective import Effective, Setting, effective
from rljob.launchers.verl.rows import ROLLOUT
from rljob.launchers.verl.sizes import CPU_SEQUENCES
from rljob.launchers.verl.values import whole
from rljob.render.accelerators import facts_of

TOKENS_FIELD, SEQUENCES_FIELD = "spec.rollout.maxBatchedTokens", "spec.rollout.maxSequences"


def _batched_tokens_hold_the_sequences(spec: RLJobSpec) -> Iterator[Violation]:
    """A decoding pass takes one token of every sequence, and vLLM refuses fewer (vllm/config/scheduler.py:273-278)."""
    view = effective(spec)
    tokens, sequences = _tokens(view), _sequences(spec, view)
    if tokens < sequences:
        given = view.engine("max_num_batched_tokens") or view.engine("max_num_seqs")
        default = "" if view.engine("max_num_seqs") else " by default"
        yield Violation(
            given.field if given else TOKENS_FIELD,
            f"{tokens:.0f} tokens per pass are fewer than the {sequences} sequences of a pass{default}; set "
            f"{TOKENS_FIELD} to {sequences} or more, or lower {SEQUENCES_FIELD}",
        )


def _passes_hold_a_context(spec: RLJobSpec) -> Iterator[Violation]:
    """Without chunked prefill the longest sequence of the model fits into one pass.

    verl would raise the bound to the model's context, but fails, because its configuration is frozen
    (verl/workers/rollout/vllm_rollout/vllm_async_server.py:1113-1119, verl/base_config.py:36-37). Arguments below
    engine_kwargs go past it, and vLLM refuses them (vllm/config/scheduler.py:259-271).
    """
    view = effective(spec)
    context = _context(spec, view) or _longest(spec)
    if (chunked := _is_whole(view)) is not None and _tokens(view) < context:
        given = view.engine("max_num_batched_tokens") or chunked
        yield Violation(
            given.field,
            f"{_tokens(view):.0f} tokens per pass cannot hold a sequence of {context}, but chunked prefill is off; set "
            f"{TOKENS_FIELD} to {context} or more, or turn it on",
        )


def _context_is_known(spec: RLJobSpec) -> Iterator[Violation]:
    """The context is the model's unless max_model_len is set (vllm_async_server.py:1101-1105)."""
    view = effective(spec)
    if _is_whole(view) is not None and _context(spec, view) is None and _tokens(view) >= _longest(spec):
        yield Violation(
            TOKENS_FIELD,
            f"{_tokens(view):.0f} tokens per pass: chunked prefill is off, so the rollout does not start if the model "
            f"has more positions; set verl.overrides {ROLLOUT}.max_model_len to {_longest(spec)}, or turn it on",
        )


def _is_whole(view: Effective) -> Setting | None:
    """Return what turns chunked prefill off."""
    chunked = view.engine("enable_chunked_prefill")
    return chunked if chunked is not None and chunked.value is False else None


def _context_holds_a_prompt(spec: RLJobSpec) -> Iterator[Violation]:
    """A prompt that leaves no token to generate fails (vllm_async_server.py:589-599)."""
    view, prompt = effective(spec), spec.data.max_prompt_tokens
    context, given = _engine_count(view, "max_model_len"), view.engine("max_model_len")
    if given is not None and context is not None and context <= prompt:
        yield Violation(
            given.field,
            f"{context} leaves no token to answer a prompt of data.maxPromptTokens {prompt}; raise it, or remove it",
        )


def _context_holds_a_response(spec: RLJobSpec) -> Iterator[Violation]:
    """Responses are cut where the context ends (vllm_async_server.py:601-617)."""
    view, data = effective(spec), spec.data
    context, given = _engine_count(view, "max_model_len"), view.engine("max_model_len")
    longest = _longest(spec)
    if given is not None and context is not None and data.max_prompt_tokens < context < longest:
        yield Violation(
            given.field,
            f"{context} is less than data.maxPromptTokens {data.max_prompt_tokens} + maxResponseTokens "
            f"{data.max_response_tokens} = {longest}, so responses to long prompts are cut; raise it, or remove it",
        )


def _tokens(view: Effective) -> float:
    """Return the tokens of a pass; infinite where the value is none that vLLM could compare."""
    tokens = _engine_count(view, "max_num_batched_tokens")
    return math.inf if tokens is None else tokens


def _sequences(spec: RLJobSpec, view: Effective) -> int:
    if view.engine("max_num_seqs") is None and not facts_of(spec).is_npu:
        return CPU_SEQUENCES
    return _engine_count(view, "max_num_seqs") or 0


def _context(spec: RLJobSpec, view: Effective) -> int | None:
    """Return the longest sequence for which the engine is built; None where only the model's files say it."""
    positions = model_facts(spec).positions
    return _engine_count(view, "max_model_len") or (positions.value if positions else None)


def _longest(spec: RLJobSpec) -> int:
    return spec.data.max_prompt_tokens + spec.data.max_response_tokens


def _engine_count(view: Effective, argument: str) -> int | None:
    return whole(view.engine_value(argument))


CHECKS: tuple[Check, ...] = (
    _batched_tokens_hold_the_sequences,
    _passes_hold_a_context,
    _context_holds_a_prompt,
)
WARNINGS: tuple[Check, ...] = (_context_is_known, _context_holds_a_response)
