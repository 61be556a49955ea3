"""Put our gate and memory around vLLM's proposers of drafts, in the processes of its engines.

vLLM 0.23.0 drafts at every batch size, and its suffix cache keeps 10,000 responses whatever their length. vllm-ascend
0.23.0 calls the same methods: its suffix proposer hands over to vLLM's `propose` (spec_decode/suffix_proposer.py:41),
its n-gram proposer to `batch_propose` (spec_decode/ngram_proposer.py:61). `draft_store` makes the suffix drafts.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from rljob_runtime.contract import Drafts
from rljob_runtime.vllm_plugin.draft_store import DraftStore, Limits, Record

if TYPE_CHECKING:
    from collections.abc import Sequence

MARK = "_rljob"
EXCHANGE = "rljob_exchange_drafts"
"""Method of vLLM's workers that the trainer calls between two rollouts (verl_plugin/trainer/drafts.py)."""
STORE = "_rljob_store"
PROPOSE = ["self", "input_batch", "sampled_token_ids", "slot_mappings"]
BATCH_PROPOSE = ["self", "num_requests", "valid_ngram_requests", "num_tokens_no_spec", "token_ids_cpu"]


def install(settings: Drafts) -> None:
    """Replace the methods, once per process. Raises TypeError if vLLM's have other parameters."""
    from vllm.v1.spec_decode.ngram_proposer import NgramProposer
    from vllm.v1.spec_decode.suffix_decoding import SuffixDecodingProposer
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    if hasattr(SuffixDecodingProposer.propose, MARK):
        return
    _require(SuffixDecodingProposer.__init__, ["self", "vllm_config"])
    _require(SuffixDecodingProposer.propose, PROPOSE)
    _require(NgramProposer.batch_propose, BATCH_PROPOSE)
    SuffixDecodingProposer.__init__ = _with_store(SuffixDecodingProposer.__init__, settings)
    SuffixDecodingProposer.propose = _suffix(SuffixDecodingProposer.propose)
    NgramProposer.batch_propose = _ngram(NgramProposer.batch_propose, settings)
    setattr(WorkerWrapperBase, EXCHANGE, exchange)


def _require(function: Any, expected: list[str]) -> None:  # noqa: ANN401 - vLLM ships no types
    found = list(inspect.signature(function).parameters)
    if found != expected:
        raise TypeError(f"vLLM's {function.__qualname__} has the parameters {found}, expected {expected}")


def _with_store(original: Any, settings: Drafts) -> Any:  # noqa: ANN401 - vLLM ships no types
    @functools.wraps(original)
    def __init__(self: Any, vllm_config: Any) -> None:  # noqa: ANN401, N807
        original(self, vllm_config)
        setattr(self, STORE, _store(self, settings))

    return __init__


def _suffix(original: Any) -> Any:  # noqa: ANN401 - vLLM ships no types
    @functools.wraps(original)
    def propose(
        self: Any,  # noqa: ANN401
        input_batch: Any,  # noqa: ANN401
        sampled_token_ids: Sequence[Sequence[int]],
        slot_mappings: Any = None,  # noqa: ANN401, ARG001
    ) -> list[list[int]]:
        store: DraftStore = getattr(self, STORE)
        return store.propose(input_batch, sampled_token_ids)

    setattr(propose, MARK, True)
    return propose


def _store(proposer: Any, settings: Drafts) -> DraftStore:  # noqa: ANN401 - vLLM ships no types
    from arctic_inference.suffix_decoding._C import SuffixTree

    limits = Limits(
        tokens=proposer.num_speculative_tokens,
        depth=proposer.max_tree_depth,
        factor=proposer.max_spec_factor,
        probability=proposer.min_token_prob,
        model_length=proposer.max_model_len,
    )
    return DraftStore(settings, limits, SuffixTree)


def _ngram(original: Any, settings: Drafts) -> Any:  # noqa: ANN401 - vLLM ships no types
    @functools.wraps(original)
    def batch_propose(
        self: Any,  # noqa: ANN401
        num_requests: int,
        valid_ngram_requests: list[int],
        num_tokens_no_spec: Any,  # noqa: ANN401
        token_ids_cpu: Any,  # noqa: ANN401
    ) -> list[list[int]]:
        """Draft for no request while more than the limit run."""
        asked = valid_ngram_requests if num_requests <= settings.max_sequences else []
        drafts: list[list[int]] = original(self, num_requests, asked, num_tokens_no_spec, token_ids_cpu)
        return drafts

    return batch_propose


def exchange(wrapper: Any, records: Sequence[tuple[bytes, bytes]]) -> dict[str, int]:  # noqa: ANN401 - vLLM's worker
    """Give responses of the last step to this worker's proposer, and return its counts; {} without suffix trees."""
    store: DraftStore | None = getattr(getattr(wrapper.worker.model_runner, "drafter", None), STORE, None)
    return {} if store is None else store.exchange(Record(*record) for record in records)
