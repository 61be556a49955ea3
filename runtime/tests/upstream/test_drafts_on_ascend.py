"""vllm-ascend's proposers of drafts pass through our gate: its own classes, without a device."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from arctic_inference.suffix_decoding._C import SuffixTree

from rljob_runtime.contract import Drafts
from rljob_runtime.vllm_plugin import drafts
from rljob_runtime.vllm_plugin.draft_store import DraftStore, Limits

LIMIT = 2
NAMES = ("a", "b", "c")


@pytest.fixture
def proposers() -> Iterator[dict[str, ModuleType]]:
    """Return the two modules, after our plug-in has been installed; what they import of the package needs a device."""
    folder = os.environ.get("RLJOB_VLLM_ASCEND")
    if folder is None:
        pytest.skip("RLJOB_VLLM_ASCEND names no folder with vllm-ascend; `make test-image` installs it")
    with pytest.MonkeyPatch.context() as patch:
        from vllm.v1.spec_decode.ngram_proposer import NgramProposer
        from vllm.v1.spec_decode.suffix_decoding import SuffixDecodingProposer

        for owner, name in (
            (SuffixDecodingProposer, "__init__"),
            (SuffixDecodingProposer, "propose"),
            (NgramProposer, "batch_propose"),
        ):
            patch.setattr(owner, name, getattr(owner, name))
        drafts.install(Drafts(LIMIT))
        utilities = SimpleNamespace(vllm_version_is=lambda version: version == "0.23.0")
        patch.setitem(sys.modules, "vllm_ascend.utils", utilities)
        yield {name: load(Path(folder), name) for name in ("suffix_proposer", "ngram_proposer")}


def load(folder: Path, name: str) -> ModuleType:
    file = folder / "vllm_ascend/spec_decode" / f"{name}.py"
    specification = importlib.util.spec_from_file_location(f"ascend_{name}", file)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def batch(count: int) -> SimpleNamespace:
    """Return so many requests with a prompt that repeats itself, as vllm-ascend's runner has them."""
    table: Any = np.zeros((count, 64), np.int32)
    table[:, :6] = [1, 2, 3, 4, 1, 2]
    return SimpleNamespace(
        req_ids=list(NAMES[:count]),
        req_id_to_index={name: index for index, name in enumerate(NAMES[:count])},
        num_prompt_tokens=np.full(count, 5),
        num_tokens_no_spec=np.full(count, 6),
        token_ids_cpu=table,
        spec_decode_unsupported_reqs=set(),
        max_model_len=64,
    )


@pytest.mark.parametrize(("count", "expected"), [(LIMIT, [[3], [3]]), (LIMIT + 1, [[], [], []])])
def test_suffix_drafts_come_from_our_store(
    proposers: dict[str, ModuleType], count: int, expected: list[list[int]]
) -> None:
    made: Any = object.__new__(proposers["suffix_proposer"].AscendSuffixDecodingProposer)
    made.runner = SimpleNamespace(input_batch=batch(count))
    setattr(made, drafts.STORE, DraftStore(Drafts(LIMIT), Limits(1, 8, 1.0, 0.1, 64), SuffixTree))
    assert made.propose([[2]] * count) == expected


@pytest.mark.parametrize(("count", "asked"), [(LIMIT, [0, 1]), (LIMIT + 1, [])])
def test_ngram_drafts_are_asked_below_the_limit(
    proposers: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, count: int, asked: list[int]
) -> None:
    from vllm.v1.spec_decode.ngram_proposer import NgramProposer

    seen: list[list[int]] = []

    def batch_propose(_self: object, requests: int, valid: list[int], _counts: object, _tokens: object) -> list[Any]:
        seen.append(valid)
        return [[] for _ in range(requests)]

    monkeypatch.setattr(NgramProposer, "batch_propose", drafts._ngram(batch_propose, Drafts(LIMIT)))
    made: Any = object.__new__(proposers["ngram_proposer"].AscendNgramProposer)
    made.runner = SimpleNamespace(input_batch=batch(count))
    made.propose([[2]] * count)
    assert seen == [asked]
